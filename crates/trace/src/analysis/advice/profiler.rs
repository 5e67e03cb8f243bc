//! Advice on a profiler's trace: idle time of the GPU, kinds of exposed operations, and bucket size
//! of `DistributedDataParallel`.

use super::HIDDEN;
use crate::analysis::report::{Advice, PartKind, Report, Summary};
use crate::{Format, Kind};
use ronde_job::units::{bytes, ms, percent};

/// Idle time of the GPU is reported from this share of the step.
const IDLE: f64 = 0.1;

/// Advice for a trace of PyTorch's profiler; empty for other formats. No gain is given, because it
/// cannot be estimated from a trace.
pub(super) fn advice(report: &Report, steady: &Summary) -> Vec<Advice> {
    if report.sources.first().map(|source| source.format) != Some(Format::Kineto) {
        return Vec::new();
    }
    let sentence = |sentence| Advice {
        sentence,
        variable: None,
        value: None,
        gain_ms: None,
    };
    [idle(steady), exposed(report, steady)]
        .into_iter()
        .flatten()
        .map(sentence)
        .collect()
}

fn idle(steady: &Summary) -> Option<String> {
    let part = steady
        .parts
        .iter()
        .find(|part| part.kind == PartKind::GpuIdle)?;
    (part.share >= IDLE).then(|| {
        format!(
            "The GPU is idle for {} of a step ({}): no kernel and no copy runs. Look at the input pipeline and at the host's \
             launches first; faster communication cannot recover that time.",
            ms(part.exposed_ms.mean),
            percent(part.share),
        )
    })
}

/// Exposed communication by kind. Buckets concern the allreduces only.
fn exposed(report: &Report, steady: &Summary) -> Option<String> {
    let share = |ms: f64| ms / steady.step_ms.mean.max(f64::MIN_POSITIVE);
    let exposed = steady.exposed_ms();
    let &(largest, largest_ms) = steady.exposed_by_kind_ms.first()?;
    (share(exposed) > HIDDEN).then(|| {
        let sentence = format!(
            "On average {} of a step ({}) is exposed communication; the largest part of it, {}, is in {} operations.",
            ms(exposed),
            percent(share(exposed)),
            ms(largest_ms),
            largest.name().to_ascii_lowercase().replace('_', "-"),
        );
        let allreduces = steady.exposed_by_kind_ms.iter();
        let allreduces = allreduces.filter(|&&(kind, ms)| kind == Kind::Allreduce && share(ms) > HIDDEN);
        let buckets = allreduces.filter_map(|&(_, ms)| buckets(report, ms)).next();
        [sentence].into_iter().chain(buckets).collect::<Vec<_>>().join(" ")
    })
}

/// Advice on the sizes of the allreduces, of which `exposed_ms` of a step are exposed.
fn buckets(report: &Report, exposed_ms: f64) -> Option<String> {
    let allreduces = report.tensors.iter();
    let allreduces = allreduces.filter(|tensor| tensor.kind == Kind::Allreduce);
    let sizes: Vec<u64> = allreduces.filter_map(|tensor| tensor.bytes_max).collect();
    Some(format!(
        "The exposed allreduces ({}) are {} a step of up to {}. With DistributedDataParallel, bucket_cap_mb sets their size: \
         smaller buckets start earlier, larger ones are fewer. This trace does not tell which is faster; measure the step with \
         several values.",
        ms(exposed_ms),
        sizes.len(),
        bytes(*sizes.iter().max()?),
    ))
}
