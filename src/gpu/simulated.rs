//! Simulated GPU for tests: host memory, and queued work that runs only when a caller waits for it.
//!
//! Simulated GPUs of one job share a [`Fabric`]: memory, streams, events and communicators of all
//! of them. Work on a stream is executed when a caller waits for an event, queries one, or frees
//! memory: piece by piece, always at the head of some stream. If several streams could continue,
//! the seed decides. A missing wait therefore shows sooner or later. All executed work is in one
//! log.
//!
//! Addresses are not addresses of the process: dereferencing one on the host is a fault, and every
//! address that is used is looked up among the allocations. Incorrect use (memory that is not
//! allocated, handles that are destroyed, calls that differ between ranks) is an error of the call
//! if possible, makes the device fail, and is recorded. The fabric panics with the recorded errors
//! when it is dropped, unless a test has read them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::worker::Work as WorkOfWorker;
use super::{
    Call, Communicator, Event, Gpu, GpuError, Kernel, Registry, Stream, Table, Thread, UniqueId,
    Worker,
};
use crate::sync::lock;
use crate::transport::simulated::{SimulatedWorker, World as Scheduler};

mod collective;
mod host;
mod kernel;
mod memory;
mod notes;
mod post;
mod streams;
#[cfg(test)]
mod tests;
mod world;

pub(crate) use notes::{Did, Note};
use streams::{Point, Work};
use world::World;

/// Worker that is an agent of the simulated world.
struct Agent(SimulatedWorker);

impl Worker for Agent {
    fn put(&self, work: WorkOfWorker) {
        self.0.put(work);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.join();
    }
}

/// A wait that is longer than this is considered endless.
const PATIENCE: Duration = Duration::from_secs(20);

/// State shared by the simulated GPUs of one job.
pub(crate) struct Fabric {
    world: Mutex<World>,
    changed: Condvar,
    /// The seeded simulator, if its agents use the devices.
    scheduler: Option<Arc<Scheduler>>,
}

/// A simulated GPU.
pub(crate) struct SimulatedGpu {
    fabric: Arc<Fabric>,
    /// Its position in the fabric.
    at: usize,
}

/// Numbers of live objects of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alive {
    pub(crate) allocations: usize,
    /// Allocations of pinned host memory.
    pub(crate) in_host: usize,
    pub(crate) streams: usize,
    pub(crate) events: usize,
    pub(crate) communicators: usize,
}

/// Stop in a stream: work behind it waits until [`Fabric::release`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold(u64);

impl Fabric {
    /// Makes `devices` devices; `seed` determines the order of their work.
    pub(crate) fn new(seed: u64, devices: usize) -> Arc<Self> {
        let began = Instant::now();
        let clock = move || began.elapsed().as_nanos() as u64;
        Arc::new(Self {
            world: Mutex::new(World::new(seed, devices, Box::new(clock))),
            changed: Condvar::new(),
            scheduler: None,
        })
    }

    /// Makes a device for each rank of a simulated world, used only by its agents: one seed
    /// determines all events.
    pub(crate) fn in_world(scheduler: &Arc<Scheduler>) -> Arc<Self> {
        let (seed, devices) = (scheduler.draw(u64::MAX), scheduler.ranks());
        let of_world = Arc::clone(scheduler);
        let clock = move || of_world.present().0;
        Arc::new(Self {
            world: Mutex::new(World::new(seed, devices, Box::new(clock))),
            changed: Condvar::new(),
            scheduler: Some(Arc::clone(scheduler)),
        })
    }

    /// Whether the caller belongs to a rank that vanishes, and no longer uses its device.
    fn is_vanishing(&self) -> bool {
        self.scheduler
            .as_ref()
            .is_some_and(|scheduler| !scheduler.is_inside())
    }

    /// Returns the device at position `at`.
    pub(crate) fn gpu(self: &Arc<Self>, at: usize) -> Arc<SimulatedGpu> {
        let fabric = Arc::clone(self);
        Arc::new(SimulatedGpu { fabric, at })
    }

