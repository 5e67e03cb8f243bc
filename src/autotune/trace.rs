//! Tracer: records the job's operations under each setting as input of the replay while a tuning
//! session runs. It uses the events of the cycle's observer, not the recorder, which may drop
//! cycles.
//!
//! A [`Tracer`] records every cycle, batch and tensor with times of the clock. At the end of a
//! step, they become a [`TracedStep`], whose times are relative to the end of the step before.
//! Steps are dropped if they were disturbed (operations of other steps, a joined rank), if the
//! settings changed in them, or if their signature is not the tuned one. The last
//! [`STEPS_PER_SETTING`] of each setting are kept, and at most [`TENSORS_MAX`] tensors of all
//! settings together.
//!
//! The cycle pays one map lookup per tensor; the memory of dropped steps is reused.

use std::ops::Range;

use crate::clock::Nanos;
use crate::fusion::Item;
use crate::fusion_class::FusionClasses;
use crate::observer::{Executed, Negotiated};
use crate::queue::{Submission, Tensor};
use crate::replay::{Operation, Setting, TracedBatch};
use crate::settings::Settings;
use crate::timeline::period::{self, KeyMap, mix};
use crate::timeline::step_meter::WholeStep;

mod steps;

pub(super) use steps::{Seen, Steps};

/// Steps kept of a setting: the fit takes medians.
const STEPS_PER_SETTING: usize = 12;
/// Tensors kept of all steps and settings: about 30 MB.
const TENSORS_MAX: usize = 1 << 19;
/// Limit of the tensors of the current step, and of ready times of tensors that were not executed
/// yet: more are not from one step.
const PENDING_MAX: usize = 1 << 17;

/// Recorder of the operations for the replay.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// Ready times of tensors that were negotiated and not executed yet, by the address of their
    /// name.
    ready: KeyMap<ReadyTimes>,
    under_way: UnderWay,
    /// Current cycle, and the settings of the last one.
    cycle: Option<RawCycle>,
    settings: Option<Settings>,
    /// End of the step before.
    boundary: Option<Nanos>,
    /// Whether the current step is to be dropped.
    is_disturbed: bool,
    /// Signature of the steps that are kept; `None`: all are kept.
    signature: Option<u64>,
    /// Class numbers, valid for the whole trace.
    classes: FusionClasses,
    steps: Steps,
    /// Whether a batch in device memory was executed.
    is_on_device: bool,
}

/// Ready times of a tensor.
#[derive(Clone, Copy, Debug)]
struct ReadyTimes {
    first: Nanos,
    last: Nanos,
    cached: bool,
}

/// Events since the end of the step before, in order.
#[derive(Debug, Default)]
struct UnderWay {
    tensors: Vec<RawTensor>,
    cycles: Vec<RawCycle>,
    batches: Vec<TracedBatch>,
}

#[derive(Clone, Copy, Debug)]
struct RawTensor {
    /// Key of name and form, and key of the form alone.
    keys: [u64; 2],
    item: Item,
    pending: Nanos,
    ready: Nanos,
}

#[derive(Clone, Debug)]
struct RawCycle {
    began: Nanos,
    /// Begin, or the last rank's ready time of an executed tensor if that is later: the rank came
    /// late to the cycle.
    complete: Nanos,
    agreed: Nanos,
    ended: Nanos,
    cached: u32,
    tensors: Range<usize>,
    batches: Range<usize>,
}

impl Tracer {
    /// A tensor has become ready on all ranks: on the first at `first`, on the last at `last`.
    pub(crate) fn negotiated(&mut self, negotiated: &Negotiated<'_>, first: Nanos, last: Nanos) {
        if self.ready.len() >= PENDING_MAX {
            self.ready.clear();
            self.disturbed();
        }
        let cached = negotiated.cached;
        let times = ReadyTimes {
            first,
            last,
            cached,
        };
        self.ready.insert(address(negotiated.tensor), times);
    }

    /// The ranks' requests for a tensor differ.
    pub(crate) fn refused(&mut self, tensor: &Tensor) {
        self.ready.remove(&address(tensor));
        self.disturbed();
    }

    /// Negotiation lasted from `began` to `agreed`.
    pub(crate) fn agreed(&mut self, began: Nanos, agreed: Nanos) {
        let UnderWay {
            tensors, batches, ..
        } = &self.under_way;
        self.cycle = Some(RawCycle {
            began,
            complete: began,
            agreed,
            ended: agreed,
            cached: 0,
            tensors: tensors.len()..tensors.len(),
            batches: batches.len()..batches.len(),
        });
    }

