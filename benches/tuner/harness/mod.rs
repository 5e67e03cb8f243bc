//! Modules of the harness; `main.rs` uses them, and `tests/tuning/main.rs` runs their unit tests.

pub(crate) mod attacks;
pub(crate) mod commands;
pub(crate) mod drift;
pub(crate) mod job;
pub(crate) mod outcome;
pub(crate) mod run;
pub(crate) mod sampling;
pub(crate) mod serve;
pub(crate) mod split;
pub(crate) mod table;
pub(crate) mod truth;
pub(crate) mod tuners;
pub(crate) mod witness;