    /// Returns the devices of a process that has only the one at position `at`, which has that
    /// number there.
    pub(crate) fn registry(self: &Arc<Self>, at: usize) -> Arc<Registry> {
        let gpu = self.gpu(at);
        let open = move |ordinal: u32| match ordinal as usize == gpu.at {
            true => Ok(Arc::clone(&gpu) as Arc<dyn Gpu>),
            false => Err(GpuError::NoDevice { ordinal, count: 1 }),
        };
        Arc::new(Registry::new(Box::new(open), || Ok(1)))
    }

    /// Returns the log of all devices.
    pub(crate) fn notes(&self) -> Vec<Note> {
        lock(&self.world).notes.clone()
    }

    /// Returns the recorded errors of use, which then no longer fail the test.
    pub(crate) fn failures(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.world).failures)
    }

    /// Executes all work that can run; returns a description of the rest.
    pub(crate) fn run_dry(&self) -> String {
        while lock(&self.world).step() {}
        self.changed.notify_all();
        lock(&self.world).what_is_stuck()
    }
}

/// Interval at which a sleeping thread checks for progress.
const SLICE: Duration = Duration::from_millis(20);

impl Fabric {
    /// Sleeps until something may have changed.
    fn sleep<'a>(
        &'a self,
        world: MutexGuard<'a, World>,
        waited: &mut Duration,
    ) -> MutexGuard<'a, World> {
        let Some(scheduler) = &self.scheduler else {
            let began = Instant::now();
            let slept = self.changed.wait_timeout(world, SLICE);
            *waited += began.elapsed();
            return slept.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        };
        drop(world);
        let time = Duration::from_micros(20);
        *waited += time;
        scheduler.sleep_until(scheduler.present() + time);
        lock(&self.world)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let failures = self.failures();
        assert!(
            failures.is_empty() || std::thread::panicking(),
            "the GPU's gpu: {failures:#?}"
        );
    }
}

