//! A rank's engine in one simulated set: the real cycle and the real drivers on simulated
//! interfaces.
//!
//! Simulated programs use internals of the runtime only through this module.

#![allow(unsafe_code)] // spans over the test's own buffers

use std::sync::{Arc, Mutex, TryLockError};

use super::record::{Diary, Log, Recorder};
use crate::clock::{Clock, Nanos, Reference};
use crate::collective::asynchronous::OpenDevice;
use crate::collective::simulated::{SimulatedCollective, SimulatedDevice};
use crate::command::Command;
use crate::context::ProcessSet;
use crate::cycle::engine::{Engine, EngineGroup};
use crate::cycle::{Cycle, Parts, Stalls};
use crate::error::Error;
use crate::negotiation::{JOIN, OpKind, Params, ResponseCache};
use crate::queue::{Entry, Output, TensorQueue, Ticket};
use crate::settings::Settings;
use crate::settings_cell::{SettingsCell, SettingsSource};
use crate::sync::lock;
use crate::tensor::{Dtype, Shape, Span};
use crate::transport::Transport;
use crate::transport::simulated::{SimulatedClock, SimulatedSet, SimulatedTransport, World};

/// Settings of a member's engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) cache_capacity: usize,
    /// Capacity up to which the cache may grow.
    pub(super) cache_capacity_max: usize,
    pub(super) threshold_bytes: u64,
    pub(super) early: bool,
    /// Number of cycles after which set rank 0 changes the settings; 0 = never.
    pub(super) retune_every: u64,
}

/// State that the engines of one simulated rank share.
#[derive(Clone, Default)]
pub(super) struct RankState {
    engine_group: Arc<EngineGroup>,
    /// Rank 0's clock.
    reference: Arc<Reference>,
}

/// Engine of one rank in one set, with its logs.
#[derive(Clone)]
pub(super) struct Member {
    world: Arc<World>,
    engine: Arc<Engine>,
    members: Vec<usize>,
    device: Arc<SimulatedDevice>,
    log: Arc<Mutex<Log>>,
    diary: Arc<Mutex<Diary>>,
}

impl Member {
    /// Starts the engine of set rank `rank`, with its own background agent; `rank_state` is shared
    /// by the engines of that rank.
    pub(super) fn start(
        world: &Arc<World>,
        set: &Arc<SimulatedSet>,
        rank: usize,
        setup: Setup,
        rank_state: &RankState,
    ) -> Self {
        let transport = Box::new(SimulatedTransport::new(set, rank));
        Self::over(transport, world, set, setup, rank_state, None)
    }

    /// Calls [`start`](Self::start) with tensors in device memory on `device`.
    pub(super) fn on_device(
        world: &Arc<World>,
        set: &Arc<SimulatedSet>,
        rank: usize,
        setup: Setup,
        device: Arc<dyn OpenDevice>,
    ) -> Self {
        let transport = Box::new(SimulatedTransport::new(set, rank));
        let simulated = SimulatedDevice::new(set, rank);
        let rank_state = RankState::default();
        Self::with(
            transport,
            world,
            set,
            setup,
            &rank_state,
            None,
            (simulated, device),
        )
    }

    /// Calls [`start`](Self::start) with `transport` of a rank of `set`. `stalls` ends operations
    /// that wait too long.
    pub(super) fn over(
        transport: Box<dyn Transport>,
        world: &Arc<World>,
        set: &Arc<SimulatedSet>,
        setup: Setup,
        rank_state: &RankState,
        stalls: Option<Stalls>,
    ) -> Self {
        let simulated = SimulatedDevice::new(set, transport.rank());
        let device = Arc::new(Arc::clone(&simulated));
        Self::with(
            transport,
            world,
            set,
            setup,
            rank_state,
            stalls,
            (simulated, device),
        )
    }

