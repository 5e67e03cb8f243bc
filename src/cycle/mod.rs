//! The cycle: one [`step`](Cycle::step) takes submissions, agrees with the other ranks on the
//! tensors that are ready everywhere, packs them into batches, executes these, and completes their
//! tickets.
//!
//! A step makes no decision by the clock: threads and waiting are in `engine`, so the simulator
//! runs the same code under a seed. All ranks act alike, because a cycle decides only from the
//! agreement of its exchange, from rank 0's answer to requests, and from the response cache, which
//! only these two change.
//!
//! Each phase has its own file. Beside them: `parts` makes a cycle, `end` ends it, `attached` sends
//! small inputs with the blocks, `groups` holds back incomplete groups, `details` asks which ranks
//! have which tensors ready, `hold` delays cycles where that saves a batch, `device` launches
//! batches on a device, `clocks` compares clocks, `liveness` and `stalls` detect lost peers and
//! tensors that have waited too long.

mod attached;
mod clocks;
mod collect;
mod details;
mod device;
mod end;
pub(crate) mod engine;
mod execute;
mod finish;
mod groups;
mod hold;
mod liveness;
mod negotiate;
mod parts;
mod plan;
mod stalls;

pub(crate) use parts::Parts;
pub(crate) use stalls::Stalls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Nanos;
use crate::collective::Collective;
use crate::command::TimelineCommand;
use crate::error::Error;
use crate::fusion::Plan;
use crate::negotiation::coordinator::Ticks;
use crate::negotiation::{Agreement, Block, Coordinator, Details, Request, ResponseCache};
use crate::observer::{Agreed, Observer};
use crate::queue::{PendingCommand, Submission, TensorQueue};
use crate::ready::Ready;
use crate::settings::{Settings, Versioned};
use crate::settings_cell::SettingsSource;
use crate::transport::Transport;

impl Cycle {
    /// Runs one cycle that begins at `now`. After an error, the cycle can only be ended; see
    /// [`end`](Self::end).
    pub(crate) fn step(&mut self, now: Nanos) -> Result<(), Error> {
        self.collect(now)?;
        self.negotiate()?;
        let agreed = self.queue.clock.now();
        self.observer.agreed(&Agreed {
            began: now,
            ended: agreed,
            has_joined: !self.agreed.joined().is_empty(),
            last: self.agreed.last(),
        });
        self.plan();
        self.execute(agreed)?;
        self.finish_cycle();
        Ok(())
    }

    /// Returns when the next cycle is due, seen from `now`.
    pub(crate) fn due(&mut self, now: Nanos) -> Due {
        let next = self.number + 1;
        let pace = self
            .paced_from
            .map_or(now, |began| began + self.cycle_time());
        if self.queue.doorbell.rung() < next {
            return Due::Idle((now < pace).then_some(pace));
        }
        let mut begin = now.max(pace);
        if self.early {
            begin = self.holding.begin(begin, || self.queue.step_began());
        }
        if now >= begin || (self.early && self.queue.doorbell.all_eager(next)) {
            Due::Now
        } else {
            Due::At(begin)
        }
    }
}

/// When the next cycle is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Now.
    Now,
    /// When the cycle time and a hold have passed, or earlier if every rank becomes eager.
    At(Nanos),
    /// When any rank requests it; not before this time, if the cycle time has not passed yet.
    Idle(Option<Nanos>),
}

/// Cycle of one process set on one rank, with all its state between steps.
pub(crate) struct Cycle {
    /// The process set: ranks of the job in ascending order. Other ranks in this struct are
    /// positions in this list.
    members: Arc<[usize]>,
    transport: Box<dyn Transport>,
    collective: Box<dyn Collective>,
    observer: Box<dyn Observer>,
    queue: Arc<TensorQueue>,
    early: bool,

    /// Number of the cycle that runs or ran last; the first is 1.
    number: u64,
    began: Nanos,
    /// Start of the last cycle; `None` before the first one, and if the cycle time has changed
    /// since.
    paced_from: Option<Nanos>,
    holding: hold::Holding,
    /// Whether this rank has submitted all tensors of the last step, and none of the next.
    between_steps: bool,
    /// Settings in force in this set.
    settings: Versioned<Settings>,
    /// Source of changed settings.
    source: SettingsSource,

    cache: ResponseCache,
    coordinator: Option<Coordinator>,
    block: Block,
    agreed: Agreement,
    /// The agreement has the inputs of all tensors of this cycle.
    is_attached: bool,
    details: Details,
    /// A report of stalled tensors is due, and needs details of the next cycle.
    reports_stalls: bool,
    /// When to check stalled tensors if there is no time between cycles.
    next_stall_check: Nanos,
    /// Cached tensors that are ready here, by slot.
    hits: Vec<Option<Submission>>,
    hits_held: usize,
    /// Tensors that were or will be announced by a request.
    misses: HashMap<Arc<str>, Submission>,
    unsent: Vec<Request>,
    /// This rank has joined, and not all ranks have.
    joined: bool,
    /// On rank 0: the next cycle is needed because ranks have joined in this one, or all have.
    awaits_joins: bool,
    /// Start of the cycle in which all ranks were first seen to have joined, until their joins
    /// complete.
    all_joined_at: Option<Nanos>,
    groups: groups::Groups,
    clocks: clocks::Clocks,
    /// Commands of this rank that no cycle has applied yet; on rank 0.
    commands: Vec<PendingCommand>,
    /// Commands to apply at the end of this cycle; the same on every rank.
    agreed_commands: Vec<TimelineCommand>,

    // Cleared and filled in every cycle; kept for their memory.
    incoming: Vec<Submission>,
    /// Times and sizes of the last step's submissions.
    step_times: Vec<(u64, u64)>,
    ready: Vec<Ready>,
    packing: plan::Packing,
    plan: Plan,
    load: execute::Load,
    launches: device::Launches,
    frame: Vec<u8>,
    frames: Vec<Vec<u8>>,
    ticks: Vec<Ticks>,

    ended: Option<Error>,
}

impl Cycle {
    /// Returns why no more cycles run, if the cycle has ended.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Returns the cycle time in force.
    fn cycle_time(&self) -> Duration {
        Duration::from_nanos(self.settings.cycle_time_ns)
    }

    /// Returns this rank's number in the job.
    fn job_rank(&self) -> usize {
        self.members[self.transport.rank()]
    }

    fn malformed(&self, doing: &str, error: &postcard::Error) -> Error {
        internal(self.job_rank(), doing, error)
    }
}

fn internal(rank: usize, doing: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Internal {
        rank,
        message: format!("{doing}: {error}"),
    }
}
