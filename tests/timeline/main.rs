//! Timelines: recording, starting and stopping them, and the reports of `ronde timeline`.

mod cli;
mod control;
mod fuzz;
mod jobs;
mod recording;
#[path = "../support/mod.rs"]
mod support;
mod traces;
