//! What the parts of a step cost, fitted to every cycle and batch of the traces.

use super::super::linear::{self, Linear, Prior};
use super::super::{Copying, Trace};
use super::{KNEES, SLOWDOWNS, middle};

/// What is believed of a copy before one was seen: a µs for a tensor, 10 GB/s; a factor of e^1.5 either way.
const COPYING: Prior = Prior {
    median: [1.0, 1e-4],
    sd: [1.5, 1.5],
};
/// Copies overlap collectives if cycles are shorter than their parts by this much in the median.
const OVERLAP: f64 = 0.95;

/// Every batch and whether it was hierarchical: hierarchical, class, bytes, tensors, collective, copies.
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

/// What messages of `class` take; none if none was seen.
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

/// What cycles take to negotiate, all tensors through the cache or none; none if none such was seen.
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

/// What copies take, for each shape that is tried. Both ways together are what was seen.
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
        let seen = copied()
            .map(|(_, _, bytes, tensors, _, us)| ([2.0 * tensors, 2.0 * of_bytes.way_us(0, bytes)], us));
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

/// Whether cycles of several copied batches are shorter than their parts.
pub(super) fn overlaps(traces: &[Trace]) -> Option<bool> {
    let cycles = traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| &step.cycles);
    let several =
        cycles.filter(|cycle| cycle.batches.iter().filter(|batch| batch.copy_us > 0.0).count() >= 2);
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
