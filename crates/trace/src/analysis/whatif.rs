//! Prediction of step times under other settings: simulates the recorded steps with
//! [`ronde_job::replay`].
//!
//! Tensors are ready on all ranks at the recorded times, relative to the start of the step. A cycle
//! begins no sooner than the cycle time allows, takes the tensors that are ready, and executes its
//! batches one after another. A batch costs α + β · bytes, fitted to the recorded batches, copies
//! included. A prediction is used only if the model reproduces the recorded steps under the
//! recorded settings, and only for differences.

use super::bandwidth::fit;
use super::quantiles::median;
use super::report::{Fusion, Quantiles};
use super::steady::SteadyStep;
use super::traced::{Classes, starts_early, tail_us, tensors};
use crate::Format;
use ronde_job::gate;
use ronde_job::replay::{
    Collective, Costs, Negotiation, Rules, Setting, Simulator, WorkTensor, Workload,
};

/// Maximum number of operations simulated for each combination of settings.
const OPS_MOST: usize = 1 << 17;
/// Maximum number of steps simulated.
const STEPS_MOST: usize = 24;

/// Settings of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) threshold_bytes: u64,
    pub(super) cycle_ns: f64,
    /// Whether a cycle begins at once when all tensors of the step are ready.
    pub(super) early: bool,
    /// Bytes on the wire divided by bytes of the tensors.
    pub(super) bytes: f64,
}

/// A recording that can be simulated.
#[derive(Debug)]
pub(super) struct WhatIf {
    /// Each recorded step: a step made of medians would have less jitter than any of them.
    steps: Vec<Workload>,
    costs: Costs,
    /// Whether cycles continue while there is nothing to do, as Horovod's do.
    ticks_on: bool,
    /// Whether batches of different sizes were recorded, so that the cost per message can be
    /// estimated.
    pub(super) costs_known: bool,
    pub(super) current: Settings,
    /// Length of a step, recorded and modelled, nanoseconds.
    pub(super) measured_ns: f64,
    pub(super) modelled_ns: f64,
}

/// Result of a prediction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Predicted {
    /// Mean length of a step, nanoseconds.
    pub(super) step_ns: f64,
    /// Mean number of batches per step.
    pub(super) batches: f64,
}

