//! What a step would take with other settings: the recorded steps, run again through the runtime's own planner.
//!
//! Tensors are ready on all ranks when they were, relative to the step's beginning; a cycle begins no sooner than the
//! cycle time allows, takes what is ready, and runs its batches one after another; a batch costs α + β · bytes, fitted
//! to the batches of the recording, copies included. A prediction is used only if the same model, with the settings as
//! they were, comes near the steps as they were, and only for differences.

use std::collections::HashMap;

use super::bandwidth::fit;
use super::quantiles::median;
use super::report::{Fusion, Quantiles};
use super::steady::SteadyStep;
use crate::fusion::{Item, Plan};
use crate::tensor::Dtype;
use crate::trace::{Format, Kind};

/// Operations that are run through each set of settings.
const OPS_MOST: usize = 1 << 17;
/// Steps that are, if there are so many.
const STEPS_MOST: usize = 24;
/// A model that misses the recorded steps by more than this is not believed.
const ERROR_MOST: f64 = 0.15;

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) threshold_bytes: u64,
    pub(super) cycle_ns: f64,
    /// A cycle begins at once when all of the step is ready.
    pub(super) early: bool,
    /// Bytes on the wire over bytes of the tensors.
    pub(super) bytes: f64,
}

/// A recording that can be run again.
#[derive(Debug)]
pub(super) struct WhatIf {
    steps: Vec<ModelStep>,
    /// By class.
    costs: Vec<Cost>,
    /// A cycle's own cost, nanoseconds.
    negotiate_ns: f64,
    /// Cycles tick while nothing is to do, as Horovod's do.
    ticks_on: bool,
    /// Whether batches of different sizes were recorded, so that what a message costs by itself can be told.
    pub(super) costs_known: bool,
    pub(super) current: Settings,
    /// What a step took, nanoseconds, and what the model says it took.
    pub(super) measured_ns: f64,
    pub(super) modelled_ns: f64,
}

/// What a prediction says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Predicted {
    /// Mean step, nanoseconds.
    pub(super) step_ns: f64,
    /// Mean batches a step.
    pub(super) batches: f64,
}

#[derive(Debug)]
struct ModelStep {
    /// In order of readiness.
    ops: Vec<ModelOp>,
    /// From the last result to the step's end.
    tail_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct ModelOp {
    /// When this one, or one after it in the step, was first ready on any rank: nanoseconds since the step's beginning.
    pending_ns: f64,
    /// When it was ready on all ranks: likewise.
    ready_ns: f64,
    item: Item,
}

/// α in nanoseconds, β in nanoseconds a byte.
#[derive(Clone, Copy, Debug)]
struct Cost {
    alpha_ns: f64,
    ns_per_byte: f64,
}

impl WhatIf {
    /// From `steps`, in which `current` was in force; `negotiate_ns` is what a cycle costs by itself. None if sizes are
    /// unknown, or the model does not come near the steps.
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
        let mut classes = HashMap::new();
        let mut points: Vec<Vec<(u64, f64)>> = Vec::new();
        let mut model = Vec::new();
        for step in steps.iter().step_by(every) {
            model.push(model_step(step, None, &mut classes, &mut points)?);
        }
        // The class that moves most is the one that counts.
        let bytes =
            |points: &&Vec<(u64, f64)>| points.iter().map(|&(bytes, _)| u128::from(bytes)).sum::<u128>();
        let costs_known = points
            .iter()
            .max_by_key(bytes)
            .is_some_and(|points| sizes_differ(points));
        let costs = points.iter().map(|points| cost(points)).collect();
        let mut lengths: Vec<f64> = (steps.iter().step_by(every))
            .map(|step| step.span.ns() as f64)
            .collect();
        let measured_ns = median(&mut lengths);
        let mut whatif = Self {
            steps: model,
            costs,
            negotiate_ns,
            ticks_on,
            costs_known,
            current,
            measured_ns,
            modelled_ns: 0.0,
        };
        whatif.modelled_ns = whatif.predict(current).step_ns;
        let error = (whatif.modelled_ns / measured_ns - 1.0).abs();
        (error.is_finite() && error <= ERROR_MOST).then_some(whatif)
    }

