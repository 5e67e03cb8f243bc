//! Liveness checks between two cycles: peers, the device, and tensors that wait too long.

use std::time::Duration;

use super::Cycle;
use crate::clock::Nanos;
use crate::error::Error;
use crate::observer::NoObserver;

/// Interval of checks of the peers while work is pending but no cycle runs, and of checks for
/// stalled tensors while cycles follow one another.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(250);

impl Cycle {
    /// Requests a first cycle if clocks are to be compared: before anything else, for all process
    /// sets.
    pub(crate) fn begin(&self) {
        if self.number == 0 && self.clocks.want_comparing(self.began) {
            self.queue.doorbell.ring(1);
        }
    }

    /// Number of tensors taken from the queue and not complete.
    pub(crate) fn pending(&self) -> usize {
        self.hits_held
            + self.misses.len()
            + self.groups.held().len()
            + self.launches.throttle.waiting()
            + self.launches.in_flight()
    }

    /// Completes batches that have ended on the device, and requests a cycle if tensors may be
    /// launched now.
    pub(crate) fn poll_device(&mut self) -> Result<(), Error> {
        if self.report_ended()? && self.launches.throttle.may_open() {
            self.queue.call_for(self.number + 1);
        }
        Ok(())
    }

    /// Checks peers, device and stalled tensors while no cycle runs; returns the time of the next
    /// check.
    pub(crate) fn check_liveness(&mut self, now: Nanos) -> Result<Option<Nanos>, Error> {
        let pending = self.pending() > 0;
        if pending {
            self.transport.check_peers()?;
            self.launches.check()?;
        }
        let next_stall = self.check_stalls(now)?;
        let next_peers = pending.then(|| now + CHECK_INTERVAL);
        Ok([next_stall, next_peers].into_iter().flatten().min())
    }

    /// Checks stalled tensors before a cycle, at intervals: a tensor may be missing while others
    /// leave no time between two cycles.
    pub(crate) fn check_stalls_while_busy(&mut self, now: Nanos) -> Result<(), Error> {
        if now >= self.next_stall_check {
            self.check_stalls(now)?;
        }
        Ok(())
    }

    /// Checks stalled tensors; returns the time of the next check.
    fn check_stalls(&mut self, now: Nanos) -> Result<Option<Nanos>, Error> {
        self.next_stall_check = now + CHECK_INTERVAL;
        // The observer reads the cycle that owns it, so it is taken out meanwhile.
        let mut observer = std::mem::replace(&mut self.observer, Box::new(NoObserver));
        let stalls = observer.check_stalls(now, self);
        self.observer = observer;
        let stalls = stalls?;
        self.reports_stalls = stalls.needs_ranks;
        if stalls.needs_ranks {
            self.queue.doorbell.ring(self.number + 1);
        }
        Ok(stalls.next)
    }
}
