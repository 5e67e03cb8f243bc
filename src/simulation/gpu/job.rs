//! Test job: ranks that are threads of this process, with the real transport and a simulated GPU
//! each.

#![allow(unsafe_code)] // spans over the test's own buffers

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock::MonotonicClock;
use crate::collective::Collective;
use crate::collective::asynchronous::OpenDevice;
use crate::collective::local::LocalCollective;
use crate::cycle::engine::{Engine, EngineGroup};
use crate::cycle::{Cycle, Parts};
use crate::error::Error;
use crate::gpu::simulated::{Fabric, SimulatedGpu};
use crate::gpu::{DeviceBinding, Registry, Stream};
use crate::negotiation::{OpKind, Params, ResponseCache};
use crate::observer::{Executed, Negotiated, Observer, ReadyTimes, WantedTimes};
use crate::queue::{Entry, Output, Tensor, TensorQueue, Ticket};
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::settings::Settings;
use crate::settings_cell::{SettingsCell, SettingsSource};
use crate::sync::lock;
use crate::tensor::{Device, Dtype, ReduceOp, Span};
use crate::transport::Transport;
use crate::transport::local::LocalTransport;

/// GPU fusion threshold, in bytes.
pub(super) const GPU_FUSION_THRESHOLD_BYTES: u64 = 8 << 20;

/// Returns input that differs between ranks and tensors.
pub(super) fn bytes(rank: usize, tensor: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at + 3 * rank + tensor) as u8 % 50)
        .collect()
}

/// Event that an observer received.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    Negotiated(String),
    OnDevice(Vec<String>, Vec<&'static str>),
    InHost(Vec<String>),
    Refused(String),
}

#[derive(Clone, Default)]
pub(super) struct Diary(Arc<Mutex<Vec<Told>>>);

impl Observer for Diary {
    fn wanted_times(&self) -> WantedTimes {
        WantedTimes::OfRanks
    }

    fn negotiated(&mut self, negotiated: &Negotiated<'_>, _: ReadyTimes<'_>) {
        lock(&self.0).push(Told::Negotiated(negotiated.tensor.name.to_string()));
    }

    fn executed(&mut self, batch: &Executed<'_>) {
        let names = batch
            .members
            .iter()
            .map(|ready| ready.submission.tensor.name.to_string());
        let told = match batch.on_device {
            Some(activities) => Told::OnDevice(
                names.collect(),
                activities.iter().map(|activity| activity.name).collect(),
            ),
            None => Told::InHost(names.collect()),
        };
        lock(&self.0).push(told);
    }

    fn refused(&mut self, tensor: &Tensor, _: &Error) {
        lock(&self.0).push(Told::Refused(tensor.name.to_string()));
    }
}

/// One rank.
pub(super) struct Rank {
    pub(super) rank: usize,
    pub(super) gpu: Arc<SimulatedGpu>,
    pub(super) engine: Arc<Engine>,
    pub(super) settings: Arc<SettingsCell>,
    binding: Arc<DeviceBinding>,
    in_flight: Box<dyn Fn() -> usize + Send + Sync>,
    diary: Diary,
    thread: Option<JoinHandle<()>>,
    /// The caller's stream.
    pub(super) stream: Stream,
}

/// Starts a job; `registry` returns the devices of a rank.
pub(super) fn start(
    fabric: &Arc<Fabric>,
    size: usize,
    registry: impl Fn(usize) -> Arc<Registry> + Sync,
) -> Vec<Rank> {
    start_with(fabric, size, registry, |_, collective| collective)
}

/// Starts a job; `collective` wraps each rank's collective for host memory.
pub(super) fn start_with(
    fabric: &Arc<Fabric>,
    size: usize,
    registry: impl Fn(usize) -> Arc<Registry> + Sync,
    collective: impl Fn(usize, Box<dyn Collective>) -> Box<dyn Collective> + Sync,
) -> Vec<Rank> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let job_key = format!(
        "test-gpu-{}-{}",
        std::process::id(),
        JOBS.fetch_add(1, Ordering::Relaxed)
    );
    let (job_key, registry, collective) = (&job_key, &registry, &collective);
    std::thread::scope(|scope| {
        let start = |rank| {
            let made = move |inner| collective(rank, inner);
            scope.spawn(move || Rank::start(job_key, rank, size, fabric, registry(rank), made))
        };
        let starting: Vec<_> = (0..size).map(start).collect();
        starting
            .into_iter()
            .map(|rank| rank.join().expect("all come"))
            .collect()
    })
}

