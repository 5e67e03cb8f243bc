//! Tensor fusion: batch sizes, and the reason why each batch ended.

use std::collections::HashMap;

use super::collect::RankRecord;
use super::report::{Bin, Cut, CutReason, Fusion, Quantiles};
use super::steady::{Batch, SteadyStep};
use crate::Activity;

/// Settings in force in the steady steps, as far as the file states them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InForce {
    pub(super) threshold_bytes: Option<u64>,
    /// Additional limit of batches on GPUs.
    pub(super) gpu_threshold_bytes: Option<u64>,
    pub(super) cycle_time_ms: Option<f64>,
    /// Whether they changed within these steps.
    pub(super) changed: bool,
}

/// Settings in force between `began` and `ended`.
pub(super) fn in_force(record: &RankRecord, began: i64, ended: i64) -> InForce {
    let settings = &record.marks.settings;
    // Before the first change, those of the header.
    let last = settings.iter().rev().find(|set| set.at <= ended);
    InForce {
        threshold_bytes: last
            .map(|set| set.fusion_threshold_bytes)
            .or(record.source.fusion_threshold_bytes),
        gpu_threshold_bytes: last
            .and_then(|set| set.gpu_fusion_threshold_bytes)
            .or(record.source.gpu_fusion_threshold_bytes),
        cycle_time_ms: last
            .map(|set| set.cycle_time_ns as f64 / 1e6)
            .or(record.source.cycle_time_ms)
            .filter(|ms| ms.is_finite() && *ms >= 0.0),
        changed: settings.iter().any(|set| set.at > began && set.at <= ended),
    }
}

/// Analyses the batches of `steps`. None without batches.
pub(super) fn fusion(
    record: &RankRecord,
    steps: &[SteadyStep<'_>],
    in_force: InForce,
) -> Option<Fusion> {
    if !record.batcher.fuses {
        // Each tensor is a batch of its own: nothing is fused.
        return None;
    }
    let batches = || steps.iter().flat_map(|step| &step.batches);
    let known_bytes = || batches().filter_map(|batch| batch.bytes);
    batches().next()?;
    let largest_fused = batches()
        .filter(|batch| batch.members.len() > 1)
        .filter_map(|batch| batch.bytes)
        .max();
    let of_gpus = in_force.gpu_threshold_bytes;
    let bound = |of_gpus: Option<u64>| {
        [in_force.threshold_bytes, of_gpus]
            .into_iter()
            .flatten()
            .min()
    };
    let on_gpus = batches().filter(|batch| is_on_gpu(record, batch)).count();
    let in_file = bound(of_gpus.filter(|_| 2 * on_gpus > batches().count()));
    let threshold_bytes = in_file.or(largest_fused);
    let mut reasons: HashMap<CutReason, u64> = HashMap::new();
    for step in steps {
        for (index, batch) in step.batches.iter().enumerate() {
            let own = bound(of_gpus.filter(|_| is_on_gpu(record, batch))).or(threshold_bytes);
            let reason = cut_reason(batch, &step.batches[index + 1..], own);
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let all: u64 = reasons.values().sum();
    let mut cuts: Vec<Cut> = reasons
        .into_iter()
        .map(|(reason, batches)| Cut {
            reason,
            batches,
            share: batches as f64 / all.max(1) as f64,
        })
        .collect();
    cuts.sort_by_key(|cut| (std::cmp::Reverse(cut.batches), cut.reason as u8));
    Some(Fusion {
        batches_per_step: Quantiles::of(steps.iter().map(|step| step.batches.len() as f64)),
        tensors_per_batch: Quantiles::of(batches().map(|batch| batch.members.len() as f64)),
        bytes_per_batch: Quantiles::of(known_bytes().map(|bytes| bytes as f64)),
        histogram: histogram(batches()),
        cuts,
        threshold_bytes,
        threshold_from_file: in_file.is_some(),
        host_threshold_bytes: in_force
            .threshold_bytes
            .filter(|of_host| in_file < Some(*of_host)),
        cycle_time_ms: in_force
            .cycle_time_ms
            .or(record.marks.cycle_distance_ns().map(|ns| ns / 1e6)),
    })
}

/// Whether NCCL moved the batch.
fn is_on_gpu(record: &RankRecord, batch: &Batch<'_>) -> bool {
    let name = |activity: &Activity| record.names.get(activity.name.0 as usize);
    let mut names = batch.members[0].activities.iter().filter_map(name);
    names.any(|name| name.starts_with("NCCL_"))
}

/// Reason why `batch` ended; `later` are the following batches of its step.
fn cut_reason(batch: &Batch<'_>, later: &[Batch<'_>], threshold_bytes: Option<u64>) -> CutReason {
    if later.is_empty() {
        return CutReason::EndOfStep;
    }
    // Time of planning: the cycle marker; without one, the start of the batch.
    let planned = batch.members[0]
        .cycle
        .map_or(batch.span.began, |cycle| cycle.max(batch.all_ready));
    let planned = planned.min(batch.span.began);
    let first = &batch.members[0];
    let bytes = batch.bytes.unwrap_or(0);
    let mut another = false;
    // A tensor that was ready is in one of the next batches, so a limited search suffices.
    for next in later.iter().take(64) {
        for (op, ready) in next.members.iter().zip(&next.ready) {
            let ready = ready.all().and_then(|all| all.map(|(_, at)| at).max());
            if ready.unwrap_or(next.all_ready).min(op.span.began) > planned {
                continue;
            }
            if !first.may_share(op) {
                another = true;
            } else if threshold_bytes
                .is_some_and(|most| bytes.saturating_add(op.bytes.unwrap_or(0)) > most)
            {
                return CutReason::Threshold;
            }
        }
    }
    if another {
        CutReason::OtherKind
    } else {
        CutReason::NotReady
    }
}

/// Histogram of batch sizes by powers of two; batches of zero bytes are counted with those of one
/// byte.
fn histogram<'a>(batches: impl Iterator<Item = &'a Batch<'a>>) -> Vec<Bin> {
    let mut bins = [(0u64, 0u64); 64];
    for batch in batches {
        let Some(bytes) = batch.bytes else { continue };
        let bin = &mut bins[bytes.max(1).ilog2() as usize];
        bin.0 += 1;
        bin.1 += batch.members.len() as u64;
    }
    let used = |bin: &(u64, u64)| bin.0 > 0;
    let (Some(first), Some(last)) = (bins.iter().position(used), bins.iter().rposition(used))
    else {
        return Vec::new();
    };
    (first..=last)
        .map(|power| Bin {
            from: 1 << power,
            to: 1u64.checked_shl(power as u32 + 1).unwrap_or(u64::MAX),
            batches: bins[power].0,
            tensors: bins[power].1,
        })
        .collect()
}
