//! Step metrics: how long a step takes and where its time goes, added up as each batch is executed.
//!
//! A step lasts from one completion of its anchor to the next. The anchor is the largest allreduce of the smallest
//! [repeating period](super::period); or the caller marks the steps itself, which counts from then on. Nothing
//! here depends on the recorder, which may drop cycles.
//!
//! Only whole, undisturbed steps are samples. A step with foreign traffic in it (validation, a broadcast, a
//! checkpoint) is reported as [interrupted](Step::Interrupted), and the next one is left out too: caches are cold and
//! hooks uneven. A pause without traffic shows as a step far longer than those before; one alone is left
//! out, a second one in a row is the new normal. Marked steps that come in turns are measured by the round (`rounds`).

use super::period::{Item, PeriodFinder, mix};
use crate::clock::Nanos;

mod pauses;
mod rounds;
mod sums;

use pauses::Pauses;
use rounds::{Load, Rounds, Turn};
use sums::Sums;

/// What the cycle knows about a batch that it has executed; its tensors come beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecutedBatch {
    /// When its results were in place.
    pub ended: Nanos,
    /// Time inside the collective, nanoseconds.
    pub collective_ns: u64,
    /// Part of it spent waiting for peers, nanoseconds.
    pub wait_ns: u64,
}

/// One undisturbed step, on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepSample {
    /// From the end of the step before to its own, milliseconds.
    pub step_ms: f64,
    /// A hash of what such steps consist of (operation, element type and size of each tensor; marked steps in a round), whatever
    /// names and order: the same in every job that trains the same model. 0 without tensors.
    pub signature: u64,
    /// Payload of all tensors.
    pub bytes: u64,
    /// Tensors executed.
    pub tensors: u64,
    /// Batches they travelled in.
    pub batches: u64,
    /// Cycles begun.
    pub cycles: u64,
    /// Time in negotiation, milliseconds.
    pub negotiate_ms: f64,
    /// Time in collectives, milliseconds.
    pub collective_ms: f64,
    /// Part of that spent waiting for peers, milliseconds.
    pub wait_ms: f64,
}

/// Why a step is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// Tensors that are not part of the step came in between, or fewer or more of them than usual.
    ForeignTraffic,
    /// It took far longer than those before it.
    Pause,
    /// The step has just been learnt, or the one before it was interrupted.
    Settling,
}

/// What happened between two ends of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// A step as usual.
    Sample(StepSample),
    /// A step that says nothing about the settings.
    Interrupted(Interruption),
}

/// The end of a step as a whole: everything that belongs to it has been executed. Unlike the anchor's, it leaves no
/// tensor of a step to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeStep {
    /// When.
    pub ended: Nanos,
    /// What it consisted of, as in [`StepSample`].
    pub signature: u64,
    /// Whether it consisted of what steps consist of.
    pub usual: bool,
}

/// Turns executed batches into step samples. See the module.
#[derive(Debug, Default)]
pub(crate) struct StepMeter {
    finder: PeriodFinder,
    marked: bool,
    /// Of marked steps; and what `sums` said at the last mark of what they move.
    rounds: Rounds,
    at_mark: Load,
    /// End of the step before; none until the first.
    boundary: Option<Nanos>,
    /// What cycles before the one under way have executed since then.
    sums: Sums,
    /// When the cycle under way began, and what it has executed: a mark made before it is heard of after it.
    cycle_began: Nanos,
    cycle: Sums,
    /// Foreign tensors since then, and whether the period changed.
    foreign: usize,
    changed: bool,
    settling: bool,
    pauses: Pauses,
    /// The same of the step as a whole, and its end once it has come.
    whole_foreign: usize,
    whole_changed: bool,
    whole: Option<WholeStep>,
}

impl StepMeter {
    /// Knows no steps yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A cycle that began at `began` has spent `negotiate_ns` nanoseconds on negotiation. Called before its batches.
    pub(crate) fn cycle(&mut self, began: Nanos, negotiate_ns: u64) {
        self.sums.add(&std::mem::take(&mut self.cycle));
        self.cycle_began = began;
        self.cycle.cycles += 1;
        self.cycle.negotiate_ns += negotiate_ns;
    }

    /// A batch of `tensors` has been executed. Answers if it ended a step.
    pub(crate) fn executed(
        &mut self,
        batch: &ExecutedBatch,
        tensors: impl IntoIterator<Item = Item>,
    ) -> Option<Step> {
        self.cycle.batches += 1;
        self.cycle.collective_ns += batch.collective_ns;
        self.cycle.wait_ns += batch.wait_ns;
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
        // Two steps that ended in one batch have no length of their own.
        self.changed |= ends > 1;
        self.take_cycle_before(batch.ended);
        self.sums.signature = signature; // which tensors came between two anchors is up to the batches
        self.end_step(batch.ended, false)
    }

    /// The running step is not like the others, whatever it looks like.
    pub(crate) fn disturbed(&mut self) {
        self.changed = true;
        self.whole_changed = true;
    }

    /// The end of a step as a whole, if one has ended since the last call; of several the last, which is then not usual.
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

    /// The caller says that a step ends now. From the first call on steps are what the caller says. Answers if a round of them
    /// has ended.
    pub(crate) fn mark_step(&mut self, now: Nanos) -> Option<Step> {
        let is_first = !std::mem::replace(&mut self.marked, true);
        self.changed |= is_first;
        self.whole_changed |= is_first;
        self.take_cycle_before(now);
        let length = self.rounds.length();
        let turn = if is_first {
            Turn::Ends // nobody knows when it began
        } else {
            self.rounds.push(self.sums.load().since(&self.at_mark))
        };
        if length != self.rounds.length() {
            self.pauses = Pauses::default(); // another measure
        }
        let breaks = turn == Turn::Breaks;
        if turn == Turn::Within {
            self.at_mark = self.sums.load();
            return None;
        }
        self.at_mark = Load::default();
        if length > 1 {
            // Not that of its one step with traffic, which is shorter.
            self.sums.signature = mix(self.sums.signature, length as u64);
        }
        self.whole_changed |= breaks;
        self.end_whole(now, self.sums.signature);
        self.end_step(now, breaks)
    }

    /// What the cycle under way has executed belongs to a step that ends now, unless it began later.
    fn take_cycle_before(&mut self, now: Nanos) {
        if self.cycle_began < now {
            self.sums.add(&std::mem::take(&mut self.cycle));
        }
    }

    /// `breaks`: not what marked steps consist of.
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
        } else if self.pauses.is_pause(step_ns) {
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
