//! From traces to a workload (`step`) and costs (`parts`).

use serde::{Deserialize, Serialize};

use super::linear::{Linear, Prior};
use super::{
    Copying, Costs, JobTopology, Negotiation, Operation, Rules, Setting, Simulator, Trace, Workload,
};

mod parts;
mod step;

use parts::{batches, collective, copying, negotiation, overlaps};
use step::{Length, length, workload};

/// What is believed of a message before one was seen: tens of µs, GB/s; a factor of e² either way.
const COLLECTIVE: Prior = Prior {
    median: [50.0, 2e-4],
    sd: [2.0, 2.0],
};
const NEGOTIATION: Prior = Prior {
    median: [50.0, 0.2],
    sd: [2.0, 1.5],
};
/// Of a hierarchical collective, how far the guess from the flat one may be off, in ln.
pub(super) const GUESS_SD: f64 = 0.7;
/// Large buffers: what is tried for the slow-down of copies, and where it sets in, bytes.
pub(super) const SLOWDOWNS: [f64; 4] = [0.0, 0.5, 1.0, 1.5];
pub(super) const KNEES: [f64; 3] = [6e6, 12e6, 24e6];
/// An uncached negotiation is a message to rank 0 and one back, and work for each tensor.
const UNCACHED_BASE: f64 = 2.0;
const UNCACHED_TENSOR_US: f64 = 3.0;

/// More than this, as a share, makes no prediction less sure: below nothing a step cannot go.
const LEVEL_ERROR_MOST: f64 = 0.4;

/// A job's workload and costs, and how sure they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fit {
    /// What a step consists of.
    pub workload: Workload,
    /// The likeliest costs.
    pub costs: Costs,
    /// How sure they are.
    pub spread: Spread,
    /// How cycles come about.
    pub rules: Rules,
    /// Where the ranks are.
    pub place: JobTopology,
    /// The setting of the first trace, its median step, and what the simulator makes of it, µs.
    pub reference: Setting,
    /// See `reference`.
    pub measured_us: f64,
    /// See `reference`.
    pub modelled_us: f64,
    /// Standard error of `measured_us`, as a share of it.
    #[serde(default = "unsaid_error")]
    pub measured_error: f64,
}

/// What a profile that does not say how precise its step time is leaves open, as a share.
pub(super) fn unsaid_error() -> f64 {
    0.01
}

impl Fit {
    /// One standard deviation, as a share, by which all predictions may be off together: how precisely the recorded step is known,
    /// or by how much the model misses it where that is more. At most 0.4.
    pub fn level_error(&self) -> f64 {
        let misfit = (self.modelled_us / self.measured_us - 1.0).abs();
        // Of a number and none, the larger is the number.
        self.measured_error.max(misfit).min(LEVEL_ERROR_MOST)
    }
}

/// Costs with their covariance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// By class of tensors: α and β of a flat collective.
    pub flat: Vec<Linear>,
    /// Likewise of a hierarchical one, where one was seen.
    pub hierarchical: Vec<Option<Linear>>,
    /// What each class goes through; allreduces, where it does not say.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// Base and per tensor, through the cache.
    pub cached: Linear,
    /// Likewise through rank 0; none was seen if `None`.
    pub uncached: Option<Linear>,
    /// Per tensor and per byte, one for each shape that was tried; empty if no copy was seen.
    pub copying: Vec<(Copying, Linear)>,
    /// Whether copies overlap collectives, where that could be told.
    pub overlaps: Option<bool>,
}

/// Fits `traces`, the first of which is of the reference setting. None without a step or a tensor in it.
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
        spread
            .flat
            .push(collective(traces, class, false, &COLLECTIVE).unwrap_or_else(|| Linear::of(&COLLECTIVE)));
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
        spread.hierarchical.push(collective(traces, class, true, &prior));
    }
    spread.cached = negotiation(traces, true, &NEGOTIATION).unwrap_or_else(|| Linear::of(&NEGOTIATION));
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
        .map(|(seen, &flat)| seen.as_ref().map_or_else(|| place.hierarchical(flat, false), of))
        .collect();
    let cached = negotiation(&spread.cached);
    let uncached = spread
        .uncached
        .as_ref()
        .map_or_else(|| uncached_guess(cached), negotiation);
    let best = spread.copying.iter().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss));
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

/// What an uncached negotiation costs where none was seen.
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

/// The median, the upper of two.
fn middle(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