/// Test interface of a device.
impl SimulatedGpu {
    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.fabric.world)
    }

    /// Applies `change`, wakes waiting threads, and records an error of use.
    fn act<T>(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut World) -> Result<T, String>,
    ) -> Result<T, GpuError> {
        self.is_there()?;
        let mut world = self.world();
        world.enter(self.at, call)?;
        let outcome = change(&mut world).map_err(|fault| world.fault(self.at, call, fault));
        drop(world);
        self.fabric.changed.notify_all();
        outcome
    }

    /// Applies `change` for a call that cannot fail.
    fn act_surely(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut World) -> Result<(), String>,
    ) {
        if self.is_there().is_err() {
            return;
        }
        let mut world = self.world();
        if let Err(fault) = change(&mut world) {
            world.fault(self.at, call, fault);
        }
        drop(world);
        self.fabric.changed.notify_all();
    }

    /// Executes work until `look` returns a value.
    fn go_on<T>(
        &self,
        mut look: impl FnMut(&mut World) -> Result<Option<T>, GpuError>,
    ) -> Result<T, GpuError> {
        let mut waited = Duration::ZERO;
        let mut world = self.world();
        loop {
            if let Some(found) = look(&mut world)? {
                return Ok(found);
            }
            if world.step() {
                self.fabric.changed.notify_all();
                continue;
            }
            // After an error of use, ranks no longer wait for one another.
            if waited > PATIENCE || !world.failures.is_empty() {
                let stuck = world.what_is_stuck();
                return Err(world.fault(
                    self.at,
                    "wait",
                    format!("nothing goes on any more: {stuck}"),
                ));
            }
            world = self.fabric.sleep(world, &mut waited);
            self.is_there()?;
        }
    }

    /// Fails if the caller belongs to a rank that vanishes and no longer uses its device.
    fn is_there(&self) -> Result<(), GpuError> {
        if self.fabric.is_vanishing() {
            return Err(GpuError::NoDevice {
                ordinal: self.at as u32,
                count: 0,
            });
        }
        Ok(())
    }

    /// Returns the log of this device, with the texts of [`say`](Self::say).
    pub(crate) fn notes(&self) -> Vec<Did> {
        let notes = self.fabric.notes().into_iter();
        notes
            .filter(|note| note.device == self.at)
            .map(|note| note.did)
            .collect()
    }

    /// Adds a text to the log.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.world().note(self.at, Did::Said(what.into()));
    }

    pub(crate) fn alive(&self) -> Alive {
        self.world().alive(self.at)
    }

    /// Returns the current bytes at an address.
    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let read = self.world().devices[self.at]
            .memory
            .read(address, bytes)
            .map(<[u8]>::to_vec);
        read.unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Allocates memory with these bytes.
    pub(crate) fn allocate_with(&self, bytes: &[u8]) -> u64 {
        let mut world = self.world();
        let memory = &mut world.devices[self.at].memory;
        let address = memory.allocate(bytes.len().max(1), true);
        memory
            .write(address, bytes)
            .unwrap_or_else(|fault| panic!("{fault}"));
        address
    }

    /// Creates a stream of the caller.
    pub(crate) fn stream(&self) -> Stream {
        self.make_stream().expect("nothing is broken")
    }

    /// Puts a write of `bytes` on the stream.
    pub(crate) fn write_on(&self, stream: Stream, to: u64, bytes: Vec<u8>) {
        let put = self.act("write", |world| {
            world.put(self.at, stream, Work::Write { to, bytes })
        });
        put.expect("nothing is broken");
    }

    /// Puts a stop on the stream: later work waits.
    pub(crate) fn hold(&self, stream: Stream) -> Hold {
        let mut world = self.world();
        let hold = world.handle();
        world
            .put(self.at, stream, Work::Hold(hold))
            .expect("a stream that is there");
        Hold(hold)
    }

    /// Removes a stop.
    pub(crate) fn release(&self, hold: Hold) {
        self.world().released_holds.insert(hold.0);
        self.fabric.changed.notify_all();
    }

    /// Begins the capture of a graph on the stream.
    pub(crate) fn capture(&self, stream: Stream) {
        self.world().devices[self.at].captured.insert(stream.0);
    }

    /// From now on, executes no call of NCCL.
    pub(crate) fn hang(&self) {
        self.world().devices[self.at].hangs = true;
    }

    /// Executes the calls that were held back.
    pub(crate) fn come_to(&self) {
        self.world().devices[self.at].hangs = false;
        self.fabric.changed.notify_all();
    }

    /// Makes larger allocations than this many bytes fail.
    pub(crate) fn out_of_memory_above(&self, bytes: usize) {
        self.world().devices[self.at].allocation_limit = bytes;
    }

    /// Makes the next call of that name fail.
    pub(crate) fn fail_next(&self, call: &'static str, error: GpuError) {
        self.world().devices[self.at].to_fail.push((call, error));
    }

    /// Makes the device fail with this error from now on.
    pub(crate) fn break_down(&self, error: GpuError) {
        self.world().devices[self.at].broken = Some(error);
        self.fabric.changed.notify_all();
    }
}

#[allow(unsafe_code)] // copies from and to host addresses
impl Gpu for SimulatedGpu {
    fn pause(&self, time: Duration) {
        match &self.fabric.scheduler {
            Some(scheduler) if scheduler.is_inside() => {
                scheduler.sleep_until(scheduler.present() + time)
            }
            Some(_) => {}
            None => std::thread::sleep(time),
        }
    }

    fn wait_until(&self, patience: Duration, is_so: &dyn Fn() -> bool) -> bool {
        let slice = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while !self.fabric.is_vanishing() && !is_so() && waited < patience {
            self.pause(slice);
            waited += slice;
        }
        self.fabric.is_vanishing() || is_so()
    }

