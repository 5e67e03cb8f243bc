//! The harness's parts; `main.rs` puts them to work, and `tests/tuner_bench.rs` runs their unit tests.

pub(crate) mod job;
pub(crate) mod truth;
pub(crate) mod witness;
