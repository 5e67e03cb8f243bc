//! The tuner in jobs, `ronde tune`, settings that a program changes, and the unit tests of the bench `tuner`.

mod autotune;
// The bench `tuner` has no test harness of its own.
#[allow(dead_code)] // what only the bench's main program uses
#[path = "../../benches/tuner/harness/mod.rs"]
mod harness;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod tune_cli;
