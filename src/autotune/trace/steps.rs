//! Traced steps that are kept for the replay.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{RawCycle, STEPS_PER_SETTING, TENSORS_MAX, UnderWay, setting};
use crate::clock::Nanos;
use crate::replay::{Operation, Trace, TracedStep, TracedTensor};
use crate::settings::Settings;
use crate::timeline::period::{KeyMap, mix};

/// A step longer than this many medians of its setting is a pause, and is not part of the traces.
const PAUSE_FACTOR: f64 = 2.0;

/// The steps, by setting.
#[derive(Debug, Default)]
pub(in crate::autotune) struct Steps {
    /// In the order in which the settings were first in force.
    of: Vec<(Settings, VecDeque<Arc<TracedStep>>)>,
    /// Number of tensors in all steps.
    tensors: usize,
    /// Names and forms of the previous step, and whether names repeat.
    known: KeyMap<()>,
    named: bool,
    /// Number of occurrences of each key in the step that is being added.
    comes: KeyMap<u32>,
}

/// Traced steps of each setting, shared with the cycle until another thread has
/// [converted](Self::told) them.
#[derive(Debug, Default)]
pub(in crate::autotune) struct Seen {
    /// Operation of each class of tensors.
    operations: Vec<Operation>,
    of: Vec<(Settings, Vec<Arc<TracedStep>>)>,
}

impl Steps {
    /// Adds a step from `began` to `ended`, which consisted of `cycles`.
    pub(super) fn add(
        &mut self,
        settings: &Settings,
        began: Nanos,
        ended: Nanos,
        cycles: &[RawCycle],
        under_way: &UnderWay,
    ) {
        if !self.look_at_names(cycles, under_way) {
            return;
        }
        let mut step = self.room(
            settings,
            cycles.iter().map(|cycle| cycle.tensors.len()).sum(),
        );
        let since = |at: Nanos| at.0.saturating_sub(began.0) as f64 / 1e3;
        let took = |from: Nanos, to: Nanos| to.0.saturating_sub(from.0) as f64 / 1e3;
        step.step_us = since(ended);
        self.comes.clear();
        let mut spare = std::mem::take(&mut step.cycles);
        for cycle in cycles {
            let mut traced = spare.pop().unwrap_or_default();
            traced.began_us = since(cycle.complete); // it begins late if a rank came late
            traced.negotiate_us = took(cycle.complete, cycle.agreed);
            traced.tensors = cycle.tensors.len() as u32;
            traced.cached = cycle.cached;
            traced.moving_us = took(cycle.agreed, cycle.ended);
            traced.batches.clear();
            traced
                .batches
                .extend_from_slice(&under_way.batches[cycle.batches.clone()]);
            step.cycles.push(traced);
            for tensor in &under_way.tensors[cycle.tensors.clone()] {
                let key = tensor.keys[usize::from(!self.named)];
                let comes = self.comes.entry(key).or_default();
                step.tensors.push(TracedTensor {
                    key: mix(key, u64::from(*comes)),
                    item: tensor.item,
                    pending_us: since(tensor.pending),
                    ready_us: since(tensor.ready).max(since(tensor.pending)),
                });
                *comes += 1;
            }
        }
        self.tensors += step.tensors.len();
        if let Some((_, steps)) = self.of.iter_mut().find(|(of, _)| of == settings) {
            steps.push_back(Arc::new(step));
        }
    }

    /// Returns an empty step for `settings`; drops steps to make room for `tensors` tensors, and
    /// reuses their memory.
    fn room(&mut self, settings: &Settings, tensors: usize) -> TracedStep {
        if !self.of.iter().any(|(of, _)| of == settings) {
            self.of.push((*settings, VecDeque::new()));
        }
        let own = self.of.iter_mut().find(|(of, _)| of == settings);
        let mut freed = own
            .filter(|(_, steps)| steps.len() >= STEPS_PER_SETTING)
            .and_then(|(_, steps)| steps.pop_front());
        if let Some(step) = &freed {
            self.tensors -= step.tensors.len();
        }
        while self.tensors + tensors > TENSORS_MAX {
            let most = self.of.iter_mut().max_by_key(|(_, steps)| steps.len());
            let Some(dropped) = most.and_then(|(_, steps)| steps.pop_front()) else {
                break; // a single step is larger
            };
            self.tensors -= dropped.tensors.len();
            freed = Some(dropped);
        }
        // A step that another thread reads keeps its memory.
        let mut step = freed
            .and_then(|step| Arc::try_unwrap(step).ok())
            .unwrap_or_default();
        step.tensors.clear();
        step
    }

    /// Determines whether names repeat; false if that takes another step.
    fn look_at_names(&mut self, cycles: &[RawCycle], under_way: &UnderWay) -> bool {
        let tensors = || {
            let tensors = cycles
                .iter()
                .map(|cycle| &under_way.tensors[cycle.tensors.clone()]);
            tensors.flatten()
        };
        let repeated = tensors()
            .filter(|tensor| self.known.contains_key(&tensor.keys[0]))
            .count();
        let named = 2 * repeated >= tensors().count();
        let is_first = self.known.is_empty();
        if !is_first && self.named != named {
            self.named = named;
            self.forget(); // their tensors have other keys
        }
        self.known.clear();
        self.known
            .extend(tensors().map(|tensor| (tensor.keys[0], ())));
        !is_first
    }

    pub(super) fn seen(&self, operations: Vec<Operation>) -> Seen {
        let of = self.of.iter();
        let of = of.map(|(settings, steps)| (*settings, steps.iter().cloned().collect()));
        Seen {
            operations,
            of: of.collect(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.of.clear();
        self.tensors = 0;
    }
}

impl Seen {
    /// Returns one trace for each setting, that of `reference` first; none if it has no steps.
    pub(in crate::autotune) fn told(&self, reference: &Settings) -> Vec<Trace> {
        let first = self
            .of
            .iter()
            .position(|(settings, _)| settings == reference);
        let order = first
            .into_iter()
            .chain((0..self.of.len()).filter(|&index| Some(index) != first));
        let trace = |index: usize| trace(&self.of[index], &self.operations);
        let traces: Vec<Trace> = order.filter_map(trace).collect();
        match traces.first() {
            Some(trace) if first.is_some() && trace.setting == setting(reference) => traces,
            _ => Vec::new(),
        }
    }
}

fn trace(
    (settings, steps): &(Settings, Vec<Arc<TracedStep>>),
    operations: &[Operation],
) -> Option<Trace> {
    let mut lengths: Vec<f64> = steps.iter().map(|step| step.step_us).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let limit_us = lengths.get(lengths.len().checked_sub(1)? / 2)? * PAUSE_FACTOR;
    let usual = steps.iter().filter(|step| step.step_us <= limit_us);
    Some(Trace {
        setting: setting(settings),
        operations: operations.to_vec(),
        steps: usual.map(|step| TracedStep::clone(step)).collect(),
    })
}
