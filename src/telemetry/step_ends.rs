//! Ends of steps: those that the caller marks, or else those that the meter finds.

use std::time::Duration;

use crate::clock::Nanos;
use crate::observer::Executed;
use crate::timeline::step_meter::{ExecutedBatch, StepMeter};

/// Detects the ends of steps.
#[derive(Default)]
pub(super) struct StepEnds {
    meter: StepMeter,
    are_marked: bool,
    /// End of the last step.
    ended: Option<Nanos>,
}

/// End of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepEnd {
    #[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
    pub(crate) at: Nanos,
    /// Time since the end of the previous step, if there is one.
    pub(crate) took: Option<Duration>,
}

impl StepEnds {
    /// A cycle began at `began`; its negotiation took `took`.
    pub(super) fn cycle(&mut self, began: Nanos, took: Duration) {
        self.meter.cycle(began, took.as_nanos() as u64);
    }

    /// A batch with data was executed; returns the end of a step, if it was one.
    pub(super) fn executed(&mut self, batch: &Executed<'_>) -> Option<StepEnd> {
        if self.are_marked {
            return None;
        }
        let executed = ExecutedBatch {
            ended: batch.ended,
            transfer_ns: 0,
        };
        let items = batch.members.iter().map(|member| member.submission.item);
        self.meter.executed(&executed, items)?;
        Some(self.end(batch.ended))
    }

    /// The caller marked the end of a step.
    pub(super) fn marked(&mut self, at: Nanos) -> StepEnd {
        if !std::mem::replace(&mut self.are_marked, true) {
            self.ended = None; // the ends so far are not those of the caller's steps
        }
        self.end(at)
    }

    fn end(&mut self, at: Nanos) -> StepEnd {
        let took = self.ended.replace(at).map(|before| at - before);
        StepEnd { at, took }
    }
}
