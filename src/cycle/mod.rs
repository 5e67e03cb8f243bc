//! The cycle: one `step` takes what was submitted, agrees with the other ranks on what is ready everywhere, packs
//! it into batches, moves them, and hands the results back.
//!
//! `step` asks for nothing but the present: threads, sleeping and the machine's clock are outside
//! ([`crate::drive`]), so the simulator runs the same code under a seed. What makes all ranks do the same in the
//! same order: a cycle decides only from the agreement of its exchange (the same everywhere) and from the
//! response cache (changed only by agreements).
//!
//! The phases lie in files of their own: `negotiate` (what is ready everywhere), `groups` (who waits for mates),
//! `plan` (which tensors share a batch), `execute` (moving them; `device`: those on a GPU), `complete` (closing the books, in the
//! end for good).
//! `clocks` compares the ranks' clocks now and then; `stalls` finds tensors that have waited too long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::{Nanos, Reference};
use crate::collective::Collective;
use crate::error::Error;
use crate::fusion::Plan;
use crate::gpu::DeviceBinding;
use crate::negotiation::coordinator::Ticks;
use crate::negotiation::{Coordinator, OpKind, Order, Params, Request, ResponseCache};
use crate::observer::{NoObserver, Observer};
use crate::queue::{Ordered, Submission, TensorQueue};
use crate::settings::Settings;
use crate::transport::{Agreement, Block, Transport};

mod clocks;
mod complete;
mod device;
mod execute;
mod groups;
mod negotiate;
mod plan;
mod ready;
mod stalls;

use clocks::Clocks;
use groups::Groups;
pub(crate) use ready::Ready;
pub(crate) use stalls::Stalls;

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
    /// The process set: ranks of the job in ascending order. Ranks elsewhere in here are places in this list.
    members: Arc<[usize]>,
    transport: Box<dyn Transport>,
    collective: Box<dyn Collective>,
    observer: Box<dyn Observer>,
    queue: Arc<TensorQueue>,
    early: bool,

    /// The cycle that runs or ran last; the first is 1.
    number: u64,
    began: Nanos,
    settings: Settings,
    /// Settings to publish with the next block: newer than `settings` if this rank wants a change.
    newest: Settings,

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
    /// When the cycle began in which all ranks were first seen to have joined, until their joins are answered.
    all_joined_at: Option<Nanos>,
    groups: Groups,
    clocks: Clocks,
    /// What this rank has ordered and no cycle has carried out; on rank 0.
    orders: Vec<Ordered>,
    /// What is to be carried out at the end of this cycle; the same on every rank.
    ordered: Vec<Order>,

    // Emptied and filled again in every cycle; kept for their memory.
    incoming: Vec<Submission>,
    ready: Vec<Ready>,
    packing: plan::Packing,
    plan: Plan,
    load: execute::Load,
    gpu: device::OnGpu,
    frame: Vec<u8>,
    frames: Vec<Vec<u8>>,
    ticks: Vec<Ticks>,

    ended: Option<Error>,
}

/// What a cycle is made of.
pub(crate) struct Parts {
    /// The process set: ranks of the job, ascending.
    pub(crate) members: Arc<[usize]>,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) collective: Box<dyn Collective>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) queue: Arc<TensorQueue>,
    pub(crate) cache: ResponseCache,
    /// Rank 0's clock, for all process sets of the rank.
    pub(crate) reference: Arc<Reference>,
    /// Whether this is the set of all ranks, which compares the clocks.
    pub(crate) is_world: bool,
    pub(crate) settings: Settings,
    /// Whether a cycle may start before the cycle time has passed.
    pub(crate) early: bool,
    /// Where tensors on GPUs live.
    pub(crate) binding: Arc<DeviceBinding>,
    /// Bytes that one batch of theirs may hold, where the settings allow more.
    pub(crate) gpu_fusion_threshold_bytes: u64,
}

