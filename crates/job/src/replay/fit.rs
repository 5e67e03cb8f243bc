//! Fits a workload (`step`) and costs (`parts`) to traces.

use serde::{Deserialize, Serialize};

use super::linear::{Linear, Prior};
use super::{
    Copying, Costs, JobTopology, Messages, Negotiation, Operation, Rules, Setting, Simulator,
    Trace, Workload,
};

mod parts;
mod step;

use parts::{batches, collective, copying, negotiation, overlaps};
use step::{Length, length, workload};

/// Prior of a message: tens of µs and GB/s, each within a factor of e².
const COLLECTIVE: Prior = Prior {
    median: [50.0, 2e-4],
    sd: [2.0, 2.0],
};
const NEGOTIATION: Prior = Prior {
    median: [50.0, 0.2],
    sd: [2.0, 1.5],
};
/// Uncertainty, in ln, of the cost of a hierarchical collective that is estimated from the flat
/// one.
pub(super) const GUESS_SD: f64 = 0.7;
/// Large buffers: candidate values of the slow-down of copies, and of the size at which it begins,
/// bytes.
pub(super) const SLOWDOWNS: [f64; 4] = [0.0, 0.5, 1.0, 1.5];
pub(super) const KNEES: [f64; 3] = [6e6, 12e6, 24e6];
/// An uncached negotiation takes a message to rank 0, one back, and work for each tensor.
const UNCACHED_BASE: f64 = 2.0;
const UNCACHED_TENSOR_US: f64 = 3.0;

/// Maximum uncertainty of predictions, as a share: with a larger one the interval would reach 0.
const LEVEL_ERROR_MOST: f64 = 0.4;

/// Workload and costs of a job, with their uncertainty.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fit {
    /// Workload of a step.
    pub workload: Workload,
    /// Most likely costs.
    pub costs: Costs,
    /// Uncertainty of the costs.
    pub spread: Spread,
    /// Rules by which cycles start.
    pub rules: Rules,
    /// Topology of the job.
    pub place: JobTopology,
    /// Setting of the first trace.
    pub reference: Setting,
    /// Median step time of the first trace, µs.
    pub measured_us: f64,
    /// Step time of the simulator under the same setting, µs.
    pub modelled_us: f64,
    /// Standard error of `measured_us`, as a share of it.
    #[serde(default = "unsaid_error")]
    pub measured_error: f64,
    /// Messages of the recorded steps; `None` if the costs are not from recorded steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Messages>,
}

/// Standard error, as a share, of a step time in a profile that does not state it.
pub(super) fn unsaid_error() -> f64 {
    0.01
}

impl Fit {
    /// Standard deviation, as a share, of an error common to all predictions: the standard error of
    /// the recorded step time, or the model's error if that is larger. At most 0.4.
    pub fn level_error(&self) -> f64 {
        let misfit = (self.modelled_us / self.measured_us - 1.0).abs();
        // `max` ignores NaN.
        self.measured_error.max(misfit).min(LEVEL_ERROR_MOST)
    }
}

/// Costs with their covariance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// α and β of flat collectives, by class of tensors.
    pub flat: Vec<Linear>,
    /// α and β of hierarchical collectives, by class; `None` if the traces have none.
    pub hierarchical: Vec<Option<Linear>>,
    /// Operation of each class; classes without an entry are allreduces.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// Base and per-tensor cost of negotiation through the cache.
    pub cached: Linear,
    /// Base and per-tensor cost of negotiation through rank 0; `None` if the traces have none.
    pub uncached: Option<Linear>,
    /// Cost of copies per tensor and per byte, for each candidate shape; empty if the traces have
    /// no copy.
    pub copying: Vec<(Copying, Linear)>,
    /// Whether copies overlap collectives, if known.
    pub overlaps: Option<bool>,
}

