//! Simulated device and its asynchronous collective: streams are agents of the simulated world, so
//! one seed determines when each batch begins and ends, and all other events.
//!
//! Device memory is host memory. Batches of one set run one after another on a stream of their own,
//! by the simulated collective among the devices of the set. A batch that cannot end, because a
//! rank is lost, hangs until it is aborted, as NCCL's do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::SimulatedCollective;
use crate::clock::{Clock, Nanos};
use crate::collective::Collective;
use crate::collective::Reduction;
use crate::collective::asynchronous::{
    AsyncCollective, Batch, DeviceActivities, DeviceClock, LaunchError, Launched, OnEnd,
    OpenDevice, Peers, SetRank,
};
use crate::delivery::Memory;
use crate::device::{Event, Mark, Marks, OnDevice, Stream};
use crate::error::{DeviceError, Error, GpuError};
use crate::negotiation::OpKind;
use crate::sync::lock;
use crate::tensor::{Dtype, Span};
use crate::transport::simulated::{SimulatedClock, SimulatedSet, SimulatedWorker, World};

static ACTIVITIES: DeviceActivities = DeviceActivities {
    init: "INIT_SIM",
    allreduce: "SIM_ALLREDUCE",
    allgather: "SIM_ALLGATHER",
    broadcast: "SIM_BCAST",
    alltoall: "SIM_ALLTOALL",
    reducescatter: "SIM_REDUCESCATTER",
};

/// Longest time between two steps of a stream; shorter times are equally likely.
const STEP_NS_MAX: u64 = 300_000;

/// One rank's device, as one process set uses it.
pub(crate) struct SimulatedDevice {
    set: Arc<SimulatedSet>,
    /// This rank's number in the job.
    rank: usize,
    events: Arc<Events>,
    /// The callers' stream, once it has work.
    callers: OnceLock<SimulatedWorker>,
}

/// Time of each event, on the world's clock.
#[derive(Default)]
struct Events {
    reached: Mutex<HashMap<u64, Option<Nanos>>>,
    count: AtomicU64,
}

impl Events {
    fn has_come(&self, event: Event) -> bool {
        lock(&self.reached)
            .get(&event.0)
            .copied()
            .flatten()
            .is_some()
    }

    fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::SeqCst)
    }
}

impl SimulatedDevice {
    /// The only stream of callers.
    pub(crate) const CALLERS: Stream = Stream(1);

    /// Makes the device of `set`'s rank `set_rank`.
    pub(crate) fn new(set: &Arc<SimulatedSet>, set_rank: usize) -> Arc<Self> {
        Arc::new(Self {
            set: Arc::clone(set),
            rank: set.members()[set_rank],
            events: Arc::default(),
            callers: OnceLock::new(),
        })
    }

    fn world(&self) -> &Arc<World> {
        self.set.world()
    }

    fn callers(&self) -> &SimulatedWorker {
        self.callers.get_or_init(|| {
            SimulatedWorker::start(self.world(), self.rank, "its callers' stream".to_owned())
        })
    }

    /// Makes the caller's stream run `write` after some time; returns the device data of the tensor
    /// that it writes.
    pub(crate) fn submit(
        self: &Arc<Self>,
        is_early: bool,
        write: impl FnOnce() + Send + 'static,
    ) -> Box<OnDevice> {
        let world = Arc::clone(self.world());
        self.callers().put(move || {
            step(&world);
            write();
        });
        Box::new(OnDevice {
            ordinal: 0,
            stream: Self::CALLERS,
            ready: self.mark(self.callers()),
            is_early,
        })
    }

    /// Waits, as an agent, until the callers' stream has finished its work.
    pub(crate) fn synchronize(self: &Arc<Self>) {
        if let Some(callers) = self.callers.get() {
            let last = self.mark(callers);
            self.await_event(last.event);
        }
    }

    fn mark(self: &Arc<Self>, stream: &SimulatedWorker) -> Mark {
        let asked = self.events.count();
        let event = Event(asked);
        lock(&self.events.reached).insert(event.0, None);
        let mark = Mark::new(Arc::clone(self) as Arc<dyn Marks>, event, true, asked);
        let (events, world) = (Arc::clone(&self.events), Arc::clone(self.world()));
        stream.put(move || {
            let now = world.present();
            // A mark that was dropped meanwhile has no entry.
            lock(&events.reached)
                .entry(event.0)
                .and_modify(|reached| *reached = Some(now));
        });
        mark.recorded(self.events.count())
    }

