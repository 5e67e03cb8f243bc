//! Step of a trace: its tensors, its duration, and the standard error of the duration.

use std::collections::HashMap;

use super::super::{Trace, WorkTensor, Workload};
use super::middle;
use crate::fusion::Item;

/// Ratio of the standard deviation of a normal distribution to its median absolute deviation.
const OF_DEVIATION: f64 = 1.4826;
/// Ratio of the standard error of a normal sample's median to the standard error of its mean:
/// √(π/2).
const OF_MEDIAN: f64 = 1.2533;
/// Minimum number of steps for an estimate of the noise; with fewer steps this share is assumed.
/// Real jobs have 2 to 5 %.
const STEPS_THAT_SHOW: usize = 5;
const NOISE: f64 = 0.05;
/// Minimum standard error, as a share: the step time of the same job differs between runs, even
/// after a long recording.
pub(super) const ERROR_LEAST: f64 = 0.002;

/// Duration of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Length {
    /// Median, µs.
    pub(super) us: f64,
    /// Standard error, as a share of the median.
    pub(super) error: f64,
}

/// Returns the duration of the steps of `trace`; `None` without steps.
pub(super) fn length(trace: &Trace) -> Option<Length> {
    let mut lengths: Vec<f64> = trace.steps.iter().map(|step| step.step_us).collect();
    let us = middle(&mut lengths)?;
    let mut deviations: Vec<f64> = lengths.iter().map(|length| (length - us).abs()).collect();
    let noise = if lengths.len() < STEPS_THAT_SHOW {
        NOISE
    } else {
        OF_DEVIATION * middle(&mut deviations)? / us
    };
    let error = OF_MEDIAN * noise / (lengths.len() as f64).sqrt();
    Some(Length {
        us,
        error: error.max(ERROR_LEAST), // also covers a step of duration 0
    })
}

/// Returns the median ready times of the tensors in a step of the trace, and the median time after
/// the last result.
pub(super) fn workload(trace: &Trace) -> Option<Workload> {
    #[derive(Default)]
    struct Seen {
        pending: Vec<f64>,
        ready: Vec<f64>,
    }
    let mut seen: HashMap<u64, (Item, Seen)> = HashMap::new();
    let mut tails = Vec::new();
    for step in &trace.steps {
        for tensor in &step.tensors {
            let (_, times) = seen
                .entry(tensor.key)
                .or_insert_with(|| (tensor.item, Seen::default()));
            times.pending.push(tensor.pending_us.min(tensor.ready_us));
            times.ready.push(tensor.ready_us);
        }
        let last_ready = step
            .tensors
            .iter()
            .map(|tensor| tensor.ready_us)
            .fold(0.0, f64::max);
        let ended = step
            .cycles
            .iter()
            .map(|cycle| cycle.began_us + cycle.negotiate_us + cycle.moving_us);
        tails.push((step.step_us - ended.fold(last_ready, f64::max)).max(0.0));
    }
    // Tensors that occur in less than half of the steps are left out.
    let often = trace.steps.len().div_ceil(2);
    let mut tensors: Vec<(u64, WorkTensor)> = Vec::with_capacity(seen.len());
    for (key, (item, mut times)) in seen {
        if times.ready.len() >= often {
            let (pending_us, ready_us) = (middle(&mut times.pending)?, middle(&mut times.ready)?);
            let finite = pending_us.is_finite() && ready_us.is_finite();
            let tensor = WorkTensor {
                item,
                pending_us: pending_us.max(0.0),
                ready_us: ready_us.max(0.0),
            };
            finite.then(|| tensors.push((key, tensor)))?;
        }
    }
    tensors.sort_by(|a, b| a.1.ready_us.total_cmp(&b.1.ready_us).then(a.0.cmp(&b.0)));
    let tensors: Vec<WorkTensor> = tensors.into_iter().map(|(_, tensor)| tensor).collect();
    (!tensors.is_empty()).then_some(Workload {
        tensors,
        tail_us: middle(&mut tails)?,
    })
}