    /// A batch has been executed.
    pub(crate) fn executed(&mut self, batch: &Executed<'_>) {
        let Some(cycle) = &mut self.cycle else { return };
        let Some(first) = batch.members.first() else {
            return;
        };
        if !first.submission.params.kind.moves_data() {
            return;
        }
        if self.under_way.tensors.len() + batch.members.len() > PENDING_MAX {
            self.under_way.clear();
            self.cycle = None;
            self.disturbed();
            return;
        }
        let class = self
            .classes
            .number(&first.fusion_key(), Some(identity(&first.submission)));
        let mut bytes = 0;
        for member in batch.members {
            let submission = &member.submission;
            let unknown = ReadyTimes {
                first: submission.at,
                last: submission.at,
                cached: false,
            };
            let times = self
                .ready
                .remove(&address(&submission.tensor))
                .unwrap_or(unknown);
            let item = Item {
                class,
                bytes: member.bytes(),
                group: submission.params.group.map(|group| group.tag),
            };
            bytes += item.bytes;
            cycle.complete = cycle.complete.max(times.last.min(cycle.agreed));
            cycle.cached += u32::from(times.cached);
            self.under_way.tensors.push(RawTensor {
                keys: [submission.item.key(true), submission.item.key(false)],
                item,
                pending: times.first,
                ready: times.last,
            });
        }
        let took_ns =
            (batch.ended.0.saturating_sub(batch.began.0)).saturating_sub(batch.phases.late_ns);
        // The time of attached data is in the negotiation, and says nothing of other batches.
        if !batch.is_attached() {
            self.under_way.batches.push(TracedBatch {
                class,
                bytes,
                tensors: batch.members.len() as u32,
                collective_us: took_ns as f64 / 1e3,
                copy_us: 0.0, // all current collectives copy while they reduce
            });
        }
        cycle.ended = batch.ended;
        cycle.tensors.end = self.under_way.tensors.len();
        cycle.batches.end = self.under_way.batches.len();
    }

    /// A batch in device memory has been executed. The replay has no batches that outlive their
    /// cycle.
    pub(super) fn executed_on_device(&mut self) {
        self.is_on_device = true;
        self.disturbed();
    }

    /// Whether any batch was in device memory.
    pub(super) fn is_on_device(&self) -> bool {
        self.is_on_device
    }

    /// The cycle has ended, under `settings`; `whole` if a step has ended in it or before it.
    pub(crate) fn cycle_ended(&mut self, settings: &Settings, whole: Option<WholeStep>) {
        let began = self.cycle.as_ref().map(|cycle| cycle.began);
        if let Some(cycle) = self.cycle.take()
            && !cycle.tensors.is_empty()
        {
            self.under_way.cycles.push(cycle);
        }
        let changed = self.settings.is_none_or(|known| known != *settings);
        if changed && whole.is_some_and(|whole| began.is_some_and(|began| began < whole.ended)) {
            self.disturbed(); // some of its cycles had other settings
        }
        if let Some(whole) = whole {
            self.end_step(whole);
        }
        if changed {
            self.settings = Some(*settings);
            self.disturbed(); // the change itself may cost time
        }
    }

    /// The current step differs from the others.
    pub(crate) fn disturbed(&mut self) {
        self.is_disturbed = true;
    }

    fn end_step(&mut self, whole: WholeStep) {
        let began = self.boundary.replace(whole.ended);
        let ours = self
            .signature
            .is_none_or(|signature| signature == whole.signature);
        let settled = !std::mem::take(&mut self.is_disturbed) && whole.usual && ours;
        let count = self
            .under_way
            .cycles
            .partition_point(|cycle| cycle.began < whole.ended);
        if let (Some(began), Some(settings), true) = (began, &self.settings, settled && count > 0) {
            let cycles = &self.under_way.cycles[..count];
            self.steps
                .add(settings, began, whole.ended, cycles, &self.under_way);
        }
        self.under_way.forget(count);
    }

    /// Returns the traced steps of each setting.
    pub(super) fn seen(&self) -> Seen {
        self.steps.seen(self.classes.operations().collect())
    }

    /// Whether any step had tensors with this operation.
    pub(super) fn has(&self, operation: Operation) -> bool {
        self.classes.operations().any(|known| known == operation)
    }

    /// Drops all traced steps, because they are not valid any more.
    pub(super) fn forget(&mut self) {
        self.steps.forget();
    }

    /// From now on, keeps only steps of `signature`; all steps if `None`.
    pub(super) fn follow(&mut self, signature: Option<u64>) {
        self.signature = signature;
    }

    /// Continues with `steps`; returns those kept so far.
    pub(super) fn exchange(&mut self, steps: Steps) -> Steps {
        self.disturbed(); // the current step may not have been traced from its beginning
        std::mem::replace(&mut self.steps, steps)
    }
}

impl UnderWay {
    fn clear(&mut self) {
        self.tensors.clear();
        self.cycles.clear();
        self.batches.clear();
    }

    /// Removes the first `count` cycles.
    fn forget(&mut self, count: usize) {
        let (tensors, batches) = match self.cycles.get(count) {
            Some(next) => (next.tensors.start, next.batches.start),
            None => (self.tensors.len(), self.batches.len()),
        };
        self.cycles.drain(..count);
        self.tensors.drain(..tensors);
        self.batches.drain(..batches);
        for cycle in &mut self.cycles {
            cycle.tensors = cycle.tensors.start - tensors..cycle.tensors.end - tensors;
            cycle.batches = cycle.batches.start - batches..cycle.batches.end - batches;
        }
    }
}

/// Key of a tensor in flight: no two have the same address.
fn address(tensor: &Tensor) -> u64 {
    mix(std::ptr::from_ref(tensor).addr() as u64, 0)
}

/// Key of a tensor from step to step: its name, operation and element type. (Its size may change.)
fn identity(submission: &Submission) -> u64 {
    let (tensor, params) = (&submission.tensor, &submission.params);
    period::Item::new(&tensor.name, params.kind, params.dtype, 0).key(true)
}

/// Converts settings for the replay.
pub(super) fn setting(settings: &Settings) -> Setting {
    Setting {
        fusion_threshold_bytes: settings.fusion_threshold_bytes,
        cycle_us: settings.cycle_time_ns as f64 / 1e3,
        hierarchical: settings.hierarchical_allreduce,
        hierarchical_allgather: settings.hierarchical_allgather,
        cache: settings.cache,
    }
}

#[cfg(test)]
mod tests;
