//! Stragglers: ranks that are late, and the length of a step without each of them, by
//! recomputation.
//!
//! The steps are simulated by the runtime's own planner ([`super::whatif`]) with the ready times of
//! the other ranks. If that model does not reproduce the recorded steps, the recorded batches are
//! kept: a batch begins when its conditions are met (all members ready on all ranks, the previous
//! batch finished), plus a delay (cycle, negotiation). The recomputation keeps all delays and
//! durations, and the ready times of all ranks but one, and moves every batch to the earliest
//! possible start. Without a rank to leave out, it gives the recorded step.

use std::collections::HashMap;

use super::collect::RankRecord;
use super::quantiles::median;
use super::report::{Quantiles, StragglerRank, StragglerTensor, Stragglers};
use super::steady::SteadyStep;
use super::whatif::WhatIf;
use crate::NameId;

/// A rank that was last for less than one tensor in this many is not simulated.
const RERUN_SHARE: u64 = 50;
/// Maximum number of tensors listed.
const TENSORS_MOST: usize = 50;
/// Minimum cost of a rank that stands out, as a share of the step.
const COST_LEAST: f64 = 0.02;
/// Minimum ratio of its cost to that of the next rank.
const COST_OVER_NEXT: f64 = 1.5;
/// Minimum number of steps: in fewer, one of two ranks is too often last in all steps by chance.
const STEPS_LEAST: usize = 5;