impl WhatIf {
    /// Makes the model from `steps`, in which `current` was in force; `negotiate_ns` is the
    /// negotiation time of a cycle. None if sizes are unknown. Predictions are valid only if the
    /// model [reproduces](Self::reproduces) the steps.
    pub(super) fn new(
        steps: &[SteadyStep<'_>],
        current: Settings,
        negotiate_ns: f64,
        ticks_on: bool,
    ) -> Option<Self> {
        let ops = steps
            .first()?
            .batches
            .iter()
            .map(|batch| batch.members.len())
            .sum::<usize>();
        let few = (OPS_MOST / ops.max(1)).clamp(1, STEPS_MOST);
        let every = steps.len().div_ceil(few);
        let mut classes = Classes::default();
        let mut model = Vec::new();
        let mut points: Vec<Vec<(u64, f64)>> = Vec::new();
        for step in steps.iter().step_by(every) {
            model.push(workload(step, &[], &mut classes)?);
            for batch in &step.batches {
                let class = classes.of(batch.members.first()?) as usize;
                points.resize(points.len().max(class + 1), Vec::new());
                points[class].push((batch.bytes?, batch.moving_ns().max(0) as f64 / 1e3));
            }
        }
        // The operation that moves most bytes determines the cost.
        let bytes = |points: &&Vec<(u64, f64)>| {
            points
                .iter()
                .map(|&(bytes, _)| u128::from(bytes))
                .sum::<u128>()
        };
        let costs_known = points
            .iter()
            .max_by_key(bytes)
            .is_some_and(|points| sizes_differ(points));
        let negotiation = Negotiation {
            base_us: negotiate_ns / 1e3,
            per_tensor_us: 0.0,
        };
        let costs = Costs {
            cached: negotiation,
            uncached: negotiation,
            flat: points.iter().map(|points| cost(points)).collect(),
            ..Costs::default()
        };
        let mut lengths: Vec<f64> = (steps.iter().step_by(every))
            .map(|step| step.span.ns() as f64)
            .collect();
        let measured_ns = median(&mut lengths);
        let mut whatif = Self {
            steps: model,
            costs,
            ticks_on,
            costs_known,
            current,
            measured_ns,
            modelled_ns: 0.0,
        };
        whatif.modelled_ns = whatif.predict(current).step_ns;
        Some(whatif)
    }

    /// Whether the model reproduces the recorded steps.
    pub(super) fn reproduces(&self) -> bool {
        gate::reproduces(self.measured_ns, self.modelled_ns)
    }

    /// Length of a step under the recorded settings if no rank had waited for `ranks`; `steps`
    /// are those that the model was made from.
    pub(super) fn without(&self, steps: &[SteadyStep<'_>], ranks: &[u32]) -> f64 {
        let mut classes = Classes::default();
        let every = steps.len().div_ceil(self.steps.len().max(1)).max(1);
        let chosen = steps.iter().step_by(every);
        let faster = chosen.filter_map(|step| workload(step, ranks, &mut classes));
        self.run(&faster.collect::<Vec<_>>(), self.current).step_ns
    }

    /// Predicted gain of `settings`, nanoseconds a step.
    pub(super) fn gain_ns(&self, settings: Settings) -> f64 {
        self.modelled_ns - self.predict(settings).step_ns
    }

    /// Simulates the steps under `settings`.
    pub(super) fn predict(&self, settings: Settings) -> Predicted {
        self.run(&self.steps, settings)
    }

    fn run(&self, steps: &[Workload], settings: Settings) -> Predicted {
        let rules = Rules {
            early: settings.early,
            ..if self.ticks_on {
                Rules::HOROVOD
            } else {
                Rules::RONDE
            }
        };
        let setting = Setting {
            fusion_threshold_bytes: settings.threshold_bytes,
            cycle_us: settings.cycle_ns / 1e3,
            hierarchical: false,
            hierarchical_allgather: false,
            cache: true,
        };
        let mut costs = self.costs.clone();
        costs
            .flat
            .iter_mut()
            .for_each(|cost| cost.us_per_byte *= settings.bytes);
        let mut sum = Predicted::default();
        for step in steps {
            let mut simulator = Simulator::new(step, rules);
            sum.step_ns += simulator.step_us(&costs, &setting) * 1e3;
            sum.batches += simulator.batches_per_step();
        }
        let steps = steps.len().max(1) as f64;
        Predicted {
            step_ns: sum.step_ns / steps,
            batches: sum.batches / steps,
        }
    }
}

/// Makes a model of the recording, if possible; `negotiate` is in milliseconds.
pub(super) fn model(
    steps: &[SteadyStep<'_>],
    fusion: &Fusion,
    format: Format,
    negotiate: Quantiles,
) -> Option<WhatIf> {
    let cycle_ms = fusion.cycle_time_ms;
    // The measured time includes the wait for the cycle; at the 10th percentile, that is a tenth of
    // the cycle time.
    let negotiate_ms = match cycle_ms {
        Some(cycle) => (negotiate.p10 - 0.1 * cycle).max(negotiate.min),
        None => negotiate.p50,
    };
    let current = Settings {
        threshold_bytes: fusion.threshold_bytes.unwrap_or(0),
        cycle_ns: cycle_ms.unwrap_or(0.0) * 1e6,
        early: format == Format::Ronde && starts_early(steps, cycle_ms.unwrap_or(0.0) * 1e6),
        bytes: 1.0,
    };
    WhatIf::new(
        steps,
        current,
        negotiate_ms * 1e6,
        format == Format::Horovod,
    )
}

/// Workload of `step` as recorded, with the ranks `without` ready no later than the others.
fn workload(step: &SteadyStep<'_>, without: &[u32], classes: &mut Classes) -> Option<Workload> {
    let mut work: Vec<WorkTensor> = tensors(step, without, classes)?
        .into_iter()
        .map(|(_, work)| work)
        .collect();
    work.sort_by(|a, b| a.ready_us.total_cmp(&b.ready_us));
    Some(Workload {
        tensors: work,
        tail_us: tail_us(step),
    })
}

/// Whether the sizes suffice for a line: one is at least twice as large as another.
fn sizes_differ(points: &[(u64, f64)]) -> bool {
    let sizes = || points.iter().map(|&(bytes, _)| bytes);
    sizes().max().unwrap_or(0) >= sizes().min().unwrap_or(0).saturating_mul(2).max(1)
}

fn cost(points: &[(u64, f64)]) -> Collective {
    if let Some(fit) = fit(points).filter(|_| sizes_differ(points)) {
        return Collective {
            alpha_us: fit.alpha_us,
            us_per_byte: fit.us_per_mib / f64::from(1 << 20),
        };
    }
    // Nearly one size: the cost per message cannot be estimated, so no gain is predicted for fewer
    // messages.
    let us = median(&mut points.iter().map(|&(_, us)| us).collect::<Vec<_>>());
    match points.first() {
        Some(&(bytes, _)) if bytes > 0 => Collective {
            alpha_us: 0.0,
            us_per_byte: us / bytes as f64,
        },
        _ => Collective {
            alpha_us: us,
            us_per_byte: 0.0,
        },
    }
}
