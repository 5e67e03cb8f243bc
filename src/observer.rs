//! What may watch the cycle: the timeline, the step metrics, the tuner and the stall inspector in a
//! job, a log in the simulator. The cycle tells, and is told one thing back: settings to change to.

use crate::clock::{Alignment, Nanos};
use crate::collective::{Phases, Stages};
use crate::command::TimelineCommand;
use crate::error::Error;
use crate::identity::Hosts;
use crate::negotiation::OpKind;
use crate::queue::Tensor;
use crate::ready::Ready;
use crate::settings::{Settings, Versioned};
use crate::timeline::Activity;

/// Watches cycles go by: timeline, step metrics and tuner in a job, a log in the simulator. It must
/// be quick; it runs between the collectives.
pub(crate) trait Observer: Send {
    /// The rendezvous is complete; `hosts` is the distribution of the ranks over hosts.
    fn connected(&mut self, _hosts: Hosts) {}
    /// A cycle begins.
    fn cycle_began(&mut self, _now: Nanos) {}
    /// A tensor has become ready on all ranks; `ready_us` gives each rank's time, where it is
    /// known, in microseconds on rank 0's clock. Told on the lowest rank of a set.
    fn negotiated(&mut self, _negotiated: &Negotiated<'_>, _ready_us: &mut dyn Iterator<Item = Option<u64>>) {
    }
    /// The ranks have agreed on this cycle; negotiation took from when it began until `now`.
    /// `joined`: some rank has no more data.
    fn agreed(&mut self, _began: Nanos, _now: Nanos, _joined: bool) {}
    /// A batch has been moved.
    fn executed(&mut self, _batch: &Executed<'_>) {}
    /// The ranks disagreed about a tensor.
    fn refused(&mut self, _tensor: &Tensor, _error: &Error) {}
    /// Rank 0 has every rank start or stop its timeline, in this same cycle: when it has ended,
    /// before the next one begins.
    ///
    /// # Errors
    /// A file that cannot be written; the job goes on.
    fn apply_timeline_command(&mut self, _command: &TimelineCommand) -> Result<(), Error> {
        Ok(())
    }
    /// How this rank's clock relates to rank 0's has been measured anew: after a cycle has begun
    /// and before it brings anything else. Never on rank 0, nor where ranks share a clock.
    fn aligned(&mut self, _alignment: &Alignment) {}
    /// A cycle ends, under `settings`; the answer, on rank 0, is what to change them to. Once more
    /// at the job's end, where no cycle has begun or the last one has failed, if the caller has
    /// marked something since.
    fn cycle_ended(&mut self, _cycle: &CycleEnd) -> Option<Settings> {
        None
    }
    /// Warns about tensors that some ranks wait for; returns when to check again.
    ///
    /// # Errors
    /// A tensor that has waited beyond the shutdown limit.
    fn check_stalls(&mut self, _now: Nanos, _pending: &dyn Pending) -> Result<Option<Nanos>, Error> {
        Ok(None)
    }
}

/// The tensors of a process set that are not complete, for the stall check.
pub(crate) trait Pending {
    /// The lowest rank of the set, as a rank of the job.
    fn lowest_rank(&self) -> usize;

    /// Tensors that some ranks wait for, as the lowest rank knows them: name, since when, and the
    /// ranks of the job that have submitted it and that have not. A rank that has joined misses
    /// nothing, and a join may wait as long as others train.
    fn outstanding(&self, each: &mut dyn FnMut(&str, Nanos, Vec<usize>, Vec<usize>));

    /// Since when the oldest of this rank's tensors waits that the set has not agreed on, or whose
    /// group is not complete. A join may wait for as long as others train, but not when all have
    /// joined.
    fn oldest_unanswered(&self) -> Option<Nanos>;
}

/// What an observer learns of a tensor that has become ready.
pub(crate) struct Negotiated<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) kind: OpKind,
    /// Through the response cache, without a request.
    pub(crate) cached: bool,
}

/// What an observer learns of a batch.
pub(crate) struct Executed<'a> {
    pub(crate) members: &'a [&'a Ready],
    pub(crate) stages: Option<&'static Stages>,
    pub(crate) began: Nanos,
    /// When memory for the results had been allocated, if that was needed.
    pub(crate) allocated: Option<Nanos>,
    pub(crate) ended: Nanos,
    pub(crate) phases: Phases,
    /// What happened one after another, where a device has said so; then it began when the host had
    /// launched it.
    pub(crate) on_device: Option<&'a [Activity]>,
}

impl Executed<'_> {
    /// How long it was moved, nanoseconds: not how long it waited for its data or its turn.
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
}

/// What an observer learns when a cycle ends.
pub(crate) struct CycleEnd {
    pub(crate) settings: Versioned<Settings>,
    /// When the caller marked the ends of steps since the last cycle.
    pub(crate) step_marks: Vec<Nanos>,
    /// Likewise of epochs.
    pub(crate) epoch_marks: Vec<Nanos>,
}

/// Sees nothing.
pub(crate) struct NoObserver;

impl Observer for NoObserver {}
