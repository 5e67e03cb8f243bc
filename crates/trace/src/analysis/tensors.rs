//! Table of the tensors of a steady step, from which a profile is made.

use std::collections::HashMap;

use super::collect::RankRecord;
use super::join::ready_here;
use super::quantiles::median;
use super::report::{Quantiles, TensorRow};
use super::steady::SteadyStep;
use crate::NameId;

/// Maximum number of ready times: in a job of many ranks or tensors, fewer steps suffice for the
/// medians.
const TIMES_MOST: usize = 4 << 20;
/// Minimum number of steps.
const STEPS_LEAST: usize = 8;

#[derive(Debug, Default)]
struct Times {
    n: u64,
    bytes_max: Option<u64>,
    steps: usize,
    ready_us: Vec<Vec<f64>>,
    own_us: Vec<f64>,
    latency_ms: Vec<f64>,
}

/// Tensors that occur in at least half of `steps`, in order of their median ready time on the
/// reference rank.
pub(super) fn tensors(record: &RankRecord, steps: &[SteadyStep<'_>], ranks: u32) -> Vec<TensorRow> {
    let own = record.rank();
    let in_step = steps
        .iter()
        .map(|step| step.batches.iter().map(|batch| batch.members.len()).sum());
    let most_in_step: usize = in_step.max().unwrap_or(0);
    let steps_most = (TIMES_MOST / (most_in_step * ranks as usize).max(1)).max(STEPS_LEAST);
    // The last steps, because they are the most settled.
    let steps = &steps[steps.len().saturating_sub(steps_most)..];

    let mut times: HashMap<NameId, Times> = HashMap::new();
    let mut sample = HashMap::new();
    for step in steps {
        let us = |at: i64| (at - step.span.began) as f64 / 1e3;
        for batch in &step.batches {
            for (op, ready) in batch.members.iter().zip(&batch.ready) {
                let times = times.entry(op.tensor).or_default();
                times.n += 1;
                times.bytes_max = times.bytes_max.max(op.bytes);
                let here = op.ready(own);
                times.latency_ms.push((op.span.ended - here) as f64 / 1e6);
                if sample
                    .insert(op.tensor, (step.index, op))
                    .is_some_and(|(last, _)| last == step.index)
                {
                    continue; // second occurrence in this step
                }
                times.steps += 1;
                times.own_us.push(us(here));
                let own_too = ready
                    .of(own)
                    .is_none()
                    .then(|| ready_here(record, op))
                    .flatten();
                // A rank that the job does not have is damaged; memory must not be allocated for it.
                let known = ready.known().chain(own_too.map(|at| (own, at)));
                for (rank, at) in known.filter(|&(rank, _)| rank < ranks) {
                    let rank = rank as usize;
                    if times.ready_us.len() <= rank {
                        times.ready_us.resize(rank + 1, Vec::new());
                    }
                    times.ready_us[rank].push(us(at));
                }
            }
        }
    }
    let usual = times
        .into_iter()
        .filter(|(_, times)| times.steps * 2 >= steps.len());
    let rows = usual.map(|(tensor, times)| {
        let own_us = Quantiles::of(times.own_us.iter().copied());
        let (_, op) = sample[&tensor];
        let row = TensorRow {
            name: record.name(tensor).to_owned(),
            kind: op.kind,
            dtype: op.dtype.map(|dtype| dtype.name().to_owned()),
            elements: op.elements,
            bytes_max: times.bytes_max,
            n: times.n,
            ready_us: ready_us(times.ready_us),
            ready_jitter_us: (own_us.p90 - own_us.p10) / 2.0,
            latency_ms: Quantiles::of(times.latency_ms),
        };
        (own_us.p50, tensor, row)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    rows.into_iter().map(|(_, _, row)| row).collect()
}

/// Median ready times, up to the last rank with a known one.
fn ready_us(times: Vec<Vec<f64>>) -> Vec<Option<f64>> {
    let ranks = times.into_iter();
    ranks
        .map(|mut at| (!at.is_empty()).then(|| median(&mut at)))
        .collect()
}
