//! Conversion of steady steps for replay: ready times of tensors, times of cycles and batches.

use std::collections::{HashMap, HashSet};

use super::Replayable;
use super::collect::RankRecord;
use super::op::Op;
use super::quantiles::{median, quantile};
use super::report::Report;
use super::steady::{Batch, SteadyStep};
use crate::{Format, Kind, NameId, Phase};
use ronde_job::fusion::Item;
use ronde_job::fusion_class::FusionClasses;
use ronde_job::replay::{
    Hosts, JobTopology, Rules, Setting, Trace, TracedBatch, TracedCycle, TracedStep, TracedTensor,
    WorkTensor,
};

/// Maximum number of operations in a trace; steps beyond are thinned evenly.
const OPS_MOST: usize = 1 << 17;

/// Fusion classes of a file's tensors.
#[derive(Debug, Default)]
pub(super) struct Classes(FusionClasses);

impl Classes {
    /// Class of `op`, numbered in order of appearance.
    pub(super) fn of(&mut self, op: &Op) -> u32 {
        self.0.number(&op.fusion_key(), Some(identity(op)))
    }
}

/// Identity of a tensor that is never fused: operation, element type and name.
fn identity(op: &Op) -> u64 {
    let dtype = op.dtype.map_or(0, |dtype| dtype as u64 + 1);
    (op.kind as u64) << 40 | dtype << 32 | u64::from(op.tensor.0)
}

/// Tensors of `step`. The ready times of the ranks `without` are no later than those of the others.
/// None if a size is unknown.
pub(super) fn tensors(
    step: &SteadyStep<'_>,
    without: &[u32],
    classes: &mut Classes,
) -> Option<Vec<(NameId, WorkTensor)>> {
    let mut tensors = Vec::new();
    for batch in &step.batches {
        for (op, ready) in batch.members.iter().zip(&batch.ready) {
            let at = ready.last();
            let at = at.map(|at| ready.last_without(without).unwrap_or(at).min(at));
            let first = ready.known().map(|(_, at)| at).min();
            let pending = first.or(op.negotiation.map(|span| span.began));
            let ready_us = since_us(step, at.unwrap_or(batch.all_ready).min(batch.span.began));
            let work = WorkTensor {
                item: Item {
                    class: classes.of(op),
                    bytes: op.bytes?,
                    group: None,
                },
                pending_us: pending
                    .map_or(ready_us, |at| since_us(step, at))
                    .min(ready_us),
                ready_us,
            };
            tensors.push((op.tensor, work));
        }
    }
    Some(tensors)
}

/// Time from the last result to the end of `step`, µs.
pub(super) fn tail_us(step: &SteadyStep<'_>) -> f64 {
    let ends = step.batches.iter().map(|batch| batch.span.ended);
    let end = ends.fold(step.span.began, i64::max);
    (step.span.ended - end).max(0) as f64 / 1e3
}

