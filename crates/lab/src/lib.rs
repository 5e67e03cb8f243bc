//! Experiments with Ronde: what a machine, a model and a setting give, and how sure that is.
//!
//! - [`mod@bench`]: workloads with the gradients of real models, run and checked.
//! - [`sweep`]: settings measured against each other and against the default, in random blocks.
//! - [`review`]: what a tuner's log tells.
//!
//! The program `ronde` prints what these give; they print nothing themselves.

pub mod bench;
pub mod gain;
pub mod paste;
pub mod review;
pub mod sweep;
