//! Operations between real processes: results, orders, groups, batches, joins, several hosts.

mod batches;
mod groups;
mod hosts;
mod join;
mod large;
mod matrix;
mod submission;
#[path = "../support/mod.rs"]
mod support;
