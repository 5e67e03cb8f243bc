//! Clocks: ready times on rank 0's clock, and the rounds in which the ranks compare their
//! clocks with it.
//!
//! Nothing happens here if the ranks share a clock. Otherwise rank 0 raises a status bit when a
//! comparison is due ([`Schedule`]). In that cycle, before any other message, all ranks go through
//! [`ROUNDS`] rounds of the transport's own operations: a gather, after which rank 0 reads its
//! clock, and a broadcast of the time that it read. The first comparison comes before the first
//! requests, so these never carry times of another clock. The set of all ranks measures for all
//! process sets of a rank. There is no last measurement at the end of a job, because the ranks
//! leave one by one.

use std::sync::Arc;

use super::Cycle;
use crate::clock::{Alignment, Estimator, Nanos, ROUNDS, Reference, Round, Schedule};
use crate::error::{Error, PeerError};
use crate::negotiation::response::{decode, encode};

/// A cycle's conversion between this rank's clock and rank 0's.
pub(super) struct Clocks {
    reference: Arc<Reference>,
    /// Alignment in force in this cycle; `None` for the same clock.
    alignment: Option<Alignment>,
    estimator: Estimator,
    /// Schedule of comparisons; only on rank 0 of the set of all ranks, if the ranks do not share a
    /// clock.
    schedule: Option<Schedule>,
}

impl Clocks {
    /// `decides`: this rank decides when clocks are compared.
    pub(super) fn new(reference: Arc<Reference>, decides: bool) -> Self {
        Self {
            alignment: reference.alignment(),
            reference,
            estimator: Estimator::default(),
            schedule: decides.then(Schedule::new),
        }
    }

    /// Adopts the newest measurement, which another set of this rank may have made.
    pub(super) fn refresh(&mut self) {
        self.alignment = self.reference.alignment();
    }

    /// Whether a comparison is due.
    pub(super) fn want_comparing(&self, now: Nanos) -> bool {
        self.schedule
            .as_ref()
            .is_some_and(|schedule| schedule.is_due(now))
    }

    /// Converts a time of this rank to microseconds on rank 0's clock.
    pub(super) fn to_reference_us(&self, own: Nanos) -> u64 {
        match &self.alignment {
            None => own.as_micros(),
            Some(alignment) => alignment.to_reference(own).as_micros(),
        }
    }
}

/// Returns the time that is this many microseconds from zero.
pub(super) fn micros(us: u64) -> Nanos {
    Nanos(us.saturating_mul(1_000))
}

impl Cycle {
    /// Compares this rank's clock with rank 0's. All ranks call this in the same cycle.
    pub(super) fn compare_clocks(&mut self) -> Result<(), Error> {
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let sent = self.queue.clock.now();
            self.transport.gather(&[], &mut self.frames)?;
            self.frames.clear();
            if self.transport.rank() == 0 {
                let stamp = self.queue.clock.now();
                encode(&stamp.0, &mut self.frame)
                    .map_err(|error| self.malformed("encode a time", &error))?;
            }
            self.transport.broadcast(&mut self.frame)?;
            let received = self.queue.clock.now();
            let stamp = decode(&self.frame).map_err(|error| PeerError::InvalidData {
                rank: self.members[0],
                problem: format!("a time that cannot be decoded: {error}"),
            })?;
            rounds.push(Round {
                sent,
                stamp: Nanos(stamp),
                received,
            });
        }
        if let Some(schedule) = &mut self.clocks.schedule {
            schedule.done(self.queue.clock.now());
        }
        if self.transport.rank() > 0
            && let Some(alignment) = self.clocks.estimator.measured(&rounds)
        {
            self.clocks.alignment = Some(alignment);
            self.clocks.reference.measured(alignment);
            self.observer.aligned(&alignment);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
