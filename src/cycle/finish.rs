//! The end of a cycle: reports it to the observer, applies commands of rank 0, and prepares the
//! next block. The tickets of the cycle's tensors are complete already, because each batch
//! completes its own.

use super::Cycle;
use crate::command::{Command, TimelineCommand};
use crate::error::Error;
use crate::observer::CycleEnd;

impl Cycle {
    /// Reports the cycle to the observer, applies commands, and requests the next cycle if work
    /// waits for it.
    pub(super) fn finish_cycle(&mut self) {
        self.ready.clear();
        let words = self.cache.words();
        self.block.ready.resize(words, 0);
        self.block.ready_us.resize(words * 64, 0);
        self.hits.resize_with(words * 64, || None);
        let end = self.cycle_end();
        if let Some(wanted) = self.observer.cycle_ended(&end) {
            self.source.change(|_| wanted);
        }
        let outcomes = self.apply_commands(); // after the report, so that marks go to their recording
        // To request the tensors evicted in this cycle; to go on without a rank that has joined in
        // it, or to end the join of all.
        if !self.unsent.is_empty() || self.awaits_joins {
            self.queue.doorbell.ring(self.number + 1);
        }
        self.queue.renew_eagerness();
        let mut outcomes = outcomes.into_iter();
        for pending in self.commands.drain(..) {
            let outcome = match pending.command {
                Command::Settings(_) => Some(Ok(())), // in force since this cycle's block
                Command::Timeline(_) => outcomes.next(),
            };
            if let Some(outcome) = outcome {
                pending.ticket.complete(outcome);
                self.queue.completions().announce();
            }
        }
    }

    /// Applies the commands of rank 0, at the end of this cycle on every rank.
    fn apply_commands(&mut self) -> Vec<Result<(), Error>> {
        let is_first = self.transport.rank() == 0; // where the caller waits for the outcome
        let apply = |command: TimelineCommand| {
            let outcome = self.observer.apply_timeline_command(&command);
            if let (Err(error), false) = (&outcome, is_first) {
                tracing::error!("{error}; the other ranks record all the same");
            }
            outcome
        };
        self.agreed_commands.drain(..).map(apply).collect()
    }

    /// Returns the end of this cycle for the observer.
    pub(super) fn cycle_end(&self) -> CycleEnd {
        let noted = self.queue.marks().take().unwrap_or_default();
        CycleEnd {
            settings: self.settings,
            step_marks: noted.steps,
            epoch_marks: noted.epochs,
            blocked: self.queue.take_blocked(),
        }
    }
}