/// Starts a job whose ranks have a device each.
pub(super) fn job(fabric: &Arc<Fabric>, size: usize) -> Vec<Rank> {
    start(fabric, size, |rank| fabric.registry(rank))
}

impl Rank {
    fn start(
        job_key: &str,
        rank: usize,
        size: usize,
        fabric: &Arc<Fabric>,
        registry: Arc<Registry>,
        collective: impl FnOnce(Box<dyn Collective>) -> Box<dyn Collective>,
    ) -> Self {
        let patience = Patience {
            spin: Duration::ZERO,
            warn_after: Duration::ZERO,
            give_up_after: Some(Duration::from_secs(60)),
        };
        let config = RendezvousConfig {
            job_key: job_key.to_owned(),
            init: 0,
            rank,
            members: (0..size).collect(),
            start_timeout: Duration::from_secs(30),
            warn_after: Duration::ZERO,
            host_key: "host".to_owned(),
            contract: Vec::new(),
            alarm: None,
        };
        let opened =
            LocalTransport::open(&config, 2, LocalCollective::required_bytes(size), |_| {
                patience
            })
            .expect("all come");
        let queue = Arc::new(TensorQueue::new(
            rank,
            true,
            opened.transport.doorbell(),
            Arc::new(MonotonicClock),
        ));
        let binding = Arc::new(DeviceBinding::new(registry, rank).answering_early(true));
        let diary = Diary::default();
        let in_host = LocalCollective::new(opened.data, rank, size, Duration::ZERO, opened.watch);
        let settings = Arc::new(SettingsCell::new(Settings {
            gpu_fusion_threshold_bytes: GPU_FUSION_THRESHOLD_BYTES,
            ..Settings::default()
        }));
        let cycle = Cycle::new(Parts {
            members: (0..size).collect(),
            transport: Box::new(opened.transport),
            collective: collective(Box::new(in_host)),
            observer: Box::new(diary.clone()),
            queue: Arc::clone(&queue),
            cache: ResponseCache::new(64, 128),
            reference: Arc::default(),
            is_world: true,
            settings: SettingsSource::Decides(Arc::clone(&settings)),
            early: true,
            device: Arc::clone(&binding) as Arc<dyn OpenDevice>,
        });
        let in_flight = Box::new(cycle.in_flight_view());
        let engine_group = Arc::<EngineGroup>::default();
        engine_group.add(Arc::clone(&queue));
        let engine = Arc::new(Engine {
            queue,
            cycle: Mutex::new(cycle),
            rank,
            engine_group,
        });
        let thread = std::thread::spawn({
            let engine = Arc::clone(&engine);
            move || engine.run()
        });
        let gpu = fabric.gpu(rank);
        Self {
            rank,
            stream: gpu.stream(),
            gpu,
            engine,
            settings,
            binding,
            in_flight,
            diary,
            thread: Some(thread),
        }
    }

    /// Returns the events that the observer received so far.
    pub(super) fn told(&self) -> Vec<Told> {
        lock(&self.diary.0).clone()
    }

    /// Waits until this many tensors are on the device; a tensor stays there for a moment after its
    /// ticket completes.
    ///
    /// Does not lock the cycle: its thread would take this for a caller that drives it, and sleep.
    pub(super) fn await_in_flight(&self, in_flight: usize) {
        until("it is in flight", || (self.in_flight)() == in_flight);
    }