/// Converts `record`, with its steady `steps`, for replay. None if the format does not record
/// negotiation and fusion, or if sizes are unknown.
pub(super) fn replayable(
    record: &RankRecord,
    steps: &[SteadyStep<'_>],
    report: &Report,
) -> Option<Replayable> {
    let fusion = report.fusion.as_ref()?;
    let cycle_us = fusion.cycle_time_ms.unwrap_or(0.0) * 1e3;
    let setting = Setting {
        fusion_threshold_bytes: fusion.threshold_bytes.unwrap_or(0),
        cycle_us,
        hierarchical: false,
        hierarchical_allgather: false,
        cache: true,
    };
    let ronde = record.source.format == Format::Ronde;
    let rules = if ronde { Rules::RONDE } else { Rules::HOROVOD };
    let on_one_host = record.source.backend.as_deref() == Some("local");
    let key = |id: NameId| {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        BuildHasherDefault::<DefaultHasher>::default().hash_one(record.name(id))
    };
    Some(Replayable {
        trace: trace(steps, setting, key)?,
        rules: Rules {
            early: ronde && starts_early(steps, cycle_us * 1e3),
            ..rules
        },
        place: match (on_one_host, record.source.shaped) {
            (true, false) => JobTopology::one_host(report.ranks),
            (true, true) => JobTopology::new(report.ranks, 1).with_hosts(Hosts::Shaped),
            (false, _) => JobTopology::new(report.ranks, 1).with_hosts(Hosts::Assumed),
        },
        is_hierarchical: is_hierarchical(record, steps),
    })
}

/// Whether an allreduce of `steps` has the stage of a hierarchical one, in Ronde's files
/// (`SHM_REDUCESCATTER`) as in Horovod's (`NCCL_REDUCESCATTER`).
fn is_hierarchical(record: &RankRecord, steps: &[SteadyStep<'_>]) -> bool {
    let batches = steps.iter().flat_map(|step| &step.batches);
    let allreduces = batches.filter(|batch| batch.members[0].kind == Kind::Allreduce);
    let mut stages = allreduces.flat_map(|batch| &batch.members[0].activities);
    stages.any(|stage| record.name(stage.name).ends_with("_REDUCESCATTER"))
}

/// Whether the last batch of a step does not wait for the cycle time.
pub(super) fn starts_early(steps: &[SteadyStep<'_>], cycle_ns: f64) -> bool {
    let delays = steps.iter().filter_map(|step| {
        let (last, before) = step.batches.split_last()?;
        let free = before
            .iter()
            .map(|batch| batch.span.ended)
            .max()
            .unwrap_or(step.span.began);
        Some((last.began() - last.all_ready.max(free)).max(0) as f64)
    });
    median(&mut delays.collect::<Vec<_>>()) < 0.25 * cycle_ns
}

/// Converts `steps`, in which `setting` was in force, to a trace; `key` identifies tensors. None
/// without steps or if sizes are unknown.
fn trace(steps: &[SteadyStep<'_>], setting: Setting, key: impl Fn(NameId) -> u64) -> Option<Trace> {
    let ops = |step: &SteadyStep<'_>| {
        step.batches
            .iter()
            .map(|batch| batch.members.len())
            .sum::<usize>()
    };
    let most = (OPS_MOST / ops(steps.first()?).max(1)).max(1);
    let every = steps.len().div_ceil(most);
    let mut classes = Classes::default();
    let mut traced = Vec::new();
    let negotiate_us = negotiate_us(steps, setting.cycle_us);
    for step in steps.iter().step_by(every) {
        let tensors = tensors(step, &[], &mut classes)?;
        // If names do not repeat, tensors are identified by their position in the step.
        let mut seen: HashMap<u64, u64> = HashMap::new();
        let tensors = tensors.into_iter().map(|(id, work)| {
            let key = key(id);
            let times = seen.entry(key).or_default();
            *times += 1;
            TracedTensor {
                key: key.wrapping_add(*times - 1),
                item: work.item,
                pending_us: work.pending_us,
                ready_us: work.ready_us,
            }
        });
        traced.push(TracedStep {
            step_us: step.span.ns() as f64 / 1e3,
            tensors: tensors.collect(),
            cycles: cycles(step, negotiate_us, &mut classes)?,
        });
    }
    let mut trace = Trace {
        setting,
        operations: classes.0.operations().collect(),
        steps: traced,
    };
    if !names_repeat(&trace) {
        for step in &mut trace.steps {
            (0..)
                .zip(&mut step.tensors)
                .for_each(|(place, tensor)| tensor.key = place);
        }
    }
    Some(trace)
}

/// Whether most tensors of the last step occur in the step before.
fn names_repeat(trace: &Trace) -> bool {
    let [.., before, last] = &trace.steps[..] else {
        return true;
    };
    let keys: HashSet<u64> = before.tensors.iter().map(|tensor| tensor.key).collect();
    let known = last
        .tensors
        .iter()
        .filter(|tensor| keys.contains(&tensor.key))
        .count();
    2 * known >= last.tensors.len()
}

/// Batches of `step`, by the cycles that executed them.
fn cycles(
    step: &SteadyStep<'_>,
    negotiate_us: f64,
    classes: &mut Classes,
) -> Option<Vec<TracedCycle>> {
    let mut cycles: Vec<TracedCycle> = Vec::new();
    let mut first: Option<&Batch<'_>> = None;
    for batch in &step.batches {
        let new = first.is_none_or(|first| !same_cycle(first, batch));
        if new {
            first = Some(batch);
            let marked = batch.members.first().and_then(|op| op.cycle);
            let marked = marked.filter(|&at| at >= step.span.began && at <= batch.span.began);
            // A marker gives the start of the cycle; waiting for a late rank is not negotiation.
            let took_us =
                marked.map(|at| (batch.span.began - at.max(batch.all_ready)).max(0) as f64 / 1e3);
            let took_us = took_us.unwrap_or(negotiate_us);
            cycles.push(TracedCycle {
                began_us: since_us(step, batch.span.began) - took_us,
                negotiate_us: took_us,
                ..TracedCycle::default()
            });
        }
        let (cycle, first) = (cycles.last_mut()?, first?);
        let count = batch.members.len() as u32;
        let known = batch.members.iter().filter(|op| op.occurrence > 0).count() as u32;
        cycle.tensors += count;
        cycle.cached += known;
        cycle.moving_us = cycle
            .moving_us
            .max((batch.span.ended - first.began()).max(0) as f64 / 1e3);
        if is_attached(batch) {
            continue;
        }
        let copy_us = copy_us(batch);
        cycle.batches.push(TracedBatch {
            class: classes.of(batch.members.first()?),
            bytes: batch.bytes?,
            tensors: count,
            collective_us: (batch.moving_ns().max(0) as f64 / 1e3 - copy_us).max(0.0),
            copy_us,
        });
    }
    Some(cycles)
}

/// Whether the cycle whose first batch is `first` also executed `batch`. A cycle takes all tensors
/// that are ready, so those that were ready at its start were in it, unless markers differ.
fn same_cycle(first: &Batch<'_>, batch: &Batch<'_>) -> bool {
    let marker = |batch: &Batch<'_>| batch.members.first().and_then(|op| op.cycle);
    match (marker(first), marker(batch)) {
        (Some(a), Some(b)) => a == b,
        _ => batch.all_ready <= first.span.began,
    }
}

/// Whether the data came with the negotiation, so that no activity of the batch moved any.
fn is_attached(batch: &Batch<'_>) -> bool {
    let mut activities = batch
        .members
        .iter()
        .flat_map(|op| &op.activities)
        .peekable();
    activities.peek().is_some() && activities.all(|activity| activity.phase == Phase::CopyOut)
}

/// Time of copies into and out of a fusion buffer, µs; all members have the same bars.
fn copy_us(batch: &Batch<'_>) -> f64 {
    let way = |phase: Phase| {
        let activities = batch.members.iter().flat_map(|op| &op.activities);
        let spans = activities
            .filter(|activity| activity.phase == phase)
            .map(|activity| activity.span);
        let span = spans.reduce(super::op::join);
        span.map_or(0.0, |span| span.ns() as f64 / 1e3)
    };
    way(Phase::CopyIn) + way(Phase::CopyOut)
}

/// Negotiation time of a cycle if there are no markers: from ready on all ranks to the start, for
/// batches that did not wait for others. This includes the wait for the cycle; at the 10th
/// percentile, that is a tenth of the cycle time.
fn negotiate_us(steps: &[SteadyStep<'_>], cycle_us: f64) -> f64 {
    let mut gaps: Vec<f64> = Vec::new();
    for step in steps {
        let mut free = step.span.began;
        for batch in &step.batches {
            if batch.all_ready >= free {
                gaps.push((batch.span.began - batch.all_ready).max(0) as f64 / 1e3);
            }
            free = free.max(batch.span.ended);
        }
    }
    gaps.sort_unstable_by(f64::total_cmp);
    let least = gaps.first().copied().unwrap_or(0.0);
    (quantile(&gaps, 0.1) - 0.1 * cycle_us).max(least)
}

fn since_us(step: &SteadyStep<'_>, at: i64) -> f64 {
    (at - step.span.began).max(0) as f64 / 1e3
}
