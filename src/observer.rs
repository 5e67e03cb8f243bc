//! Observer of the cycle: timeline, tuner, metrics, live page and stall inspector in a job, a log
//! in the simulator. The cycle reports events to it; it returns only settings to change to.

use std::time::Duration;

use crate::clock::{Alignment, Nanos};
use crate::collective::{Phases, Stages, attached};
use crate::command::TimelineCommand;
use crate::error::Error;
use crate::identity::Hosts;
use crate::negotiation::stall::PendingRanks;
use crate::negotiation::{Last, OpKind};
use crate::queue::Tensor;
use crate::ready::Ready;
use crate::settings::{Settings, Versioned};
use crate::timeline::Activity;

/// Receives the events of the cycle: timeline, tuner and metrics in a job, a log in the
/// simulator. Its functions must be fast, because they run between the collectives.
pub(crate) trait Observer: Send {
    /// The rendezvous is complete; `hosts` is the distribution of the ranks over hosts.
    fn connected(&mut self, _hosts: Hosts) {}
    /// A cycle begins.
    fn cycle_began(&mut self, _now: Nanos) {}
    /// The ready times that are wanted of tensors in the response cache. Asked in every cycle on
    /// the lowest rank of a set.
    fn wanted_times(&self) -> WantedTimes {
        WantedTimes::None
    }
    /// A tensor has become ready on all ranks. Called on the lowest rank of a set: for a tensor in
    /// the response cache only if the times are wanted.
    fn negotiated(&mut self, _negotiated: &Negotiated<'_>, _ready: ReadyTimes<'_>) {}
    /// The ranks have agreed on this cycle.
    fn agreed(&mut self, _agreed: &Agreed) {}
    /// A batch has been executed.
    fn executed(&mut self, _batch: &Executed<'_>) {}
    /// The negotiation of a tensor failed.
    fn refused(&mut self, _tensor: &Tensor, _error: &Error) {}
    /// Rank 0 makes every rank start or stop its timeline in the same cycle: after its end, before
    /// the next one begins.
    ///
    /// # Errors
    /// A file that cannot be written; the job goes on.
    fn apply_timeline_command(&mut self, _command: &TimelineCommand) -> Result<(), Error> {
        Ok(())
    }
    /// This rank's clock offset from rank 0's has been measured again. Called after the start of a
    /// cycle and before its other events; never on rank 0, nor where ranks share a clock.
    fn aligned(&mut self, _alignment: &Alignment) {}
    /// A cycle ends, under `settings`. On rank 0, returns the settings to change to. Also called at
    /// the end of the job, if no cycle has begun or the last one has failed and the caller has
    /// marked steps or epochs since.
    fn cycle_ended(&mut self, _cycle: &CycleEnd) -> Option<Settings> {
        None
    }
    /// The engine ends with `error`: no other event follows but the report of the last marks.
    fn ended(&mut self, _error: &Error) {}
    /// Warns about tensors that some ranks wait for.
    ///
    /// # Errors
    /// A tensor that has waited beyond the shutdown limit.
    fn check_stalls(&mut self, _now: Nanos, _pending: &dyn Pending) -> Result<StallCheck, Error> {
        Ok(StallCheck::default())
    }
}

/// Ready times of tensors in the response cache that an observer wants. Times of new tensors come
/// with their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WantedTimes {
    /// None.
    #[default]
    None,
    /// The first and the last of all ranks, from the next cycle on: a few bytes more in each block.
    Range,
    /// Those of each rank, from this cycle on: rank 0 gathers them.
    OfRanks,
}

/// Times since which a tensor is ready, microseconds on rank 0's clock.
pub(crate) enum ReadyTimes<'a> {
    /// For each rank, if known.
    OfRanks(&'a mut dyn Iterator<Item = Option<u64>>),
    /// On the first and on the last rank.
    Range { first_us: u64, last_us: u64 },
}