/// Fits `traces`, the first of which has the reference setting. `None` without a step or a tensor
/// in it.
pub fn fit(traces: &[Trace], rules: Rules, place: JobTopology) -> Option<Fit> {
    let reference = traces.first()?;
    let workload = workload(reference)?;
    let Length { us, error } = length(reference)?;
    let classes = traces
        .iter()
        .flat_map(batches)
        .map(|(_, class, ..)| class as usize + 1)
        .max()
        .unwrap_or(1);

    let mut spread = Spread::default();
    let operations = traces.iter().map(|trace| &trace.operations);
    spread.operations = operations
        .max_by_key(|known| known.len())
        .cloned()
        .unwrap_or_default();
    for class in 0..classes {
        spread.flat.push(
            collective(traces, class, false, &COLLECTIVE)
                .unwrap_or_else(|| Linear::of(&COLLECTIVE)),
        );
    }
    for class in 0..classes {
        let [alpha_us, us_per_byte] = spread.flat[class].parts();
        let guess = place.hierarchical(
            super::Collective {
                alpha_us,
                us_per_byte,
            },
            false,
        );
        let prior = Prior {
            median: [guess.alpha_us, guess.us_per_byte],
            sd: [GUESS_SD; 2],
        };
        spread
            .hierarchical
            .push(collective(traces, class, true, &prior));
    }
    spread.cached =
        negotiation(traces, true, &NEGOTIATION).unwrap_or_else(|| Linear::of(&NEGOTIATION));
    spread.uncached = negotiation(traces, false, &uncached_prior(&spread.cached));
    spread.copying = copying(traces);
    spread.overlaps = overlaps(traces);

    let costs = likeliest(&spread, &place);
    let modelled_us = Simulator::new(&workload, rules).step_us(&costs, &reference.setting);
    Some(Fit {
        workload,
        costs,
        spread,
        rules,
        place,
        reference: reference.setting,
        measured_us: us,
        modelled_us,
        measured_error: error,
        recorded: Messages::recorded(traces),
    })
}

pub(super) fn likeliest(spread: &Spread, place: &JobTopology) -> Costs {
    let of = |linear: &Linear| {
        let [alpha_us, us_per_byte] = linear.parts();
        super::Collective {
            alpha_us,
            us_per_byte,
        }
    };
    let negotiation = |linear: &Linear| {
        let [base_us, per_tensor_us] = linear.parts();
        Negotiation {
            base_us,
            per_tensor_us,
        }
    };
    let flat: Vec<_> = spread.flat.iter().map(of).collect();
    let seen = spread.hierarchical.iter().zip(&flat);
    let hierarchical = seen
        .map(|(seen, &flat)| {
            seen.as_ref()
                .map_or_else(|| place.hierarchical(flat, false), of)
        })
        .collect();
    let cached = negotiation(&spread.cached);
    let uncached = spread
        .uncached
        .as_ref()
        .map_or_else(|| uncached_guess(cached), negotiation);
    let best = spread
        .copying
        .iter()
        .min_by(|a, b| a.1.loss.total_cmp(&b.1.loss));
    let copying = best.map_or_else(Copying::default, |&(shape, _)| Copying {
        overlaps: spread.overlaps.unwrap_or(false),
        ..shape
    });
    Costs {
        cached,
        uncached,
        flat,
        hierarchical,
        operations: spread.operations.clone(),
        copying,
        polling: 0.0,
        contention: 0.0,
    }
}

/// Estimates the cost of an uncached negotiation if the traces have none.
pub(super) fn uncached_guess(cached: Negotiation) -> Negotiation {
    Negotiation {
        base_us: UNCACHED_BASE * cached.base_us,
        per_tensor_us: UNCACHED_TENSOR_US,
    }
}

fn uncached_prior(cached: &Linear) -> Prior {
    Prior {
        median: [UNCACHED_BASE * cached.parts()[0], UNCACHED_TENSOR_US],
        sd: [GUESS_SD; 2],
    }
}

/// Median; of an even number of values, the upper of the two middle ones.
fn middle(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
