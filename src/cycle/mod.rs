//! The cycle: one [`step`](Cycle::step) takes what was submitted, agrees with the other ranks on
//! what is ready everywhere, packs it into batches, moves them, and completes their tickets.
//!
//! A step decides nothing by the clock: threads and waiting are in `engine`, so the simulator runs
//! the same code under a seed. All ranks do the same, because a cycle decides only from the
//! agreement of its exchange and from the response cache, which agreements alone change.
//!
//! Each phase has a file of its own. Beside them: `parts` makes a cycle, `end` ends it, `groups`
//! holds back incomplete groups, `device` launches batches on a device, `clocks` compares clocks,
//! `liveness` and `stalls` look for lost peers and for tensors that have waited too long.

mod clocks;
mod collect;
mod device;
mod end;
pub(crate) mod engine;
mod execute;
mod finish;
mod groups;
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
use crate::negotiation::{Agreement, Block, Coordinator, Request, ResponseCache};
use crate::observer::Observer;
use crate::queue::{PendingCommand, Submission, TensorQueue};
use crate::ready::Ready;
use crate::settings::{Settings, Versioned};
use crate::settings_cell::SettingsSource;
use crate::transport::Transport;

impl Cycle {
    /// Runs one cycle that begins at `now`. After an error nothing more can be reduced; see
    /// [`end`](Self::end).
    pub(crate) fn step(&mut self, now: Nanos) -> Result<(), Error> {
        self.collect(now)?;
        self.negotiate()?;
        let agreed = self.queue.clock.now();
        self.observer
            .agreed(now, agreed, !self.agreed.joined().is_empty());
        self.plan();
        self.execute(agreed)?;
        self.finish_cycle();
        Ok(())
    }

    /// When the next cycle is due, seen from `now`.
    pub(crate) fn due(&self, now: Nanos) -> Due {
        let next = self.number + 1;
        let pace = self.began + Duration::from_nanos(self.settings.cycle_time_ns);
        let paced = self.number == 0 || now >= pace;
        if self.queue.doorbell.rung() < next {
            Due::Idle((!paced).then_some(pace))
        } else if paced || (self.early && self.queue.doorbell.all_eager(next)) {
            Due::Now
        } else {
            Due::At(pace)
        }
    }
}

/// When the next cycle is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At once.
    Now,
    /// When the cycle time has passed, unless every rank becomes eager before.
    At(Nanos),
    /// When some rank asks for it; not before this time, if the cycle time has not passed yet.
    Idle(Option<Nanos>),
}

/// See the module.
pub(crate) struct Cycle {
    /// The process set: ranks of the job in ascending order. Ranks elsewhere in here are places in
    /// this list.
    members: Arc<[usize]>,
    transport: Box<dyn Transport>,
    collective: Box<dyn Collective>,
    observer: Box<dyn Observer>,
    queue: Arc<TensorQueue>,
    early: bool,

    /// The cycle that runs or ran last; the first is 1.
    number: u64,
    began: Nanos,
    /// In force in this set.
    settings: Versioned<Settings>,
    /// Where they come from.
    source: SettingsSource,

    cache: ResponseCache,
    coordinator: Option<Coordinator>,
    block: Block,
    agreed: Agreement,
    /// Cached tensors that are ready here, by slot.
    hits: Vec<Option<Submission>>,
    hits_held: usize,
    /// Tensors that were or will be asked for by a request.
    misses: HashMap<Arc<str>, Submission>,
    unsent: Vec<Request>,
    /// This rank has no more data, until all ranks have none.
    joined: bool,
    /// When the cycle began in which all ranks were first seen to have joined, until their joins
    /// are answered.
    all_joined_at: Option<Nanos>,
    groups: groups::Groups,
    clocks: clocks::Clocks,
    /// What this rank has ordered and no cycle has carried out; on rank 0.
    commands: Vec<PendingCommand>,
    /// What is to be carried out at the end of this cycle; the same on every rank.
    agreed_commands: Vec<TimelineCommand>,

    // Emptied and filled again in every cycle; kept for their memory.
    incoming: Vec<Submission>,
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
    /// Why no more cycles run, if so.
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// This rank's number in the job.
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
