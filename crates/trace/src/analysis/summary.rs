//! Summaries of steps, for the report.

use super::collect::Facts;
use super::parts::PHASES;
use super::quantiles::median;
use super::report::{Part, PartKind, Quantiles, Step, Summary};
use crate::{Kind, Phase};

/// Converts nanoseconds to milliseconds.
pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Converts a step for the report.
pub(super) fn step(index: usize, facts: &Facts, partial: bool) -> Step {
    Step {
        index: index as u64,
        began_ms: facts.span.began as f64 / 1e6,
        ms: ms(facts.span.ns()),
        exposed_ms: facts.parts.exposed.map(ms),
        total_ms: facts.parts.total.map(ms),
        tensors: u64::from(facts.tensors),
        batches: u64::from(facts.batches),
        bytes: facts.bytes,
        partial,
    }
}

/// Summarizes `steps`, the complete ones from step `first` on. None without steps.
pub(super) fn summarize(first: usize, steps: &[&Facts], compute_known: bool) -> Option<Summary> {
    if steps.is_empty() {
        return None;
    }
    let of = |value: &dyn Fn(&Facts) -> f64| Quantiles::of(steps.iter().map(|step| value(step)));
    let step_ms = of(&|step| ms(step.span.ns()));
    let parts = PartKind::ALL.map(|kind| {
        let exposed_ms = of(&|step| ms(step.parts.exposed[kind as usize]));
        Part {
            kind,
            exposed_ms,
            total_ms: of(&|step| ms(step.parts.total[kind as usize])),
            share: if step_ms.mean > 0.0 {
                exposed_ms.mean / step_ms.mean
            } else {
                0.0
            },
        }
    });
    let communication_ms = of(&|step| ms(step.parts.communication));
    let exposed = of(&|step| ms(step.parts.communication_exposed));
    let overlap = if communication_ms.p50 > 0.0 {
        (1.0 - exposed.p50 / communication_ms.p50).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let by_kind = Kind::ALL.map(|kind| {
        let exposed_ms = of(&|step| ms(step.parts.exposed_by_kind[kind as usize]));
        (kind, exposed_ms.mean)
    });
    let by_kind = by_kind.into_iter().filter(|&(_, ms)| ms > 0.0);
    let mut exposed_by_kind_ms: Vec<(Kind, f64)> = by_kind.collect();
    exposed_by_kind_ms.sort_by(|a, b| b.1.total_cmp(&a.1));
    let phases_ms = PHASES.iter().enumerate().map(|(index, &phase)| {
        let time = median(
            &mut steps
                .iter()
                .map(|step| ms(step.parts.phases[index]))
                .collect::<Vec<_>>(),
        );
        (phase, time)
    });
    let phases_ms: Vec<(Phase, f64)> = phases_ms.filter(|&(_, ms)| ms > 0.0).collect();
    let measured: Vec<[u64; 4]> = steps.iter().filter_map(|step| step.sums).collect();
    let streamed = [0, 1, 2, 3].map(|part| {
        let mut times: Vec<f64> = measured.iter().map(|sums| ms(sums[part])).collect();
        median(&mut times)
    });
    Some(Summary {
        first_step: first as u64,
        steps: steps.len() as u64,
        step_ms,
        parts: parts.into(),
        communication_ms,
        exposed_by_kind_ms,
        overlap,
        compute_known,
        phases_ms,
        streamed_ms: (!measured.is_empty()).then_some(streamed),
        bytes: median(
            &mut steps
                .iter()
                .map(|step| step.bytes as f64)
                .collect::<Vec<_>>(),
        ) as u64,
    })
}
