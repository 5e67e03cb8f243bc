//! The last step of a process set's cycle: fails pending tensors and notifies the peers.

use super::{Cycle, device};
use crate::command::{Command, TimelineCommand};
use crate::error::{Error, PeerError};
use crate::observer::NoObserver;
use crate::queue::Submission;

impl Cycle {
    /// Ends the cycle permanently: fails all pending tensors with `error`, and notifies the peers.
    pub(crate) fn end(&mut self, error: Error) {
        if self.ended.is_some() {
            return;
        }
        self.queue.close(&error);
        let reason = (!error.is_orderly()).then_some(&error);
        let transport = &mut self.transport;
        if !device::lets_end(&error) {
            transport.leave(reason); // at once: the device may take seconds to end
        }
        self.launches.stop(&error, &mut || transport.check_peers());
        let hits = self.hits.iter_mut().filter_map(Option::take);
        let ready = self.groups.take_held().chain(self.ready.drain(..));
        let pending = hits
            .chain(self.misses.drain().map(|(_, submission)| submission))
            .chain(ready.map(|ready| ready.submission))
            .chain(self.launches.throttle.give_up());
        let pending: Vec<Submission> = pending
            .filter(|submission| !submission.ticket.is_done())
            .collect();
        let own = pending.iter().filter(|submission| !submission.is_absent());
        self.queue.release(own.count());
        for submission in &pending {
            submission.ticket.complete(Err(error.clone()));
        }
        self.queue.completions().announce();
        self.transport.leave(reason);
        self.close_observer(&error);
        self.ended = Some(error);
    }

    /// Reports the last marks to the observer and drops it; completes the tickets of commands that
    /// are never applied.
    fn close_observer(&mut self, error: &Error) {
        if self.report_ended().is_err() {
            // Its tensors have been reported.
        }
        // Marks since the last cycle count, unless the observer itself may have failed.
        let end = self.cycle_end();
        let is_marked = !end.step_marks.is_empty() || !end.epoch_marks.is_empty();
        if is_marked && !matches!(error, Error::Internal { .. }) {
            self.observer.cycle_ended(&end);
        }
        self.observer.ended(error);
        // The timeline is complete and closed when the last handle completes.
        self.observer = Box::new(NoObserver);
        for pending in self.commands.drain(..) {
            // If a peer left before it received the command, the recording that it was to stop has
            // ended nevertheless.
            let is_done = pending.command == Command::Timeline(TimelineCommand::Stop)
                && matches!(error, Error::Peer(PeerError::Left { .. }));
            let outcome = if is_done { Ok(()) } else { Err(error.clone()) };
            pending.ticket.complete(outcome);
        }
        self.queue.completions().announce();
    }
}