    /// Returns an allreduce of u8 on the GPU, in place at `at`.
    pub(super) fn entry<'a>(&self, name: &'a str, at: u64, length: usize) -> Entry<'a> {
        self.entry_for(name, at, length, false)
    }

    /// Returns such an entry; `can_follow`: its ticket may complete at the launch.
    pub(super) fn entry_for<'a>(
        &self,
        name: &'a str,
        at: u64,
        length: usize,
        can_follow: bool,
    ) -> Entry<'a> {
        let mut params =
            Params::plain(OpKind::Allreduce, Dtype::U8, [length].into_iter().collect());
        params.op = ReduceOp::Sum;
        params.device = Some(self.rank as u32);
        let on = Device::Cuda {
            ordinal: self.rank as u32,
            stream: self.stream.0,
        };
        let address = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
        Entry {
            name,
            params: params.into(),
            // SAFETY: the address is never dereferenced: it is the simulated GPU's, and looked up
            // there.
            span: Some(unsafe { Span::new(address, address, length) }),
            output: Output::Fixed,
            on: self
                .binding
                .submit(on, can_follow)
                .expect("a device that is there")
                .map(Box::new),
        }
    }

    pub(super) fn submit(&self, name: &str, at: u64, length: usize) -> Arc<Ticket> {
        self.engine
            .queue
            .submit(self.entry(name, at, length))
            .expect("submitted")
    }

    /// Returns such an entry in host memory.
    pub(super) fn in_host<'a>(name: &'a str, data: &mut [u8]) -> Entry<'a> {
        let params = Params::plain(
            OpKind::Allreduce,
            Dtype::U8,
            [data.len()].into_iter().collect(),
        );
        Entry {
            name,
            params: params.into(),
            // SAFETY: tests wait for their tickets before they read their data.
            span: Some(unsafe { Span::new(data.as_ptr(), data.as_mut_ptr(), data.len()) }),
            output: Output::Fixed,
            on: None,
        }
    }

    /// Submits an operation without data.
    pub(super) fn without_data(&self, name: &str, kind: OpKind) -> Arc<Ticket> {
        let entry = Entry {
            name,
            params: Params::plain(kind, Dtype::U8, Default::default()).into(),
            span: None,
            output: Output::Fixed,
            on: None,
        };
        self.engine.queue.submit(entry).expect("submitted")
    }

    /// Waits for a ticket's outcome.
    pub(super) fn wait(&self, ticket: &Ticket) -> Result<(), Error> {
        let deadline = self.engine.queue.clock.now() + Duration::from_secs(20);
        assert!(
            self.engine.wait(ticket, Some(deadline)),
            "rank {}: not over: {:?}",
            self.rank,
            self.told()
        );
        ticket.outcome().expect("it is over")
    }

    /// Sums in host memory with the other ranks; an error shows that the job has ended.
    pub(super) fn sum_in_host(&self, name: &str) -> Result<u8, Error> {
        let mut data = [1u8];
        let ticket = self.engine.queue.submit(Self::in_host(name, &mut data))?;
        self.wait(&ticket)?;
        Ok(data[0])
    }

    pub(super) fn shut_down(&self, why: &Error) {
        assert!(
            self.engine.shut_down(why),
            "the step that runs does not end"
        );
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if !self.engine.shut_down(&Error::ShutDown) {
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has no result, and the cycle reports its panics
        }
    }
}

/// Calls `body` on all ranks at the same time.
pub(super) fn on_all<T: Send>(ranks: &[Rank], each: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    let each = &each;
    std::thread::scope(|scope| {
        let running: Vec<_> = ranks
            .iter()
            .map(|rank| scope.spawn(move || each(rank)))
            .collect();
        let outcomes = running.into_iter().map(std::thread::ScopedJoinHandle::join);
        outcomes
            .map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Waits until a condition holds.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never so: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tensors of equal length on each rank, summed as one group in every step.
pub(super) struct Tensors {
    places: Vec<u64>,
    length: usize,
}

impl Tensors {
    pub(super) fn of(rank: &Rank, tensors: usize, length: usize) -> Self {
        let places =
            (0..tensors).map(|tensor| rank.gpu.allocate_with(&bytes(rank.rank, tensor, length)));
        Self {
            places: places.collect(),
            length,
        }
    }

    /// Submits all tensors at once, as a caller whose stream writes the data first.
    pub(super) fn submit(&self, rank: &Rank) -> Vec<Arc<Ticket>> {
        let names: Vec<String> = (0..self.places.len())
            .map(|tensor| format!("t{tensor}"))
            .collect();
        for (tensor, &at) in self.places.iter().enumerate() {
            rank.gpu
                .write_on(rank.stream, at, bytes(rank.rank, tensor, self.length));
        }
        let entries = self
            .places
            .iter()
            .zip(&names)
            .map(|(&at, name)| rank.entry(name, at, self.length));
        rank.engine
            .queue
            .submit_group(entries.collect())
            .expect("submitted")
    }

    /// Checks the sum over the ranks below `size`.
    pub(super) fn check(&self, rank: &Rank, size: usize) {
        for (tensor, &at) in self.places.iter().enumerate() {
            let all: Vec<Vec<u8>> = (0..size)
                .map(|rank| bytes(rank, tensor, self.length))
                .collect();
            let sum: Vec<u8> = (0..self.length)
                .map(|at| all.iter().map(|bytes| bytes[at]).sum())
                .collect();
            assert!(
                rank.gpu.read(at, self.length) == sum,
                "rank {}, tensor {tensor}",
                rank.rank
            );
        }
    }

    /// Runs a whole step.
    pub(super) fn step(&self, rank: &Rank, size: usize) {
        for ticket in self.submit(rank) {
            rank.wait(&ticket).expect("nothing is broken");
        }
        self.check(rank, size);
    }
}