    fn with(
        transport: Box<dyn Transport>,
        world: &Arc<World>,
        set: &Arc<SimulatedSet>,
        setup: Setup,
        rank_state: &RankState,
        stalls: Option<Stalls>,
        (simulated, device): (Arc<SimulatedDevice>, Arc<dyn OpenDevice>),
    ) -> Self {
        let rank = transport.rank();
        let job_rank = set.members()[rank];
        let log = Arc::new(Mutex::new(Log::default()));
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(world, job_rank));
        let queue = Arc::new(TensorQueue::new(
            job_rank,
            setup.early,
            transport.doorbell(),
            clock,
        ));
        rank_state.engine_group.add(Arc::clone(&queue));
        let diary = Arc::new(Mutex::new(Diary::default()));
        let observer = Recorder {
            log: Arc::clone(&log),
            diary: Arc::clone(&diary),
            world: Arc::clone(world),
            clock: SimulatedClock::new(world, job_rank),
            retune_every: if rank == 0 { setup.retune_every } else { 0 },
            cycles: 0,
            checked: 0,
            stalls,
        };
        let settings = Settings {
            fusion_threshold_bytes: setup.threshold_bytes,
            ..Settings::default()
        };
        let cycle = Cycle::new(Parts {
            members: set.members().into(),
            transport,
            collective: Box::new(SimulatedCollective::new(set, rank)),
            observer: Box::new(observer),
            queue: Arc::clone(&queue),
            cache: ResponseCache::new(setup.cache_capacity, setup.cache_capacity_max),
            reference: Arc::clone(&rank_state.reference),
            is_world: set.members().len() == world.ranks(),
            settings: SettingsSource::Decides(Arc::new(SettingsCell::new(settings))),
            early: setup.early,
            device,
        });
        let engine = Arc::new(Engine {
            queue,
            cycle: Mutex::new(cycle),
            rank: job_rank,
            engine_group: Arc::clone(&rank_state.engine_group),
        });
        let background = Arc::clone(&engine);
        let name = format!("background of the set {:?}", set.members());
        world.spawn(job_rank, name, move || background.run());
        Self {
            world: Arc::clone(world),
            engine,
            members: set.members().to_vec(),
            device: simulated,
            log,
            diary,
        }
    }

    /// Submits the sum of `buffer` over the set, in place.
    ///
    /// The buffer is neither moved nor accessed until the ticket is complete. (A rank that vanishes
    /// frees it earlier; its other agents then vanish without another access.)
    pub(super) fn submit_sum(&self, name: &str, buffer: &mut [i64]) -> Result<Arc<Ticket>, Error> {
        let shape = [buffer.len()].into_iter().collect();
        let address = buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller keeps the buffer, as documented above.
        let span = unsafe { Span::new(address, address, size_of_val(buffer)) };
        self.submit(name, OpKind::Allreduce, Dtype::I64, shape, Some(span))
    }

    /// Submits such a sum in device memory: the caller's stream writes `contribution` to the buffer
    /// after some time. `is_early`: the ticket completes once the batch is launched.
    ///
    /// The buffer is neither moved nor accessed until the ticket is complete and the stream is
    /// [synchronized](Self::synchronize).
    pub(super) fn submit_sum_on_device(
        &self,
        name: &str,
        buffer: &mut [i64],
        contribution: Vec<i64>,
        is_early: bool,
    ) -> Result<Arc<Ticket>, Error> {
        assert_eq!(buffer.len(), contribution.len());
        let address = buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller keeps the buffer, as documented above.
        let span = unsafe { Span::new(address, address, size_of_val(buffer)) };
        let to = address.expose_provenance();
        let write = move || {
            let to = std::ptr::with_exposed_provenance_mut::<i64>(to);
            // SAFETY: the buffer has that length, and is the caller's until the stream is
            // synchronized; a batch waits for this write.
            unsafe { std::ptr::copy_nonoverlapping(contribution.as_ptr(), to, contribution.len()) };
        };
        let on = self.device.submit(is_early, write);
        let mut params = Params::plain(
            OpKind::Allreduce,
            Dtype::I64,
            [buffer.len()].into_iter().collect(),
        );
        params.device = Some(0);
        self.engine.queue.submit(Entry {
            name,
            params: params.into(),
            span: Some(span),
            output: Output::Fixed,
            on: Some(on),
        })
    }

    /// Makes the caller's stream wait for the result of a ticket that completed before it.
    pub(super) fn follow(&self, ticket: &Ticket) {
        if let Some(ended) = ticket.awaited() {
            ended
                .precede(SimulatedDevice::CALLERS)
                .expect("it does not fail");
        }
    }

    /// Waits until the caller's stream has executed all its work.
    pub(super) fn synchronize(&self) {
        self.device.synchronize();
    }

    /// Submits a tensor without changes.
    pub(super) fn submit_entry(&self, entry: Entry<'_>) -> Result<Arc<Ticket>, Error> {
        self.engine.queue.submit(entry)
    }

    /// Submits a barrier.
    pub(super) fn submit_barrier(&self, name: &str) -> Result<Arc<Ticket>, Error> {
        self.submit(name, OpKind::Barrier, Dtype::F32, Default::default(), None)
    }

    /// Submits a join.
    pub(super) fn submit_join(&self) -> Result<Arc<Ticket>, Error> {
        self.submit(JOIN, OpKind::Join, Dtype::U8, Default::default(), None)
    }

    /// Submits a command to all ranks; on rank 0 of the set of all ranks.
    pub(super) fn command(&self, command: Command) -> Result<Arc<Ticket>, Error> {
        self.engine.queue.command(command)
    }

    /// Marks the end of a step and an epoch.
    pub(super) fn mark(&self) {
        self.engine.queue.mark_step();
        self.engine.queue.mark_epoch();
    }

    fn submit(
        &self,
        name: &str,
        kind: OpKind,
        dtype: Dtype,
        shape: Shape,
        span: Option<Span>,
    ) -> Result<Arc<Ticket>, Error> {
        self.engine.queue.submit(Entry {
            name,
            params: Params::plain(kind, dtype, shape).into(),
            span,
            output: Output::Fixed,
            on: None,
        })
    }

    /// Waits for `ticket` as a caller does, at most until `deadline`, in the world's time. The seed
    /// decides whether it drives the cycle meanwhile, if it can, or leaves it to the background
    /// agent.
    pub(super) fn wait(&self, ticket: &Arc<Ticket>, deadline: Option<Nanos>) -> bool {
        let drives = self.world.draw(2) == 0;
        let (engine, awaited) = (Arc::clone(&self.engine), Arc::clone(ticket));
        self.world.wait("for its ticket", deadline, move |_| {
            awaited.is_done() || drives && is_free(&engine)
        });
        // If the cycle is free, the engine never sleeps outside the world.
        if !ticket.is_done() && is_free(&self.engine) {
            let clock = SimulatedClock::new(&self.world, self.engine.rank);
            self.engine.wait(ticket, deadline.map(|end| clock.at(end)));
        }
        ticket.is_done()
    }

    /// Shuts down the engine and its background agent.
    pub(super) fn shut_down(&self) {
        self.engine.queue.begin_closing();
        self.engine.queue.doorbell.wake_self();
        let engine = Arc::clone(&self.engine);
        self.world
            .wait("for its last cycle", None, move |_| is_free(&engine));
        self.engine.engine_group.remove(&self.engine.queue);
        assert!(
            self.engine.shut_down(&Error::ShutDown),
            "nobody holds the cycle"
        );
    }

    /// Returns the set for a program, with the number `id`. Operations that are submitted to it
    /// must be waited for with [`wait`](Self::wait).
    pub(super) fn process_set(&self, id: u32) -> ProcessSet {
        ProcessSet::around(Arc::clone(&self.engine), id, &self.members)
    }

    /// Returns its log, which the engine writes.
    pub(super) fn log(&self) -> Arc<Mutex<Log>> {
        Arc::clone(&self.log)
    }

    /// Returns its diary, which the engine writes.
    pub(super) fn diary(&self) -> Arc<Mutex<Diary>> {
        Arc::clone(&self.diary)
    }

    /// Number of cycles so far.
    pub(super) fn cycles(&self) -> usize {
        lock(&self.log).versions.len()
    }
}

/// Whether the cycle is not locked.
fn is_free(engine: &Engine) -> bool {
    !matches!(engine.cycle.try_lock(), Err(TryLockError::WouldBlock))
}
