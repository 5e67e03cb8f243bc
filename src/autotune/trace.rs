//! What the job does under each setting, for the replay to learn from: kept while a tuning session runs, from what the
//! cycle tells its observer and never from the recorder, which may drop cycles.
//!
//! A [`Tracer`] notes every cycle, batch and tensor with the times of the clock. When a step is over, all of it
//! together becomes a [`TracedStep`], on a time that begins at the end of the step before. Steps that were disturbed
//! (foreign traffic, a rank that has joined), in which the settings changed, or of another signature than is tuned, are dropped. The last
//! [`STEPS_PER_SETTING`] of each setting are kept, and of all settings together no more than [`TENSORS_MAX`] tensors.
//!
//! On the cycle's path a tensor costs a look into one map; the memory of dropped steps is used again.

use std::ops::Range;

use crate::clock::Nanos;
use crate::fusion::Item;
use crate::fusion_class::FusionClasses;
use crate::observer::{Executed, Negotiated};
use crate::queue::{Submission, Tensor};
use crate::replay::{Operation, Setting, TracedBatch};
use crate::settings::Settings;
use crate::timeline::metrics::WholeStep;
use crate::timeline::period::{self, KeyMap, mix};

mod steps;

pub(super) use steps::{Seen, Steps};

/// Steps kept of a setting: the fit takes medians.
const STEPS_PER_SETTING: usize = 12;
/// Tensors kept, over all steps and settings: about 30 MB.
const TENSORS_MAX: usize = 1 << 19;
/// Tensors of a step under way, and ready times that wait for their tensor to be moved: beyond that something else than a
/// step is going on.
const PENDING_MAX: usize = 1 << 17;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// Ready times of tensors that have been negotiated and not yet moved, by the address of their name.
    ready: KeyMap<ReadyTimes>,
    under_way: UnderWay,
    /// When the cycle under way began, and the settings of the last one.
    cycle: Option<RawCycle>,
    settings: Option<Settings>,
    /// End of the step before.
    boundary: Option<Nanos>,
    /// The step under way is to be dropped.
    is_disturbed: bool,
    /// Steps of this signature alone are kept; of any, if none is given.
    signature: Option<u64>,
    /// Their numbers hold for the whole trace.
    classes: FusionClasses,
    steps: Steps,
}

/// When a tensor was ready.
#[derive(Clone, Copy, Debug)]
struct ReadyTimes {
    first: Nanos,
    last: Nanos,
    cached: bool,
}

/// Everything since the end of the step before, in order.
#[derive(Debug, Default)]
struct UnderWay {
    tensors: Vec<RawTensor>,
    cycles: Vec<RawCycle>,
    batches: Vec<TracedBatch>,
}

#[derive(Clone, Copy, Debug)]
struct RawTensor {
    /// By name and form, and by form alone.
    keys: [u64; 2],
    item: Item,
    pending: Nanos,
    ready: Nanos,
}

#[derive(Clone, Debug)]
struct RawCycle {
    began: Nanos,
    /// The last rank's ready time of a tensor that moved, if later: it came late to the cycle.
    complete: Nanos,
    agreed: Nanos,
    ended: Nanos,
    cached: u32,
    tensors: Range<usize>,
    batches: Range<usize>,
}

impl Tracer {
    /// A tensor has become ready on all ranks, as early as at `first` and as late as at `last`.
    pub(crate) fn negotiated(&mut self, negotiated: &Negotiated<'_>, first: Nanos, last: Nanos) {
        if self.ready.len() >= PENDING_MAX {
            self.ready.clear();
            self.disturbed();
        }
        let cached = negotiated.cached;
        let times = ReadyTimes { first, last, cached };
        self.ready.insert(address(negotiated.tensor), times);
    }

    /// The ranks disagreed about a tensor.
    pub(crate) fn refused(&mut self, tensor: &Tensor) {
        self.ready.remove(&address(tensor));
        self.disturbed();
    }

    /// Negotiation took from `began` to `agreed`.
    pub(crate) fn agreed(&mut self, began: Nanos, agreed: Nanos) {
        let UnderWay { tensors, batches, .. } = &self.under_way;
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

    /// A batch has been moved.
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
            let times = self.ready.remove(&address(&submission.tensor)).unwrap_or(unknown);
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
        let took_ns = (batch.ended.0.saturating_sub(batch.began.0)).saturating_sub(batch.phases.late_ns);
        self.under_way.batches.push(TracedBatch {
            class,
            bytes,
            tensors: batch.members.len() as u32,
            collective_us: took_ns as f64 / 1e3,
            copy_us: 0.0, // every collective there is copies as it goes
        });
        cycle.ended = batch.ended;
        cycle.tensors.end = self.under_way.tensors.len();
        cycle.batches.end = self.under_way.batches.len();
    }

    /// The cycle is over, under `settings`; `whole` if a step has ended in it or before it.
    pub(crate) fn cycle_ended(&mut self, settings: &Settings, whole: Option<WholeStep>) {
        let began = self.cycle.as_ref().map(|cycle| cycle.began);
        if let Some(cycle) = self.cycle.take()
            && !cycle.tensors.is_empty()
        {
            self.under_way.cycles.push(cycle);
        }
        let changed = self.settings.is_none_or(|known| known != *settings);
        if changed && whole.is_some_and(|whole| began.is_some_and(|began| began < whole.ended)) {
            self.disturbed(); // some of its cycles were under the settings before
        }
        if let Some(whole) = whole {
            self.end_step(whole);
        }
        if changed {
            self.settings = Some(*settings);
            self.disturbed(); // the change itself may cost something
        }
    }

    /// The step under way is not like the others.
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

    /// What was seen under each setting.
    pub(super) fn seen(&self) -> Seen {
        self.steps.seen(self.classes.operations().collect())
    }

    /// Whether some step had tensors with this operation.
    pub(super) fn has(&self, operation: Operation) -> bool {
        self.classes.operations().any(|known| known == operation)
    }

    /// Forgets what was seen: it no longer holds.
    pub(super) fn forget(&mut self) {
        self.steps.forget();
    }

    /// From now on steps of `signature` alone are kept; of any, if there is none.
    pub(super) fn follow(&mut self, signature: Option<u64>) {
        self.signature = signature;
    }

    /// Goes on with `steps`; answers with those kept so far.
    pub(super) fn exchange(&mut self, steps: Steps) -> Steps {
        self.disturbed(); // it may not have been traced from its beginning
        std::mem::replace(&mut self.steps, steps)
    }
}

impl UnderWay {
    fn clear(&mut self) {
        self.tensors.clear();
        self.cycles.clear();
        self.batches.clear();
    }

    /// Takes the first `count` cycles out.
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

/// What a tensor in flight is found by: no two have the same address.
fn address(tensor: &Tensor) -> u64 {
    mix(std::ptr::from_ref(tensor).addr() as u64, 0)
}

/// What a tensor is known by from step to step: its name, operation and element type. (Its size may change.)
fn identity(submission: &Submission) -> u64 {
    let (tensor, params) = (&submission.tensor, &submission.params);
    period::Item::new(&tensor.name, params.kind, params.dtype, 0).key(true)
}

/// Settings as the replay has them.
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
