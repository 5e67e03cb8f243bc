//! The GPU interface: the runtime's calls to one CUDA device and to NCCL, independent of their
//! purpose.
//!
//! Streams, events, addresses and communicators are numbers; their creator also destroys them
//! ([`Device`] does so for events). Calls that put work on a stream return at once.
//! Implementations: [`cuda`] (feature `nccl`), and in tests a simulated GPU that records the order
//! of calls and computes in host memory.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

mod binding;
mod event;
pub(crate) mod layout;
mod registry;
mod shuttle;
#[cfg(test)]
pub(crate) mod simulated;
mod stopwatch;
mod table;
mod vector;
mod worker;

#[cfg(feature = "nccl")]
mod cuda;
#[cfg(not(feature = "nccl"))]
#[path = "no_cuda.rs"]
mod cuda;

pub(crate) use binding::DeviceBinding;
pub(crate) use event::Device;
pub(crate) use registry::Registry;
pub use shuttle::Shuttle;
pub use stopwatch::Stopwatch;
pub(crate) use table::{Entry, Kernel, Number, Table};
pub use vector::CudaVec;
pub(crate) use worker::{Thread, Worker};

pub use crate::device::Stream;
pub(crate) use crate::device::{Event, Mark};
pub use crate::error::GpuError;

/// An NCCL communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Communicator(pub(crate) u64);

/// Id that the ranks share which create a communicator.
pub(crate) type UniqueId = [u8; 128];

/// Reduction operations of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    Sum,
    Product,
    Max,
    Min,
    /// Sum divided by the number of ranks; only for floats.
    Average,
}

/// Data of a call of NCCL that reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Combined {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Elements of the result on one rank.
    pub(crate) count: usize,
    pub(crate) number: Number,
    pub(crate) combine: Combine,
}

/// One call of NCCL. Counts are elements of `number`, addresses those of the device. Input and
/// output are the same memory, the input lies at its own place in the output (or the output in the
/// input), or they are disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Allreduce(Combined),
    /// `count` elements of each rank.
    Allgather {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
    },
    /// `count` elements for each rank.
    Reducescatter(Combined),
    /// Only the named rank has the result.
    Reduce(Combined, usize),
    Broadcast {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
        root: usize,
    },
    /// `count` is in bytes.
    Send {
        from: u64,
        count: usize,
        peer: usize,
    },
    /// `count` is in bytes.
    Receive {
        to: u64,
        count: usize,
        peer: usize,
    },
}

/// One device, as this process uses it. All methods may be called from any thread, and handles may
/// be used by all threads.
#[allow(unsafe_code)] // copies from and to host addresses
pub(crate) trait Gpu: Send + Sync {
    /// Makes the calling thread sleep.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Waits until `is_so`, for at most `patience`; returns whether it is.
    fn wait_until(&self, patience: Duration, is_so: &dyn Fn() -> bool) -> bool {
        let end = Instant::now() + patience;
        while !is_so() && Instant::now() < end {
            self.pause(Duration::from_millis(1));
        }
        is_so()
    }
    /// Starts a thread that serves the device.
    ///
    /// # Errors
    /// The system has no thread left.
    fn worker(&self, name: &str) -> std::io::Result<Box<dyn Worker>> {
        Ok(Box::new(Thread::start(name)?))
    }

    /// Creates a stream that is not ordered with other streams, including the legacy default one.
    fn make_stream(&self) -> Result<Stream, GpuError>;
    /// Destroys the stream when its work is done.
    fn destroy_stream(&self, stream: Stream);
    /// Whether the stream is capturing a graph.
    fn is_capturing(&self, stream: Stream) -> Result<bool, GpuError>;

    /// Creates an event: one that has a time, or one that is recorded faster.
    fn make_event(&self, is_timed: bool) -> Result<Event, GpuError>;
    fn destroy_event(&self, event: Event);
    /// Records the event: it is complete when all current work on the stream is done.
    fn record(&self, event: Event, stream: Stream) -> Result<(), GpuError>;
    /// Makes later work on `stream` wait for the last recording of the event.
    fn follow(&self, stream: Stream, event: Event) -> Result<(), GpuError>;
    /// Whether the event is complete; or an error of the device, if there was one.
    fn has_come(&self, event: Event) -> Result<bool, GpuError>;
    /// Sleeps until the event is complete.
    ///
    /// # Errors
    /// The device has failed.
    fn wait(&self, event: Event) -> Result<(), GpuError>;
    /// Nanoseconds between two complete events; accurate to a microsecond for some seconds.
    fn elapsed_ns(&self, from: Event, to: Event) -> Result<i64, GpuError>;

