//! Advice on a profiler's trace: idle time of the GPU, and bucket size of
//! `DistributedDataParallel`.

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
    [idle(steady), buckets(report, steady)]
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

fn buckets(report: &Report, steady: &Summary) -> Option<String> {
    let exposed = steady.exposed_ms();
    let share = exposed / steady.step_ms.mean.max(f64::MIN_POSITIVE);
    let sizes = || {
        let allreduces = report
            .tensors
            .iter()
            .filter(|tensor| tensor.kind == Kind::Allreduce);
        allreduces.filter_map(|tensor| {
            let size = crate::vocabulary::dtype_bytes(tensor.dtype.as_deref()?)?;
            tensor.elements?.checked_mul(size)
        })
    };
    let (count, largest) = (sizes().count(), sizes().max()?);
    (share > HIDDEN).then(|| {
        format!(
            "On average {} of a step ({}) is exposed communication, in {count} allreduce{} of up to {}. With \
             DistributedDataParallel, bucket_cap_mb sets their size: smaller buckets start earlier, larger ones are fewer. This \
             trace does not tell which is faster; measure the step with several values.",
            ms(exposed),
            percent(share),
            if count == 1 { "" } else { "s" },
            bytes(largest),
        )
    })
}