    fn await_event(&self, event: Event) {
        let events = Arc::clone(&self.events);
        self.world()
            .wait("for its device", None, move |_| events.has_come(event));
    }
}

/// Lets some time pass on a stream.
fn step(world: &World) {
    world.sleep_until(world.present() + Duration::from_nanos(world.draw(STEP_NS_MAX)));
}

impl Marks for SimulatedDevice {
    fn has_come(&self, event: Event) -> Result<bool, GpuError> {
        Ok(self.events.has_come(event))
    }

    fn wait(&self, event: Event) -> Result<(), GpuError> {
        self.await_event(event);
        Ok(())
    }

    fn precede(&self, mark: &Mark, stream: Stream) -> Result<(), GpuError> {
        assert_eq!(stream, Self::CALLERS, "callers have one stream");
        let (events, world, event) = (
            Arc::clone(&self.events),
            Arc::clone(self.world()),
            mark.event,
        );
        self.callers().put(move || {
            world.wait("for a result", None, move |_| events.has_come(event));
        });
        Ok(())
    }

    fn retire(&self, event: Event, _: bool) {
        lock(&self.events.reached).remove(&event.0);
    }
}

/// Opens the collective of a device that has several owners.
impl OpenDevice for Arc<SimulatedDevice> {
    fn open(
        &self,
        set_rank: SetRank,
        _: &mut Peers<'_>,
    ) -> Result<Box<dyn AsyncCollective>, LaunchError> {
        let devices = self.set.devices();
        let start = |name: &str| SimulatedWorker::start(self.world(), self.rank, name.to_owned());
        Ok(Box::new(SimulatedAsync {
            device: Arc::clone(self),
            set_rank: set_rank.rank,
            collective: Arc::new(Mutex::new(SimulatedCollective::new(devices, set_rank.rank))),
            state: Arc::default(),
            stream: start("its device's stream"),
            ends: start("its device's completions"),
        }))
    }

    fn wants_times(&self) -> bool {
        true
    }
}

/// Asynchronous collective of the simulated device.
struct SimulatedAsync {
    device: Arc<SimulatedDevice>,
    set_rank: usize,
    collective: Arc<Mutex<SimulatedCollective>>,
    state: Arc<State>,
    stream: SimulatedWorker,
    /// Thread that reports ends.
    ends: SimulatedWorker,
}

#[derive(Default)]
struct State {
    is_aborted: AtomicBool,
    failure: Mutex<Option<GpuError>>,
}

/// Data of a batch that outlives its launch.
struct Owned {
    kind: OpKind,
    spans: Vec<Span>,
    bytes: Vec<usize>,
    reduction: Reduction,
    root: usize,
}

impl Owned {
    fn of(batch: &Batch<'_>) -> Self {
        Self {
            kind: batch.kind,
            spans: batch.spans.to_vec(),
            bytes: batch.bytes.to_vec(),
            reduction: batch.reduction,
            root: batch.root,
        }
    }

    fn run(&self, collective: &mut SimulatedCollective) -> Result<(), Error> {
        let is_absent = self.spans.iter().all(Span::is_absent);
        let absent = collective.set.share(
            collective.rank,
            vec![u8::from(is_absent)],
            "absent",
            |ranks| {
                let ranks = ranks.iter().enumerate();
                ranks
                    .filter(|(_, flag)| flag == &&[1])
                    .map(|(rank, _)| rank)
                    .collect::<Vec<_>>()
            },
        )?;
        let (spans, bytes, reduction) = (&self.spans, &self.bytes, &self.reduction);
        let phases = match self.kind {
            OpKind::Allreduce => collective.allreduce(spans, reduction, &absent),
            OpKind::Allgather => collective.allgather(spans, bytes),
            OpKind::Broadcast => collective.broadcast(spans, self.root),
            OpKind::Alltoall => collective.alltoall(spans, bytes),
            OpKind::Reducescatter => collective.reducescatter(spans, bytes, reduction, &absent),
            OpKind::Join | OpKind::Barrier | OpKind::Agree => return Ok(()),
        };
        phases.map(drop)
    }
}