impl Cycle {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            members,
            transport,
            collective,
            observer,
            queue,
            cache,
            reference,
            is_world,
            settings,
            early,
            binding,
            gpu_fusion_threshold_bytes,
        } = parts;
        let compares = transport.size() > 1 && !transport.shares_clock();
        let clocks = Clocks::new(reference, is_world && compares && transport.rank() == 0);
        let coordinator = (transport.rank() == 0).then(|| Coordinator::new(Arc::clone(&members)));
        let agreed = Agreement::new(coordinator.is_some());
        Self {
            gpu: device::OnGpu::new(binding, Arc::clone(&queue)),
            members,
            transport,
            collective,
            observer,
            queue,
            early,
            number: 0,
            began: Nanos(0),
            settings,
            newest: settings,
            cache,
            coordinator,
            block: Block::new(0),
            agreed,
            hits: Vec::new(),
            hits_held: 0,
            misses: HashMap::new(),
            unsent: Vec::new(),
            joined: false,
            all_joined_at: None,
            groups: Groups::default(),
            clocks,
            orders: Vec::new(),
            ordered: Vec::new(),
            incoming: Vec::new(),
            ready: Vec::new(),
            packing: plan::Packing::new(gpu_fusion_threshold_bytes),
            plan: Plan::default(),
            load: execute::Load::default(),
            frame: Vec::new(),
            frames: Vec::new(),
            ticks: Vec::new(),
            ended: None,
        }
    }

    /// Runs one cycle that begins at `now`. After an error nothing more can be reduced; see [`end`](Self::end).
    pub(crate) fn step(&mut self, now: Nanos) -> Result<(), Error> {
        self.collect(now)?;
        self.negotiate()?;
        let agreed = self.queue.clock.now();
        self.observer
            .agreed(now, agreed, !self.agreed.joined().is_empty());
        self.plan();
        self.execute(agreed)?;
        self.complete();
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

    // ---- collect -------------------------------------------------------------------------------------------

    /// Takes what was submitted and finds out what is in the cache.
    fn collect(&mut self, now: Nanos) -> Result<(), Error> {
        self.number += 1;
        self.began = now;
        self.observer.cycle_began(now);
        let mut incoming = std::mem::take(&mut self.incoming);
        self.queue
            .collect(&mut incoming, &mut self.orders, self.number + 1);
        self.land()?; // after: what is submitted again by now has completed before, or waits in the launch throttle
        self.gpu.throttle.sift(&mut incoming);
        self.clocks.refresh();
        for submission in incoming.drain(..) {
            self.joined |= submission.params.kind == OpKind::Join;
            let cached = if self.settings.cache {
                self.find_cached(&submission)
            } else {
                None // where a slot holds it still, that is emptied
            };
            match cached {
                Some(slot) => {
                    let ready_us = self.clocks.to_reference_us(submission.at);
                    self.block.set(slot as usize, ready_us);
                    self.hits[slot as usize] = Some(submission);
                    self.hits_held += 1;
                }
                None => self.ask(submission),
            }
        }
        self.incoming = incoming;
        Ok(())
    }

    /// The cache slot that holds exactly this submission.
    fn find_cached(&self, submission: &Submission) -> Option<u32> {
        let holds = |slot: &u32| {
            self.cache.get(*slot).is_some_and(|entry| {
                same(&entry.name, &submission.tensor.name) && same(&entry.params, &submission.params)
            })
        };
        let hint = submission.tensor.slot.load(Ordering::Relaxed);
        let slot = Some(hint)
            .filter(holds)
            .or_else(|| self.cache.slot(&submission.tensor.name).filter(holds))?;
        submission.tensor.slot.store(slot, Ordering::Relaxed);
        Some(slot)
    }

    /// Has the tensor asked for in the next slow path.
    fn ask(&mut self, submission: Submission) {
        let name = Arc::clone(&submission.tensor.name);
        self.unsent.push(Request {
            name: Arc::clone(&name),
            params: Params::clone(&submission.params),
            ready_us: submission.at.as_micros(), // on this rank's clock until it is sent
        });
        self.misses.insert(name, submission);
    }

    // ---- between cycles ------------------------------------------------------------------------------------

    /// Asks for a first cycle where clocks are to be compared: before anything else, for the sake of all process sets.
    pub(crate) fn begin(&self) {
        if self.number == 0 && self.clocks.want_comparing(self.began) {
            self.queue.doorbell.ring(1);
        }
    }

    /// Tensors picked up and not yet through.
    pub(crate) fn pending(&self) -> usize {
        self.hits_held
            + self.misses.len()
            + self.groups.held().len()
            + self.gpu.throttle.waiting()
            + self.gpu.in_flight()
    }

    /// Tensors that some ranks wait for, as the lowest rank knows it: name, since when, and the ranks of the job that
    /// have submitted it and that have not. Who has joined misses nothing, and a join may wait as long as others train.
    pub(crate) fn outstanding(&self, mut each: impl FnMut(&str, Nanos, Vec<usize>, Vec<usize>)) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        let mut tell = |name: &str, ready_us: &dyn Fn(usize) -> Option<u64>| {
            let times = (0..self.members.len()).map(ready_us);
            let since_us = times.flatten().min();
            let since = since_us.map_or(self.began, |us| clocks::micros(self.clocks.to_own_us(us)));
            let has = |rank: &usize| ready_us(*rank).is_some();
            let misses = |rank: &usize| !has(rank) && !self.agreed.joined().contains(rank);
            let ranks = || 0..self.members.len();
            let submitted = ranks().filter(has).map(|rank| self.members[rank]).collect();
            let missing = ranks().filter(misses).map(|rank| self.members[rank]).collect();
            each(name, since, submitted, missing);
        };
        for (name, ready_us) in coordinator.outstanding() {
            tell(name, &|rank| ready_us[rank]);
        }
        let words = self.agreed.common.len();
        for index in 0..words {
            let any =
                (0..self.agreed.ranks()).fold(0, |any, rank| any | self.agreed.ready[rank * words + index]);
            let mut word = any & !self.agreed.common[index];
            while word != 0 {
                let slot = index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                if let Some(entry) = self.cache.get(slot as u32) {
                    tell(&entry.name, &|rank| self.agreed.ready_on(rank, slot));
                }
            }
        }
    }

    /// Polls the device for finished batches, and requests a cycle if waiting tensors may be launched now.
    pub(crate) fn poll_device(&mut self) -> Result<(), Error> {
        if self.land()? && self.gpu.throttle.may_open() {
            self.queue.call_for(self.number + 1);
        }
        Ok(())
    }

    /// Checks that peers are alive and reports stalled tensors while no cycle runs. Returns the time of the next check.
    pub(crate) fn check_liveness(&mut self, now: Nanos) -> Result<Option<Nanos>, Error> {
        let pending = self.pending() > 0;
        if pending {
            self.transport.check_peers()?;
            self.gpu.check()?;
        }
        // The observer looks at the cycle that holds it: taken out for the moment.
        let mut observer = std::mem::replace(&mut self.observer, Box::new(NoObserver));
        let next = observer.look_at_stalls(now, self);
        self.observer = observer;
        let next_peers = pending.then(|| now + PEER_CHECK_INTERVAL);
        Ok([next?, next_peers].into_iter().flatten().min())
    }

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

/// How often peers are looked at while work is pending but no cycle runs.
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Whether both are equal: mostly they are one.
fn same<T: PartialEq + ?Sized>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn internal(rank: usize, doing: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Internal {
        rank,
        message: format!("{doing}: {error}"),
    }
}