/// Finds the late ranks in `steps`; `clock_error_ns` is the error bound of times on two ranks. None
/// if ready times are known for fewer than two ranks.
pub(super) fn stragglers(
    record: &RankRecord,
    steps: &[SteadyStep<'_>],
    ranks: u32,
    clock_error_ns: u64,
    whatif: Option<&WhatIf>,
) -> Option<Stragglers> {
    let mut operations = 0u64;
    let mut by_rank: Vec<Lateness> = vec![Lateness::default(); ranks as usize];
    let mut by_tensor: HashMap<NameId, TensorLateness> = HashMap::new();
    for batch in steps.iter().flat_map(|step| &step.batches) {
        for (op, ready) in batch.members.iter().zip(&batch.ready) {
            let Some(all) = ready.all() else {
                continue;
            };
            operations += 1;
            let mut first = i64::MAX;
            let (mut last, mut last_rank, mut before) = (i64::MIN, 0, i64::MIN);
            for (rank, at) in all {
                first = first.min(at);
                if at > last {
                    (before, last, last_rank) = (last, at, rank);
                } else {
                    before = before.max(at);
                }
            }
            by_rank[last_rank as usize].lag_ms.push(ms(last - before));
            let tensor = by_tensor.entry(op.tensor).or_default();
            tensor.spread_ms.push(ms(last - first));
            *tensor.last.entry(last_rank).or_default() += 1;
        }
    }
    if operations == 0 {
        return None;
    }
    let step_ms = median(
        &mut steps
            .iter()
            .map(|step| ms(step.span.ended - step.span.began))
            .collect::<Vec<_>>(),
    );
    let rows: Vec<StragglerRank> = (0..ranks)
        .zip(by_rank)
        .map(|(rank, late)| {
            let lengths = steps.iter().map(|step| ms(without(step, rank)));
            let without =
                match whatif.filter(|_| late.lag_ms.len() as u64 * RERUN_SHARE >= operations) {
                    Some(whatif) => {
                        step_ms - (whatif.modelled_ns - whatif.without(steps, rank)).max(0.0) / 1e6
                    }
                    None => median(&mut lengths.collect::<Vec<_>>()),
                };
            StragglerRank {
                rank,
                last: late.lag_ms.len() as u64,
                last_share: late.lag_ms.len() as f64 / operations as f64,
                lag_ms: Quantiles::of(late.lag_ms),
                step_ms_without: without,
                cost_ms: step_ms - without,
            }
        })
        .collect();
    Some(Stragglers {
        operations,
        slowest: slowest(&rows, step_ms, steps.len(), ms(clock_error_ns as i64)),
        ranks: rows,
        tensors: tensors(record, by_tensor),
    })
}

#[derive(Clone, Debug, Default)]
struct Lateness {
    lag_ms: Vec<f64>,
}

#[derive(Debug, Default)]
struct TensorLateness {
    spread_ms: Vec<f64>,
    last: HashMap<u32, u64>,
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Length of `step`, in nanoseconds, if no rank had waited for `rank`.
fn without(step: &SteadyStep<'_>, rank: u32) -> i64 {
    // (recorded end, recomputed end), in order of the former.
    let mut ends: Vec<(i64, i64)> = vec![(step.span.began, step.span.began)];
    let mut last = (step.span.began, step.span.began);
    for batch in &step.batches {
        let began = batch.began();
        // The batch that this one had to wait for: the last one that had finished.
        let over = ends.partition_point(|&(end, _)| end <= began);
        let (before, before_without) = ends[over.max(1) - 1];
        let delay = (began - before.max(batch.all_ready)).max(0);
        let ready = batch.ready_without(rank).min(batch.all_ready);
        // A delay after the last rank was ready is a wait for the cycle, which overlaps other
        // batches; a delay after the previous batch is the cost of starting a batch.
        let after_batch = if before >= batch.all_ready { delay } else { 0 };
        let began_without = (before_without + after_batch).max(ready + delay).min(began);
        let end = (batch.span.ended, began_without + batch.moving_ns());
        let place = ends.partition_point(|known| known.0 <= end.0);
        ends.insert(place, end);
        if end.0 >= last.0 {
            last = end;
        }
    }
    // The time after the last result (in marked steps) is unchanged.
    let end_without = ends
        .iter()
        .map(|&(_, end)| end)
        .max()
        .unwrap_or(step.span.began);
    (end_without - step.span.began) + (step.span.ended - last.0).max(0)
}

/// Rank that stands out.
fn slowest(rows: &[StragglerRank], step_ms: f64, steps: usize, clock_error_ms: f64) -> Option<u32> {
    let mut by_cost: Vec<&StragglerRank> = rows.iter().collect();
    by_cost.sort_by(|a, b| b.cost_ms.total_cmp(&a.cost_ms));
    let (most, next) = (by_cost.first()?, by_cost.get(1)?);
    // The tensors of a step are late together, so the sample size is the number of steps.
    let share = 1.0 / rows.len() as f64;
    if steps < STEPS_LEAST {
        return None;
    }
    let chance = 2.0 * (share * (1.0 - share) / steps.max(1) as f64).sqrt();
    let stands_out = most.cost_ms > COST_LEAST * step_ms
        && most.cost_ms > COST_OVER_NEXT * next.cost_ms
        && most.cost_ms > clock_error_ms
        && most.last_share > (share + chance).min(0.9);
    stands_out.then_some(most.rank)
}

fn tensors(
    record: &RankRecord,
    by_tensor: HashMap<NameId, TensorLateness>,
) -> Vec<StragglerTensor> {
    let rows = by_tensor.into_iter().map(|(tensor, late)| {
        let spread_ms = Quantiles::of(late.spread_ms);
        // The lowest of the ranks that were last equally often.
        let most = late
            .last
            .into_iter()
            .max_by_key(|&(rank, times)| (times, std::cmp::Reverse(rank)));
        let (last_rank, times) = most.unwrap_or_default();
        let row = StragglerTensor {
            name: record.name(tensor).to_owned(),
            n: spread_ms.n,
            last_rank,
            last_share: times as f64 / spread_ms.n.max(1) as f64,
            spread_ms,
        };
        (tensor, row)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|(id_a, a), (id_b, b)| {
        b.spread_ms
            .p50
            .total_cmp(&a.spread_ms.p50)
            .then(id_a.cmp(id_b))
    });
    rows.truncate(TENSORS_MOST);
    rows.into_iter().map(|(_, row)| row).collect()
}
