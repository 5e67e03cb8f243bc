//! Tests of the reporting programs `ronde bench`, `replay`, `review` and `sweep`, of their pages,
//! and of the metrics and the live page of a running job.

mod bench_cli;
mod live_page;
mod metrics;
mod replay_cli;
mod replay_properties;
mod review_cli;
#[path = "../support/mod.rs"]
mod support;
mod sweep_cli;
mod sweep_page;
mod watched;
