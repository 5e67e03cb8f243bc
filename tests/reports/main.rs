//! Tests of the reporting programs: `ronde bench`, `replay`, `review` and `sweep`, and their pages.

mod bench_cli;
mod replay_cli;
mod replay_properties;
mod review_cli;
#[path = "../support/mod.rs"]
mod support;
mod sweep_cli;
mod sweep_page;