impl State {
    fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }

    /// Runs a batch, unless an earlier one has failed.
    fn run(
        self: &Arc<Self>,
        world: &World,
        batch: &Owned,
        collective: &Mutex<SimulatedCollective>,
    ) {
        if self.is_aborted() || lock(&self.failure).is_some() {
            return;
        }
        step(world);
        let outcome = batch.run(&mut lock(collective));
        if let Err(error) = outcome {
            let state = Arc::clone(self);
            world.wait("for its abort", None, move |_| state.is_aborted());
            *lock(&self.failure) = Some(GpuError::Call {
                call: "simulated collective",
                name: "aborted".to_owned(),
                text: error.to_string(),
                advice: "",
            });
        }
    }
}

impl AsyncCollective for SimulatedAsync {
    fn activities(&self) -> &'static DeviceActivities {
        &ACTIVITIES
    }

    fn allocate(&self, dtype: Dtype, bytes: usize, _: &OnDevice) -> Option<Memory> {
        Memory::new(dtype, bytes)
    }

    fn launch(
        &mut self,
        batch: &Batch<'_>,
        inputs: &[&Mark],
        _: bool,
        _: &mut Peers<'_>,
    ) -> Result<Launched, LaunchError> {
        let batch = Owned::of(batch);
        let world = self.device.world();
        let inputs: Vec<Event> = inputs.iter().map(|mark| mark.event).collect();
        let (of_stream, events) = (Arc::clone(world), Arc::clone(&self.device.events));
        let state = Arc::clone(&self.state);
        self.stream.put(move || {
            of_stream.wait("for data", None, move |_| {
                state.is_aborted() || inputs.iter().all(|&input| events.has_come(input))
            });
        });
        let mark = || self.device.mark(&self.stream);
        let began = Arc::new(mark());
        let copied_in = mark();
        let (of_stream, state) = (Arc::clone(world), Arc::clone(&self.state));
        let collective = Arc::clone(&self.collective);
        self.stream
            .put(move || state.run(&of_stream, &batch, &collective));
        let reduced = mark();
        Ok(Launched {
            began,
            copied_in,
            crossing: None,
            reduced,
            ended: Arc::new(mark()),
        })
    }

    fn on_end(&mut self, ended: Arc<Mark>, then: OnEnd) {
        let (device, state) = (Arc::clone(&self.device), Arc::clone(&self.state));
        self.ends.put(move || {
            device.await_event(ended.event);
            let failure = lock(&state.failure).clone();
            let outcome = failure.map_or(Ok(()), Err);
            let clock = SimulatedClock::new(device.world(), device.rank);
            let events = Arc::clone(&device.events);
            then(outcome, &mut OfDevice { events, clock });
        });
    }

    fn check(&self) -> Result<(), Error> {
        let failure = lock(&self.state.failure).clone();
        failure.map_or(Ok(()), |error| {
            Err(DeviceError::of_rank(self.device.rank, error).into())
        })
    }

    fn abort(&mut self) {
        self.state.is_aborted.store(true, Ordering::SeqCst);
        let why = Error::Internal {
            rank: self.device.rank,
            message: "the device was given up".to_owned(),
        };
        self.device.set.devices().leave(self.set_rank, Some(&why));
    }

    fn last(&self) -> Option<Mark> {
        Some(self.device.mark(&self.stream))
    }

    fn wait_until(&self, patience: Duration, is_so: &dyn Fn() -> bool) -> bool {
        let world = self.device.world();
        if !world.is_inside() {
            return true; // the rank vanishes, and its device does nothing any more
        }
        let end = world.present() + patience;
        while !is_so() && world.present() < end {
            world.sleep_until(world.present() + Duration::from_millis(1));
        }
        is_so()
    }
}

impl Drop for SimulatedAsync {
    fn drop(&mut self) {
        if !self.state.is_aborted() {
            self.device.set.devices().leave(self.set_rank, None);
        }
    }
}

/// A device's time on its rank's clock.
struct OfDevice {
    events: Arc<Events>,
    clock: SimulatedClock,
}

impl DeviceClock for OfDevice {
    fn align(&mut self, _: &dyn Clock) -> bool {
        true
    }

    fn time_of(&self, mark: &Mark) -> Option<Nanos> {
        let reached = lock(&self.events.reached)
            .get(&mark.event.0)
            .copied()
            .flatten();
        reached.map(|reached| self.clock.at(reached))
    }
}
