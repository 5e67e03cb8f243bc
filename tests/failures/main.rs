//! Failures: dead, stopped and leaving ranks, bad input, and jobs that cannot start.

mod bad_input;
mod late;
mod start;
#[path = "../support/mod.rs"]
mod support;
mod survivors;
mod tcp;
