//! Experiments with Ronde: benchmarks, comparisons of settings, reviews of tuner logs.
//!
//! - [`mod@bench`]: runs workloads with the gradients of real models and checks their results.
//! - [`sweep`]: compares settings with each other and with the default, in randomised blocks.
//! - [`review`]: analyses the log of a tuner.
//!
//! The crate returns data; the program `ronde` prints it.

pub mod bench;
pub mod paste;
pub mod review;
pub mod sweep;
