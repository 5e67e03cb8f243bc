//! Timelines: how jobs record them, how they are started and stopped, and what `ronde timeline` reports on them.

mod cli;
mod control;
mod fuzz;
mod jobs;
mod recording;
#[path = "../support/mod.rs"]
mod support;
mod traces;