/// Result of a check for stalled tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StallCheck {
    /// Time of the next check.
    pub(crate) next: Option<Nanos>,
    /// Whether a report is due as soon as the ranks of all pending tensors are known.
    pub(crate) needs_ranks: bool,
}

/// Tensors of a process set that are not complete, for the stall check.
pub(crate) trait Pending {
    /// Lowest rank of the set, as a job rank.
    fn lowest_rank(&self) -> usize;

    /// Tensors that some ranks wait for, as known on the lowest rank. No rank waits for a joined
    /// rank, and a join may wait as long as others train.
    fn outstanding(&self) -> Vec<PendingTensor>;

    /// Time since which the oldest of this rank's tensors waits that the set has not agreed on, or
    /// whose group is not complete. A join may wait as long as others train, but not when all ranks
    /// have joined.
    fn oldest_unanswered(&self) -> Option<Nanos>;
}

/// A tensor that some ranks wait for.
pub(crate) struct PendingTensor {
    pub(crate) name: String,
    /// Distinguishes operations of this name, one after another.
    pub(crate) operation: PendingOperation,
    /// Its ranks; `None` if they are not known in this cycle.
    pub(crate) ranks: Option<PendingRanks>,
}

/// An operation on a tensor of a certain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingOperation {
    /// With this request.
    Requested(u64),
    /// In the response cache since this use.
    Cached(u64),
}

/// Event: a tensor has become ready on all ranks.
pub(crate) struct Negotiated<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) kind: OpKind,
    /// Whether it used the response cache, without a request.
    pub(crate) cached: bool,
}

/// Event: the ranks have agreed on a cycle.
pub(crate) struct Agreed {
    /// Start and end of the negotiation.
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
    /// Whether some rank has no more data.
    pub(crate) has_joined: bool,
    /// The rank that was last to submit its tensors.
    pub(crate) last: Option<Last>,
}

/// Event: a batch has been executed.
pub(crate) struct Executed<'a> {
    pub(crate) members: &'a [&'a Ready],
    pub(crate) stages: Option<&'static Stages>,
    pub(crate) began: Nanos,
    /// Time at which memory for the results was allocated, if that was needed.
    pub(crate) allocated: Option<Nanos>,
    pub(crate) ended: Nanos,
    pub(crate) phases: Phases,
    /// Successive activities on the device, if it reported them. The batch then began when the host
    /// had launched it.
    pub(crate) on_device: Option<&'a [Activity]>,
}

impl Executed<'_> {
    /// Whether the data came with the blocks of the ranks, so that nothing was moved.
    pub(crate) fn is_attached(&self) -> bool {
        self.stages == Some(&attached::STAGES)
    }

    /// Time of the transfer, nanoseconds, without waiting for data or for other batches.
    pub(crate) fn moving_ns(&self) -> u64 {
        let Some(activities) = self.on_device else {
            return (self.ended - self.began).as_nanos() as u64;
        };
        let measured = activities.iter().filter(|activity| activity.measured);
        let collective: u64 = measured
            .map(|activity| (activity.ended - activity.began).as_nanos() as u64)
            .sum();
        collective + self.phases.copy_in_ns + self.phases.copy_out_ns
    }

    /// Time of the transfer, without waiting for data, for other batches or for other ranks.
    pub(crate) fn transfer(&self) -> Duration {
        Duration::from_nanos(self.moving_ns().saturating_sub(self.phases.wait_ns))
    }
}

/// Event: the end of a cycle.
pub(crate) struct CycleEnd {
    pub(crate) settings: Versioned<Settings>,
    /// Times at which the caller marked ends of steps since the last cycle.
    pub(crate) step_marks: Vec<Nanos>,
    /// Times at which the caller marked ends of epochs since the last cycle.
    pub(crate) epoch_marks: Vec<Nanos>,
    /// Time that callers were blocked waiting for results since the last cycle, summed over
    /// threads; zero unless the queue measures it.
    pub(crate) blocked: Duration,
}

/// Observer that ignores all events.
pub(crate) struct NoObserver;

impl Observer for NoObserver {}
