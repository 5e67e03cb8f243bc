//! Process sets between real processes: numbers, overlap, refusals, and the effects of a death.

mod endings;
mod membership;
mod operations;
mod refusals;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use ronde::{Context, Error, ProcessSet, ReduceOp};
use support::Draw;

/// Time within which a survivor must have an error: the contract is two seconds, the rest is for a
/// busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn dynamic() -> Context {
    Context::builder()
        .dynamic_process_sets()
        .build()
        .expect("the job starts")
}

fn with_sets(sets: &[&[usize]]) -> Context {
    let sets = sets.iter().map(|ranks| ranks.to_vec());
    Context::builder()
        .process_sets(sets)
        .build()
        .expect("the job starts")
}

fn try_sum(set: &ProcessSet, name: &str, value: i64) -> Result<i64, Error> {
    let handle = set
        .allreduce(name, vec![value; 3], ReduceOp::Sum)
        .map_err(|failed| failed.error)?;
    handle
        .wait()
        .map(|sum| sum[0])
        .map_err(|failed| failed.error)
}

fn sum(set: &ProcessSet, name: &str, value: usize) -> usize {
    try_sum(set, name, value as i64).expect("reduced") as usize
}

/// Returns the sum of the members' ranks.
fn rank_sum(set: &ProcessSet) -> usize {
    set.ranks().iter().sum()
}

fn shuffle<T>(draw: &mut Draw, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, draw.below(index as u64 + 1) as usize);
    }
}