    fn worker(&self, name: &str) -> std::io::Result<Box<dyn Worker>> {
        Ok(match &self.fabric.scheduler {
            Some(scheduler) => Box::new(Agent(SimulatedWorker::start(
                scheduler,
                self.at,
                name.to_owned(),
            ))),
            None => Box::new(Thread::start(name)?),
        })
    }

    fn make_stream(&self) -> Result<Stream, GpuError> {
        self.act("make_stream", |world| {
            let stream = Stream(world.handle());
            world.devices[self.at]
                .streams
                .insert(stream.0, Default::default());
            world.note(self.at, Did::MadeStream(stream));
            Ok(stream)
        })
    }

    fn destroy_stream(&self, stream: Stream) {
        self.act_surely("destroy_stream", |world| {
            world.destroy_stream(self.at, stream)
        });
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, GpuError> {
        self.act("is_capturing", |world| {
            world.queue(self.at, stream)?;
            Ok(world.devices[self.at].captured.contains(&stream.0))
        })
    }

    fn make_event(&self, is_timed: bool) -> Result<Event, GpuError> {
        self.act("make_event", |world| {
            let event = Event(world.handle());
            let point = Point {
                is_timed,
                ..Point::default()
            };
            world.devices[self.at].events.insert(event.0, point);
            world.note(self.at, Did::MadeEvent(event));
            Ok(event)
        })
    }

    fn destroy_event(&self, event: Event) {
        self.act_surely("destroy_event", |world| {
            world.event(self.at, event)?.is_destroyed = true;
            world.note(self.at, Did::DestroyedEvent(event));
            Ok(())
        });
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), GpuError> {
        self.act("record", |world| {
            let point = world.event(self.at, event)?;
            point.recorded += 1;
            let turn = point.recorded;
            world.put(self.at, stream, Work::Record { event, turn })
        })
    }

    fn follow(&self, stream: Stream, event: Event) -> Result<(), GpuError> {
        self.act("follow", |world| {
            let turn = world.event(self.at, event)?.recorded;
            world.put(self.at, stream, Work::Follow { event, turn })
        })
    }

    fn has_come(&self, event: Event) -> Result<bool, GpuError> {
        self.act("has_come", |world| {
            for _ in 0..world.draw(4) {
                world.step();
            }
            world.event(self.at, event).map(|point| point.has_come())
        })
    }

    fn wait(&self, event: Event) -> Result<(), GpuError> {
        self.is_there()?;
        self.world().enter(self.at, "wait")?;
        self.go_on(|world| {
            world.unbroken(self.at)?;
            let has_come = world.event(self.at, event).map(|point| point.has_come());
            let has_come = has_come.map_err(|fault| world.fault(self.at, "wait", fault))?;
            Ok(has_come.then_some(()))
        })
    }

    fn elapsed_ns(&self, from: Event, to: Event) -> Result<i64, GpuError> {
        self.act("elapsed_ns", |world| {
            let mut came = |event: Event| {
                let point = world.event(self.at, event)?;
                match (point.has_come(), point.came_ns) {
                    _ if !point.is_timed => {
                        Err(format!("asked for the time of {event:?}, which has none"))
                    }
                    (true, Some(at)) => Ok(at as i64),
                    _ => Err(format!(
                        "asked for the time of {event:?}, which has not come"
                    )),
                }
            };
            Ok(-came(from)? + came(to)?)
        })
    }

    fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        self.allocated("allocate", bytes, |_, _| Ok(()))
    }

    fn free(&self, address: u64) {
        // The driver waits for all work of the device.
        if self.is_there().is_err() {
            return;
        }
        let idle = self.go_on(|world| Ok(world.is_idle(self.at).then_some(())));
        self.act_surely("free", |world| {
            idle.map_err(|error| error.to_string())?;
            world.free(self.at, address)
        });
    }

