//! Step meter: duration of a step and the time spent in its parts, summed as batches are
//! executed.
//!
//! A step lasts from one completion of its anchor to the next. The anchor is the largest allreduce
//! of the smallest [repeating period](super::period). If the caller marks steps, the marks replace
//! it from then on. Nothing here depends on the recorder, which may drop cycles.
//!
//! Only whole, undisturbed steps are samples. A step with other tensors in it (validation, a
//! broadcast, a checkpoint) is reported as [interrupted](Step::Interrupted), and the next one is
//! skipped too: caches are cold and hooks run at uneven times. A pause without operations makes a
//! step far longer than those before; one such step is skipped, and a second one in a row is
//! accepted as the new duration. A step that is long because of its negotiation and collectives is
//! a sample. Marked steps that alternate between kinds are measured by the round (`rounds`).

use super::period::{Item, PeriodFinder, mix};
use crate::clock::Nanos;

mod pauses;
mod rounds;
mod sums;

use pauses::Pauses;
use rounds::{Contents, Rounds, Turn};
use sums::Sums;

/// Times of an executed batch, as measured by the cycle; its tensors are passed separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecutedBatch {
    /// Time at which its results were in place.
    pub ended: Nanos,
    /// Time of the transfer, copies included, nanoseconds.
    pub transfer_ns: u64,
}

/// Measurements of one undisturbed step on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepSample {
    /// Duration from the end of the previous step to its own, milliseconds.
    pub step_ms: f64,
    /// Hash of the step's contents (operation, element type and size of each tensor; marked steps
    /// in a round), independent of names and order: equal in all jobs that train the same model. 0
    /// without tensors.
    pub signature: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Number of tensors executed.
    pub tensors: u64,
    /// Time in negotiation, milliseconds.
    pub negotiate_ms: f64,
}

/// Reason why a step is not a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// Tensors that are not part of the step were executed, or fewer or more of them than usual.
    ForeignTraffic,
    /// The step took far longer than those before it, and not in its communication.
    Pause,
    /// The steps have just been detected, or the previous step was interrupted.
    Settling,
}

/// Result of the measurement between two ends of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Undisturbed step.
    Sample(StepSample),
    /// Step that cannot be used to compare settings.
    Interrupted(Interruption),
}

/// End of a step as a whole: all of its tensors have been executed. At the end of a step by its
/// anchor, by contrast, some of its tensors may be counted in the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeStep {
    /// End of the step.
    pub ended: Nanos,
    /// Contents of the step, as in [`StepSample`].
    pub signature: u64,
    /// Whether it contained exactly the tensors of a usual step.
    pub usual: bool,
}

/// Converts executed batches to step samples.
#[derive(Debug, Default)]
pub(crate) struct StepMeter {
    finder: PeriodFinder,
    marked: bool,
    /// Rounds of marked steps, and the sums at the last mark.
    rounds: Rounds,
    at_mark: Contents,
    /// End of the previous step; `None` until the first one.
    boundary: Option<Nanos>,
    /// Sums of the cycles before the current one since then.
    sums: Sums,
    /// Start of the current cycle, and its sums: a mark that was made before the cycle is received
    /// after it.
    cycle_began: Nanos,
    cycle: Sums,
    /// Foreign tensors since then, and whether the period changed.
    foreign: usize,
    changed: bool,
    settling: bool,
    pauses: Pauses,
    /// Foreign tensors of the whole step, and its end once that has been reached.
    whole_foreign: usize,
    whole_changed: bool,
    whole: Option<WholeStep>,
}

impl StepMeter {
    /// Creates a meter that knows no steps yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Records that a cycle began at `began` and spent `negotiate_ns` nanoseconds on negotiation.
    /// Called before its batches.
    pub(crate) fn cycle(&mut self, began: Nanos, negotiate_ns: u64) {
        self.sums.add(&std::mem::take(&mut self.cycle));
        self.cycle_began = began;
        self.cycle.negotiate_ns += negotiate_ns;
    }