    /// Allocates device memory.
    fn allocate(&self, bytes: usize) -> Result<u64, GpuError>;
    /// Frees the memory when all work of the device is done.
    fn free(&self, address: u64);
    /// Allocates memory for later work on the stream.
    fn allocate_on(&self, bytes: usize, stream: Stream) -> Result<u64, GpuError>;
    /// Frees such memory after the current work on the stream.
    fn free_on(&self, address: u64, stream: Stream);
    /// Copies from host memory, synchronously.
    ///
    /// # Safety
    /// `from` must be readable for `bytes` bytes.
    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<(), GpuError>;
    /// Copies to host memory, synchronously.
    ///
    /// # Safety
    /// `to` must be writable for `bytes` bytes.
    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), GpuError>;

    /// Allocates pinned host memory, which the device reads and writes itself.
    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, GpuError>;
    /// Frees pinned memory; no work on a stream may use it any more.
    fn free_host(&self, address: *mut u8);
    /// Puts a copy from pinned memory on the stream.
    ///
    /// # Safety
    /// `from` must be readable for `bytes` bytes, and not written, until the stream has executed
    /// the copy.
    unsafe fn upload_on(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError>;
    /// Puts a copy to pinned memory on the stream.
    ///
    /// # Safety
    /// `to` must be writable for `bytes` bytes, and not accessed otherwise, until the stream has
    /// executed the copy.
    unsafe fn download_on(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError>;

    /// Puts a copy on the device on the stream, without a kernel: the reference for measurements of
    /// copies.
    fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<(), GpuError>;

    /// Puts a copy kernel on the stream.
    fn launch(&self, kernel: Kernel, table: &Table, stream: Stream) -> Result<(), GpuError>;

    /// Creates an id for a new communicator.
    fn unique_id(&self) -> Result<UniqueId, GpuError>;
    /// Begins to create the communicator `id` as rank `rank` of `size`; it can be used once
    /// [`is_ready`](Self::is_ready).
    fn join(&self, id: &UniqueId, rank: usize, size: usize) -> Result<Communicator, GpuError>;
    /// Whether the communicator has finished its calls on the host.
    ///
    /// # Errors
    /// The communicator has failed, on this rank or on another.
    fn is_ready(&self, communicator: Communicator) -> Result<bool, GpuError>;
    /// Puts calls on the stream, as one group.
    fn call(
        &self,
        communicator: Communicator,
        calls: &[Call],
        stream: Stream,
    ) -> Result<(), GpuError>;
    /// Destroys a communicator without work on the device. Data that other ranks still need is
    /// sent, within some seconds at most.
    fn leave(&self, communicator: Communicator) {
        self.abort(communicator);
    }
    /// Aborts the communicator, and its unfinished work on the device.
    fn abort(&self, communicator: Communicator);
    /// Aborts communicators whose work is on one device.
    fn abort_all(&self, communicators: &[Communicator]) {
        communicators
            .iter()
            .for_each(|&communicator| self.abort(communicator));
    }
}

/// Returns the devices of this process.
pub(crate) fn devices() -> &'static Arc<Registry> {
    static DEVICES: LazyLock<Arc<Registry>> =
        LazyLock::new(|| Arc::new(Registry::new(Box::new(cuda::open), cuda::count)));
    &DEVICES
}

/// Checks that tensors can be on GPUs on this machine: opens the first device, as ranks do, and
/// closes it.
///
/// # Errors
/// A library, a driver or a device is missing.
pub fn check() -> Result<(), GpuError> {
    cuda::open(0).map(drop)
}

/// Returns the CUDA device that the rank with local rank `local_rank` uses.
///
/// # Errors
/// No device, or no driver.
pub fn ordinal_of(local_rank: usize) -> Result<u32, GpuError> {
    devices().ordinal_of(local_rank)
}

/// Version of the NCCL that this process can load, as a number: major · 10000 + minor · 100 +
/// patch. `None` if there is none that is new enough, or this build does not have the feature
/// `nccl`.
pub fn nccl_version() -> Option<u32> {
    cuda::nccl_version()
}