    fn allocate_on(&self, bytes: usize, stream: Stream) -> Result<u64, GpuError> {
        self.allocated("allocate_on", bytes, |world, address| {
            world.devices[self.at].memory.promise(address);
            world.put(self.at, stream, Work::Allocate { address })
        })
    }

    fn free_on(&self, address: u64, stream: Stream) {
        self.act_surely("free_on", |world| match world.unbroken(self.at) {
            Ok(()) => world.put(self.at, stream, Work::Free { address }),
            Err(_) => world.free(self.at, address), // work on the stream is not executed any more
        });
    }

    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: readable, by the caller's promise.
        let from = unsafe { std::slice::from_raw_parts(from, bytes) };
        self.act("upload", |world| {
            world.devices[self.at].memory.write(to, from)
        })
    }

    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), GpuError> {
        self.act("download", |world| {
            let from = world.devices[self.at].memory.read(from, bytes)?;
            // SAFETY: writable, by the caller's promise; the simulated GPU's memory is separate
            // from it.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, bytes) };
            Ok(())
        })
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, GpuError> {
        self.act("allocate_host", |world| {
            Ok(world.devices[self.at].host.allocate(bytes))
        })
        .map(std::ptr::with_exposed_provenance_mut)
    }

    fn free_host(&self, address: *mut u8) {
        self.act_surely("free_host", |world| {
            world.devices[self.at]
                .host
                .free(address.expose_provenance())
        });
    }

    unsafe fn upload_on(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let from = from.expose_provenance();
        self.act("upload_on", |world| {
            world.put(self.at, stream, Work::Upload { to, from, bytes })
        })
    }

    unsafe fn download_on(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let to = to.expose_provenance();
        self.act("download_on", |world| {
            world.put(self.at, stream, Work::Download { to, from, bytes })
        })
    }

    fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<(), GpuError> {
        self.act("copy", |world| {
            world.put(self.at, stream, Work::Copy { to, from, bytes })
        })
    }

    fn launch(&self, kernel: Kernel, table: &Table, stream: Stream) -> Result<(), GpuError> {
        self.act("launch", |world| {
            let (factor, divisor) = table.scaling();
            let entries = table.entries().collect();
            let launch = kernel::Launch {
                kernel,
                factor,
                divisor,
                entries,
            };
            world.put(self.at, stream, Work::Launch(launch))
        })
    }

    fn unique_id(&self) -> Result<UniqueId, GpuError> {
        self.act("unique_id", |world| Ok(world.unique_id()))
    }

    fn join(&self, id: &UniqueId, rank: usize, size: usize) -> Result<Communicator, GpuError> {
        self.act("join", |world| world.join(self.at, id, rank, size))
    }

    fn is_ready(&self, communicator: Communicator) -> Result<bool, GpuError> {
        self.act("is_ready", |world| world.is_ready(self.at, communicator))
    }

    fn call(
        &self,
        communicator: Communicator,
        calls: &[Call],
        stream: Stream,
    ) -> Result<(), GpuError> {
        self.act("call", |world| {
            world.call(self.at, communicator, calls, stream)
        })
    }

    fn abort(&self, communicator: Communicator) {
        self.act_surely("abort", |world| world.abort(self.at, communicator));
    }
}

impl SimulatedGpu {
    fn allocated(
        &self,
        call: &'static str,
        bytes: usize,
        then: impl FnOnce(&mut World, u64) -> Result<(), String>,
    ) -> Result<u64, GpuError> {
        if bytes > self.world().devices[self.at].allocation_limit {
            let ordinal = self.at as u32;
            return Err(GpuError::OutOfMemory { ordinal, bytes });
        }
        self.act(call, |world| {
            if bytes == 0 {
                return Err("an allocation of nothing".to_owned());
            }
            let address = world.devices[self.at].memory.allocate(bytes, true);
            world.note(self.at, Did::Allocated { address, bytes });
            then(world, address)?;
            Ok(address)
        })
    }
}