    /// What a step would take with the settings as they were, if nobody had waited for `rank`; `steps` are those that
    /// the model was made from.
    pub(super) fn without(&self, steps: &[SteadyStep<'_>], rank: u32) -> f64 {
        let mut classes = HashMap::new();
        let mut points = Vec::new();
        let every = steps.len().div_ceil(self.steps.len().max(1)).max(1);
        let chosen = steps.iter().step_by(every);
        let faster = chosen.filter_map(|step| model_step(step, Some(rank), &mut classes, &mut points));
        self.run(&faster.collect::<Vec<_>>(), self.current).step_ns
    }

    /// What `settings` save, nanoseconds a step.
    pub(super) fn gain_ns(&self, settings: Settings) -> f64 {
        self.modelled_ns - self.predict(settings).step_ns
    }

    /// Runs the steps one after another.
    pub(super) fn predict(&self, settings: Settings) -> Predicted {
        self.run(&self.steps, settings)
    }

    fn run(&self, steps: &[ModelStep], settings: Settings) -> Predicted {
        let mut plan = Plan::default();
        let mut clock = Clock {
            began: f64::NEG_INFINITY,
            free: 0.0,
        };
        let mut batches = 0u64;
        let mut at = 0.0;
        for step in steps {
            clock.free = clock.free.max(at);
            at = self.step(step, at, &mut clock, settings, &mut plan, &mut batches);
        }
        let steps = steps.len().max(1) as f64;
        Predicted {
            step_ns: at / steps,
            batches: batches as f64 / steps,
        }
    }

    /// Runs `step`, which begins at `zero`; says when it ends.
    fn step(
        &self,
        step: &ModelStep,
        zero: f64,
        clock: &mut Clock,
        settings: Settings,
        plan: &mut Plan,
        batches: &mut u64,
    ) -> f64 {
        let all_ready = zero + step.ops.last().map_or(0.0, |op| op.ready_ns);
        let mut items = Vec::new();
        let mut done = 0;
        while let Some(next) = step.ops.get(done) {
            let next_ready = zero + next.ready_ns;
            let mut began = clock.free.max(clock.began + settings.cycle_ns);
            if !self.ticks_on {
                // Idle until the first rank rings.
                began = began.max(zero + next.pending_ns);
            }
            if began < next_ready {
                let cycles = ((next_ready - began) / settings.cycle_ns).ceil();
                // Without a cycle time, at once.
                began = if cycles.is_finite() {
                    began + cycles * settings.cycle_ns
                } else {
                    next_ready
                };
                began = began.max(next_ready);
            }
            if settings.early {
                began = began.min(clock.free.max(all_ready));
            }
            let open = &step.ops[done..];
            let ready = open.partition_point(|op| zero + op.ready_ns <= began).max(1);
            items.clear();
            items.extend(open[..ready].iter().map(|op| op.item));
            done += ready;
            plan.make(&items, settings.threshold_bytes);
            let mut at = began + self.negotiate_ns;
            for batch in plan.batches() {
                // Not as integers: a damaged file's sizes could overflow.
                let bytes: f64 = batch
                    .iter()
                    .map(|&index| items[index as usize].bytes as f64)
                    .sum();
                let cost = self.costs[items[batch[0] as usize].class as usize];
                at += cost.alpha_ns + cost.ns_per_byte * bytes * settings.bytes;
                *batches += 1;
            }
            *clock = Clock { began, free: at };
        }
        clock.free + step.tail_ns
    }
}

/// Where the cycles are.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// When the last one began.
    began: f64,
    /// When it was over.
    free: f64,
}

