//! Tests of tuning: the tuner in jobs, `ronde tune`, settings that a program changes, and the unit
//! tests of the bench `tuner`.

mod autotune;
// The bench `tuner` has no test harness, so its unit tests run here.
#[allow(dead_code, unused_imports)] // used only by the bench's main program
#[path = "../../benches/tuner/harness/mod.rs"]
mod harness;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod tune_cli;
mod tune_command;
