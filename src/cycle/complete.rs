//! Completion: closes the books of a cycle, or of all of them, once and for all.

use super::Cycle;
use crate::error::Error;
use crate::negotiation::Order;
use crate::observer::{CycleEnd, NoObserver};
use crate::queue::Submission;
use crate::settings::Settings;
use crate::timeline;

impl Cycle {
    /// Closes the books of the cycle and says what makes the next one urgent.
    pub(super) fn complete(&mut self) {
        self.ready.clear();
        let words = self.cache.words();
        self.block.ready.resize(words, 0);
        self.block.ready_us.resize(words * 64, 0);
        self.hits.resize_with(words * 64, || None);
        let end = self.cycle_end();
        if let Some(wanted) = self.observer.cycle_ended(&end) {
            self.newest = Settings {
                version: wanted.version.max(self.newest.version + 1),
                ..wanted
            };
        }
        let outcomes = self.apply_commands(); // what was marked before belongs to what was recorded before
        if !self.unsent.is_empty() {
            self.queue.doorbell.ring(self.number + 1); // evicted in this cycle: to be asked for in the next
        }
        self.queue.renew_eagerness();
        for (order, outcome) in self.orders.drain(..).zip(outcomes) {
            order.ticket.complete(outcome);
            self.queue.completions().announce();
        }
    }

    /// Applies rank 0's commands at the end of this cycle, on every rank.
    fn apply_commands(&mut self) -> Vec<Result<(), Error>> {
        let is_first = self.transport.rank() == 0; // where the caller is told
        let carry_out = |order: Order| match order {
            Order::Timeline(order) => {
                let outcome = self.observer.ordered(&order);
                if let (Err(error), false) = (&outcome, is_first) {
                    tracing::error!("{error}; the other ranks record all the same");
                }
                outcome
            }
            Order::Settings(change) => {
                self.settings = change.after(&self.settings);
                self.newest = self.settings;
                self.observer.switched(self.settings);
                Ok(())
            }
        };
        self.ordered.drain(..).map(carry_out).collect()
    }

    /// What the observer is told at the end of a cycle.
    fn cycle_end(&self) -> CycleEnd {
        let noted = self.queue.marks().take().unwrap_or_default();
        CycleEnd {
            settings: self.settings,
            step_marks: noted.steps,
            epoch_marks: noted.epochs,
        }
    }

    /// Ends the cycle for good: fails all that is pending with `error`, and tells the peers.
    pub(crate) fn end(&mut self, error: Error) {
        if self.ended.is_some() {
            return;
        }
        self.queue.close(&error);
        self.gpu.stop(&error);
        let hits = self.hits.iter_mut().filter_map(Option::take);
        let ready = self.groups.take_held().chain(self.ready.drain(..));
        let pending = hits
            .chain(self.misses.drain().map(|(_, submission)| submission))
            .chain(ready.map(|ready| ready.submission))
            .chain(self.gpu.throttle.give_up());
        let pending: Vec<Submission> = pending
            .filter(|submission| !submission.ticket.is_done())
            .collect();
        let own = pending.iter().filter(|submission| !submission.is_absent());
        self.queue.release(own.count());
        for submission in &pending {
            submission.ticket.complete(Err(error.clone()));
        }
        self.queue.completions().announce();
        self.transport
            .leave(if error.is_orderly() { None } else { Some(&error) });
        self.close_books(&error);
        self.ended = Some(error);
    }

    /// Lets the observer go, and answers those whose orders it will not carry out.
    fn close_books(&mut self, error: &Error) {
        if self.land().is_err() {
            // Its tensors have been told.
        }
        // What was marked since the last cycle counts, unless the observer itself may be what failed.
        let end = self.cycle_end();
        let is_marked = !end.step_marks.is_empty() || !end.epoch_marks.is_empty();
        if is_marked && !matches!(error, Error::Internal { .. }) {
            self.observer.cycle_ended(&end);
        }
        // The timeline is complete and closed when the last handle has its answer.
        self.observer = Box::new(NoObserver);
        for ordered in self.orders.drain(..) {
            // Where a peer has left before it heard of the order, what it was to stop has ended all the same.
            let is_done = ordered.order == Order::Timeline(timeline::Order::Stop)
                && matches!(error, Error::PeerLeft { .. });
            let outcome = if is_done { Ok(()) } else { Err(error.clone()) };
            ordered.ticket.complete(outcome);
        }
        self.queue.completions().announce();
    }
}
