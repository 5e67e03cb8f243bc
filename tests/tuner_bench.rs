//! The unit tests of the bench `tuner`, which has no test harness of its own.

#[allow(dead_code)] // what only the bench's main program uses
#[path = "../benches/tuner/harness/mod.rs"]
mod harness;
