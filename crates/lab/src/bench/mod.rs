//! Benchmark of `ronde bench`: model gradients, checked results and a memcpy baseline.
//!
//! A [`Workload`] is the list of tensors of one step in the order of the backward pass. It comes
//! from a known architecture ([`models`]) or from a file ([`profile`]). [`schedule`] spreads its
//! submissions over a backward pass, [`run()`] executes the steps, and [`verify`] checks the
//! results of every step. [`memcpy`] measures how fast this machine (or its GPU) copies the same
//! bytes, and [`report`] formats all results as one JSON object and as text. A sweep keeps a
//! [`Job`] and measures it many times.

mod agree;
mod baseline;
mod buffer;
mod job;
mod measure;
pub mod memcpy;
pub mod memory;
pub mod models;
mod payload;
pub mod profile;
pub mod report;
mod run;
pub mod schedule;
pub mod verify;
mod workload;

pub use agree::Difference;
pub use job::{Job, Load, RunError};
pub use measure::{STEPS_BEFORE_CUT, Series, SeriesEnd, SeriesTimes};
pub use payload::Runtime;
pub use run::{MEMCPY_INTERVAL_STEPS, Measurement, MpiPerStep, Observer, Plan, Progress, run};
pub use workload::{TensorSpec, Workload};
