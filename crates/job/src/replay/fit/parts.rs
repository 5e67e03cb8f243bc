//! Fits the costs of the parts of a step to all cycles and batches of the traces.

use super::super::linear::{self, Linear, Prior};
use super::super::{Copying, Trace};
use super::{KNEES, SLOWDOWNS, middle};

/// Prior of a copy: 1 µs per tensor and 10 GB/s, each within a factor of e^1.5.
const COPYING: Prior = Prior {
    median: [1.0, 1e-4],
    sd: [1.5, 1.5],
};
/// Copies overlap collectives if the median ratio of the duration of cycles to the sum of their
/// parts is below this.
const OVERLAP: f64 = 0.95;

/// Iterates over all batches: whether hierarchical, class, bytes, tensors, collective time, copy
/// time.
pub(super) fn batches(trace: &Trace) -> impl Iterator<Item = (bool, u32, f64, f64, f64, f64)> {
    let batches = trace
        .steps
        .iter()
        .flat_map(|step| &step.cycles)
        .flat_map(|cycle| &cycle.batches);
    batches.map(move |b| {
        let operation = trace.operations.get(b.class as usize).copied();
        (
            trace.setting.is_hierarchical(operation.unwrap_or_default()),
            b.class,
            b.bytes as f64,
            f64::from(b.tensors),
            b.collective_us,
            b.copy_us,
        )
    })
}

/// Fits the cost of messages of `class`; `None` if the traces have none.
pub(super) fn collective(
    traces: &[Trace],
    class: usize,
    hierarchical: bool,
    prior: &Prior,
) -> Option<Linear> {
    let of_class = traces
        .iter()
        .flat_map(batches)
        .filter(|b| (b.0, b.1 as usize) == (hierarchical, class));
    let points = linear::gather(
        of_class
            .map(|(_, _, bytes, _, us, _)| ([1.0, bytes], us))
            .collect(),
    );
    (!points.is_empty()).then(|| linear::fit(&points, prior))
}

/// Fits the cost of negotiation in cycles with all tensors cached, or none of them; `None` if the
/// traces have no such cycle.
pub(super) fn negotiation(traces: &[Trace], cached: bool, prior: &Prior) -> Option<Linear> {
    let cycles = traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| &step.cycles);
    let of_kind = cycles.filter(|cycle| {
        if cached {
            cycle.cached == cycle.tensors
        } else {
            cycle.cached == 0
        }
    });
    let seen = of_kind.map(|cycle| ([1.0, f64::from(cycle.tensors)], cycle.negotiate_us));
    let points = linear::gather(seen.collect());
    (!points.is_empty()).then(|| linear::fit(&points, prior))
}

/// Fits the cost of copies for each candidate shape. The traces have the sum of both directions.
pub(super) fn copying(traces: &[Trace]) -> Vec<(Copying, Linear)> {
    let copied = || traces.iter().flat_map(batches).filter(|b| b.5 > 0.0);
    if copied().next().is_none() {
        return Vec::new();
    }
    let flat = Copying {
        knee_bytes: KNEES[0],
        ..Copying::default()
    };
    let bent = SLOWDOWNS[1..].iter().flat_map(|&slowdown| {
        KNEES.map(|knee_bytes| Copying {
            slowdown,
            knee_bytes,
            ..flat
        })
    });
    let shapes = std::iter::once(flat).chain(bent);
    let fits = shapes.map(|shape| {
        let of_bytes = Copying {
            us_per_byte: 1.0,
            ..shape
        };
        let seen = copied().map(|(_, _, bytes, tensors, _, us)| {
            ([2.0 * tensors, 2.0 * of_bytes.way_us(0, bytes)], us)
        });
        let fitted = linear::fit(&linear::gather(seen.collect()), &COPYING);
        let [per_tensor_us, us_per_byte] = fitted.parts();
        (
            Copying {
                per_tensor_us,
                us_per_byte,
                ..shape
            },
            fitted,
        )
    });
    fits.collect()
}

/// Whether cycles with several copied batches are shorter than the sum of their parts.
pub(super) fn overlaps(traces: &[Trace]) -> Option<bool> {
    let cycles = traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| &step.cycles);
    let several = cycles.filter(|cycle| {
        cycle
            .batches
            .iter()
            .filter(|batch| batch.copy_us > 0.0)
            .count()
            >= 2
    });
    let mut shares: Vec<f64> = several
        .map(|cycle| {
            let parts: f64 = cycle
                .batches
                .iter()
                .map(|batch| batch.collective_us + batch.copy_us)
                .sum();
            cycle.moving_us / parts
        })
        .collect();
    middle(&mut shares).map(|share| share < OVERLAP)
}
