//! Stragglers: ranks that are late, and the length of a step without each of them, by
//! recomputation. If no single rank stands out, several may: those of a slow host are late
//! together, and leaving out one of them changes nothing.
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
use super::report::{Quantiles, StragglerGroup, StragglerRank, StragglerTensor, Stragglers};
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
    let mut times: Vec<(i64, u32)> = Vec::new();
    for batch in steps.iter().flat_map(|step| &step.batches) {
        for (op, ready) in batch.members.iter().zip(&batch.ready) {
            let Some(all) = ready.all() else {
                continue;
            };
            operations += 1;
            times.clear();
            times.extend(all.map(|(rank, at)| (at, rank)));
            let middle = (times.len() - 1) / 2;
            let (_, &mut (middle, _), _) = times.select_nth_unstable(middle);
            let mut first = i64::MAX;
            let [mut last, mut before] = [(i64::MIN, 0); 2];
            for &(at, rank) in &times {
                by_rank[rank as usize].sum_ms += ms(at - middle);
                first = first.min(at);
                before = before.max(last.min((at, rank)));
                last = last.max((at, rank));
            }
            let ((last, last_rank), (before, _)) = (last, before);
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
    let step_ms_without = |ranks: &[u32], times: usize| match whatif
        .filter(|_| times as u64 * RERUN_SHARE >= operations)
    {
        Some(whatif) => {
            step_ms - (whatif.modelled_ns - whatif.without(steps, ranks)).max(0.0) / 1e6
        }
        None => {
            let lengths = steps.iter().map(|step| ms(without(step, ranks)));
            median(&mut lengths.collect::<Vec<_>>())
        }
    };
    let sums_ms: Vec<f64> = by_rank.iter().map(|late| late.sum_ms).collect();
    let rows: Vec<StragglerRank> = (0..ranks)
        .zip(by_rank)
        .map(|(rank, late)| {
            let without = step_ms_without(&[rank], late.lag_ms.len());
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
    let scale = Scale {
        step_ms,
        steps: steps.len(),
        clock_error_ms: ms(clock_error_ns as i64),
    };
    let slowest = slowest(&rows, &scale);
    let group = late_group(&sums_ms).filter(|_| slowest.is_none());
    let group = group.map(|ranks| {
        let lag_ms = lags_ms(steps, &ranks);
        let step_ms_without = step_ms_without(&ranks, lag_ms.len());
        StragglerGroup {
            ranks,
            last_share: lag_ms.len() as f64 / operations as f64,
            lag_ms: Quantiles::of(lag_ms),
            step_ms_without,
            cost_ms: step_ms - step_ms_without,
        }
    });
    Some(Stragglers {
        operations,
        slowest,
        slowest_group: group.filter(|group| stands_out(group, &rows, &scale)),
        ranks: rows,
        tensors: tensors(record, by_tensor),
    })
}

/// The ranks that are usually later than the others, from two to half of them: those above the
/// largest gap between the mean delays of the ranks, given by their sums.
fn late_group(sums_ms: &[f64]) -> Option<Vec<u32>> {
    let mut ranks: Vec<u32> = (0..sums_ms.len() as u32).collect();
    let sum_ms = |rank: u32| sums_ms[rank as usize];
    ranks.sort_by(|a, b| sum_ms(*b).total_cmp(&sum_ms(*a)));
    let gap_ms = |size: &usize| sum_ms(ranks[size - 1]) - sum_ms(ranks[*size]);
    let size = (2..=ranks.len() / 2).max_by(|a, b| gap_ms(a).total_cmp(&gap_ms(b)))?;
    ranks.truncate(size);
    ranks.sort_unstable();
    Some(ranks)
}

/// Delays of the first of `ranks`, which are in order, after the last other rank, for the operations
/// where they were the last.
fn lags_ms(steps: &[SteadyStep<'_>], ranks: &[u32]) -> Vec<f64> {
    let batches = steps.iter().flat_map(|step| &step.batches);
    let known = batches.flat_map(|batch| &batch.ready);
    let lags = known.filter_map(|ready| {
        let (mut first, mut other) = (i64::MAX, i64::MIN);
        for (rank, at) in ready.all()? {
            if ranks.binary_search(&rank).is_ok() {
                first = first.min(at);
            } else {
                other = other.max(at);
            }
        }
        (first > other).then(|| ms(first - other))
    });
    lags.collect()
}

#[derive(Clone, Debug, Default)]
struct Lateness {
    /// Delays after the second-last rank.
    lag_ms: Vec<f64>,
    /// Sum of the times after half of the ranks were ready.
    sum_ms: f64,
}

#[derive(Debug, Default)]
struct TensorLateness {
    spread_ms: Vec<f64>,
    last: HashMap<u32, u64>,
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Length of `step`, in nanoseconds, if no rank had waited for `ranks`.
fn without(step: &SteadyStep<'_>, ranks: &[u32]) -> i64 {
    // (recorded end, recomputed end), in order of the former.
    let mut ends: Vec<(i64, i64)> = vec![(step.span.began, step.span.began)];
    let mut last = (step.span.began, step.span.began);
    for batch in &step.batches {
        let began = batch.began();
        // The batch that this one had to wait for: the last one that had finished.
        let over = ends.partition_point(|&(end, _)| end <= began);
        let (before, before_without) = ends[over.max(1) - 1];
        let delay = (began - before.max(batch.all_ready)).max(0);
        let ready = batch.ready_without(ranks).min(batch.all_ready);
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

/// Figures that a cost is compared with.
#[derive(Debug)]
struct Scale {
    step_ms: f64,
    steps: usize,
    clock_error_ms: f64,
}

impl Scale {
    /// Whether ranks stand out that are last for `last_share` of the operations, `share` of which
    /// are expected by chance; `next_ms` is the cost of the next candidate.
    fn stands_out(&self, cost_ms: f64, next_ms: f64, last_share: f64, share: f64) -> bool {
        // The tensors of a step are late together, so the sample size is the number of steps.
        let chance = 2.0 * (share * (1.0 - share) / self.steps.max(1) as f64).sqrt();
        self.steps >= STEPS_LEAST
            && cost_ms > COST_LEAST * self.step_ms
            && cost_ms > COST_OVER_NEXT * next_ms
            && cost_ms > self.clock_error_ms
            && last_share > (share + chance).min(0.9)
    }
}

/// Rank that stands out.
fn slowest(rows: &[StragglerRank], scale: &Scale) -> Option<u32> {
    let mut by_cost: Vec<&StragglerRank> = rows.iter().collect();
    by_cost.sort_by(|a, b| b.cost_ms.total_cmp(&a.cost_ms));
    let (most, next) = (by_cost.first()?, by_cost.get(1)?);
    let share = 1.0 / rows.len() as f64;
    scale
        .stands_out(most.cost_ms, next.cost_ms, most.last_share, share)
        .then_some(most.rank)
}

/// Whether several ranks stand out: together they cost more than any rank alone.
fn stands_out(group: &StragglerGroup, rows: &[StragglerRank], scale: &Scale) -> bool {
    let next_ms = rows.iter().map(|row| row.cost_ms).fold(0.0, f64::max);
    // One of all groups of this size.
    let (size, ranks) = (group.ranks.len(), rows.len());
    let share = (0..size).map(|one| (one + 1) as f64 / (ranks - one) as f64);
    scale.stands_out(group.cost_ms, next_ms, group.last_share, share.product())
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