/// The recording as a model, if it can be one; `negotiate` is in milliseconds.
pub(super) fn model(
    steps: &[SteadyStep<'_>],
    fusion: &Fusion,
    format: Format,
    negotiate: Quantiles,
) -> Option<WhatIf> {
    let cycle_ms = fusion.cycle_time_ms;
    // What is measured holds the wait for the cycle, a tenth of it in the p10.
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
    WhatIf::new(steps, current, negotiate_ms * 1e6, format == Format::Horovod)
}

/// Whether the last batch of a step does not wait for the cycle time.
fn starts_early(steps: &[SteadyStep<'_>], cycle_ns: f64) -> bool {
    let delays = steps.iter().filter_map(|step| {
        let (last, before) = step.batches.split_last()?;
        let free = before
            .iter()
            .map(|batch| batch.span.ended)
            .max()
            .unwrap_or(step.span.began);
        Some((last.began() - last.all_ready.max(free)).max(0) as f64)
    });
    median(&mut delays.collect::<Vec<_>>()) < 0.25 * cycle_ns
}

type Classes = HashMap<(Kind, Option<Dtype>, Option<u32>), u32>;

/// `step` as it was; or as if `without` had been ready no later than the others.
fn model_step(
    step: &SteadyStep<'_>,
    without: Option<u32>,
    classes: &mut Classes,
    points: &mut Vec<Vec<(u64, f64)>>,
) -> Option<ModelStep> {
    let mut ops = Vec::new();
    let mut end = step.span.began;
    for batch in &step.batches {
        let bytes = batch.bytes?;
        end = end.max(batch.span.ended);
        for (op, ready) in batch.members.iter().zip(&batch.ready) {
            let fused = matches!(
                op.kind,
                Kind::Allreduce | Kind::Adasum | Kind::Allgather | Kind::Reducescatter
            );
            let next = classes.len() as u32;
            let alone = (!fused).then_some(op.tensor.0);
            let class = *classes.entry((op.kind, op.dtype, alone)).or_insert(next);
            points.resize(classes.len(), Vec::new());
            let at = ready.all().and_then(|all| all.map(|(_, at)| at).max());
            let at = at.map(|at| {
                without
                    .and_then(|rank| ready.last_without(rank))
                    .unwrap_or(at)
                    .min(at)
            });
            let first = ready.known().map(|(_, at)| at).min();
            let pending = first.or(op.negotiation.map(|span| span.began));
            let since = |at: i64| ((at - step.span.began).max(0)) as f64;
            let ready_ns = since(at.unwrap_or(batch.all_ready).min(batch.span.began));
            ops.push(ModelOp {
                ready_ns,
                pending_ns: pending.map_or(ready_ns, since).min(ready_ns),
                item: Item {
                    class,
                    bytes: op.bytes?,
                    group: None,
                },
            });
        }
        let class = ops.last()?.item.class;
        points[class as usize].push((bytes, batch.moving_ns().max(0) as f64 / 1e3));
    }
    ops.sort_by(|a, b| a.ready_ns.total_cmp(&b.ready_ns));
    ops.iter_mut().rev().fold(f64::INFINITY, |earliest, op| {
        op.pending_ns = earliest.min(op.pending_ns);
        op.pending_ns
    });
    Some(ModelStep {
        ops,
        tail_ns: (step.span.ended - end).max(0) as f64,
    })
}

/// Whether there are sizes enough for a line: one twice as large as another.
fn sizes_differ(points: &[(u64, f64)]) -> bool {
    let sizes = || points.iter().map(|&(bytes, _)| bytes);
    sizes().max().unwrap_or(0) >= sizes().min().unwrap_or(0).saturating_mul(2).max(1)
}

fn cost(points: &[(u64, f64)]) -> Cost {
    if let Some(fit) = fit(points).filter(|_| sizes_differ(points)) {
        return Cost {
            alpha_ns: fit.alpha_us * 1e3,
            ns_per_byte: fit.us_per_mib * 1e3 / f64::from(1 << 20),
        };
    }
    // Nearly one size: nothing tells what a message costs by itself, so nothing is gained by sending fewer.
    let us = median(&mut points.iter().map(|&(_, us)| us).collect::<Vec<_>>());
    match points.first() {
        Some(&(bytes, _)) if bytes > 0 => Cost {
            alpha_ns: 0.0,
            ns_per_byte: us * 1e3 / bytes as f64,
        },
        _ => Cost {
            alpha_ns: us * 1e3,
            ns_per_byte: 0.0,
        },
    }
}