    /// Records a batch of `tensors`. Returns the step if the batch ended one.
    pub(crate) fn executed(
        &mut self,
        batch: &ExecutedBatch,
        tensors: impl IntoIterator<Item = Item>,
    ) -> Option<Step> {
        self.cycle.transfer_ns += batch.transfer_ns;
        let (mut ends, mut wholes) = (0, 0);
        for tensor in tensors {
            self.cycle.tensors += 1;
            self.cycle.bytes += tensor.bytes();
            self.cycle.signature = self.cycle.signature.wrapping_add(tensor.signature());
            if self.marked {
                continue;
            }
            let seen = self.finder.observe(tensor);
            self.foreign += usize::from(seen.foreign);
            self.changed |= seen.changed;
            self.whole_foreign += usize::from(seen.foreign);
            self.whole_changed |= seen.changed;
            wholes += usize::from(seen.step_complete);
            let period = self.finder.period();
            let ended = if period.is_some_and(|period| period.anchor.is_some()) {
                seen.anchor
            } else {
                seen.step_complete
            };
            ends += usize::from(ended);
        }
        self.whole_changed |= wholes > 1;
        let signature = self.finder.period().map_or(0, |period| period.signature);
        if wholes > 0 {
            self.end_whole(batch.ended, signature);
        }
        if ends == 0 {
            return None;
        }
        // The length of a step is unknown if two steps ended in one batch.
        self.changed |= ends > 1;
        self.take_cycle_before(batch.ended);
        self.sums.signature = signature; // the tensors between two anchors depend on the batches
        self.end_step(batch.ended, false)
    }

    /// The next step has other settings: that it takes far longer shows no pause.
    pub(crate) fn settings_change(&mut self) {
        self.pauses.settings_change();
    }

    /// Marks the current step as disturbed, whatever its contents.
    pub(crate) fn disturbed(&mut self) {
        self.changed = true;
        self.whole_changed = true;
    }

    /// Returns the end of a whole step, if one has ended since the last call; of several ends the
    /// last, which is then not usual.
    pub(crate) fn take_whole(&mut self) -> Option<WholeStep> {
        self.whole.take()
    }

    fn end_whole(&mut self, ended: Nanos, signature: u64) {
        let foreign = std::mem::take(&mut self.whole_foreign);
        let changed = std::mem::take(&mut self.whole_changed);
        let usual = self.finder.period().map_or(0, |period| period.foreign);
        let usual = !changed && self.whole.is_none() && (self.marked || foreign == usual);
        self.whole = Some(WholeStep {
            ended,
            signature,
            usual,
        });
    }

    /// Ends a step at the caller's request. From the first call on, only such calls end steps.
    /// Returns the step if a round of them has ended.
    pub(crate) fn mark_step(&mut self, now: Nanos) -> Option<Step> {
        let is_first = !std::mem::replace(&mut self.marked, true);
        self.changed |= is_first;
        self.whole_changed |= is_first;
        self.take_cycle_before(now);
        let length = self.rounds.length();
        let turn = if is_first {
            Turn::Ends // its start is unknown
        } else {
            self.rounds.push(self.sums.contents().since(&self.at_mark))
        };
        if length != self.rounds.length() {
            self.pauses = Pauses::default(); // steps are now measured differently
        }
        let breaks = turn == Turn::Breaks;
        if turn == Turn::Within {
            self.at_mark = self.sums.contents();
            return None;
        }
        self.at_mark = Contents::default();
        if length > 1 {
            // Not the signature of its one step with operations, which is shorter.
            self.sums.signature = mix(self.sums.signature, length as u64);
        }
        self.whole_changed |= breaks;
        self.end_whole(now, self.sums.signature);
        self.end_step(now, breaks)
    }

    /// Adds the sums of the current cycle to the step that ends now, unless the cycle began later.
    fn take_cycle_before(&mut self, now: Nanos) {
        if self.cycle_began < now {
            self.sums.add(&std::mem::take(&mut self.cycle));
        }
    }

    /// `breaks`: whether the contents differ from those of marked steps.
    fn end_step(&mut self, now: Nanos, breaks: bool) -> Option<Step> {
        let sums = std::mem::take(&mut self.sums);
        let foreign = std::mem::take(&mut self.foreign);
        let changed = std::mem::take(&mut self.changed);
        let began = self.boundary.replace(now)?;
        let usual = self.finder.period().map_or(0, |period| period.foreign);
        let settling = std::mem::take(&mut self.settling) || changed;
        let step_ns = now.0.saturating_sub(began.0);
        let interruption = if breaks || (!self.marked && !changed && foreign != usual) {
            self.settling = true;
            Some(Interruption::ForeignTraffic)
        } else if settling {
            Some(Interruption::Settling)
        } else if self.pauses.is_pause(step_ns, sums.communication_ns()) {
            self.settling = true;
            Some(Interruption::Pause)
        } else {
            None
        };
        Some(interruption.map_or_else(|| Step::Sample(sums.sample(step_ns)), Step::Interrupted))
    }
}

#[cfg(test)]
mod tests;
