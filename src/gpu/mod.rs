//! The GPU interface: the calls to one CUDA device and to NCCL that the runtime makes, and nothing of what they are for.
//!
//! Streams, events, addresses and communicators are numbers: who makes one also destroys it ([`Device`] does for events). All
//! that goes onto a stream returns at once. Implementations: [`cuda`] (feature `nccl`), and in tests a simulated GPU that records the order of
//! calls and computes in host memory.

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

/// What ranks that want to form a communicator have in common.
pub(crate) type UniqueId = [u8; 128];

/// How NCCL combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    Sum,
    Product,
    Max,
    Min,
    /// Sum divided by the number of ranks; of floats.
    Average,
}

/// What a call of NCCL combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Combined {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Elements of the result that a rank has.
    pub(crate) count: usize,
    pub(crate) number: Number,
    pub(crate) combine: Combine,
}

/// One call of NCCL. Counts are elements of `number`, addresses those of the device; input and output are the same memory, the
/// input is its own place in the output (or the output in the input), or they are disjoint.
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
    /// Only the rank that is named has the result.
    Reduce(Combined, usize),
    Broadcast {
        from: u64,
        to: u64,
        count: usize,
        number: Number,
        root: usize,
    },
    /// Bytes.
    Send {
        from: u64,
        count: usize,
        peer: usize,
    },
    /// Bytes.
    Receive {
        to: u64,
        count: usize,
        peer: usize,
    },
}

/// One device, as this process uses it. Any thread may call; what one of them makes all may use.
#[allow(unsafe_code)] // copies from and to host addresses
pub(crate) trait Gpu: Send + Sync {
    /// Lets the calling thread sleep.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Waits until `is_so`, for at most `patience`; whether it is.
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

    /// A stream that others, the legacy default one too, are not ordered with.
    fn make_stream(&self) -> Result<Stream, GpuError>;
    /// Lets the stream go when its work is done.
    fn destroy_stream(&self, stream: Stream);
    /// Whether what is put onto the stream goes into a graph that somebody records.
    fn is_capturing(&self, stream: Stream) -> Result<bool, GpuError>;

    /// An event that can be asked for its time, or one that is recorded faster.
    fn make_event(&self, is_timed: bool) -> Result<Event, GpuError>;
    fn destroy_event(&self, event: Event);
    /// The event comes about when all work now on the stream is done.
    fn record(&self, event: Event, stream: Stream) -> Result<(), GpuError>;
    /// What comes onto `stream` from here on waits for the event as it was recorded last.
    fn follow(&self, stream: Stream, event: Event) -> Result<(), GpuError>;
    /// Whether the event has come about; an error of the device if there was one.
    fn has_come(&self, event: Event) -> Result<bool, GpuError>;
    /// Sleeps until the event has come about.
    ///
    /// # Errors
    /// What has gone wrong on the device.
    fn wait(&self, event: Event) -> Result<(), GpuError>;
    /// Nanoseconds from one event to another, both of which have come about; good to a microsecond for seconds.
    fn elapsed_ns(&self, from: Event, to: Event) -> Result<i64, GpuError>;

    /// Memory of the device.
    fn allocate(&self, bytes: usize) -> Result<u64, GpuError>;
    /// Gives it back when all work of the device is done.
    fn free(&self, address: u64);
    /// Memory that is there for what comes onto the stream from here on.
    fn allocate_on(&self, bytes: usize, stream: Stream) -> Result<u64, GpuError>;
    /// Gives such memory back after what is on the stream now.
    fn free_on(&self, address: u64, stream: Stream);
    /// Copies from host memory, at once.
    ///
    /// # Safety
    /// `from` must be readable for `bytes` bytes.
    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<(), GpuError>;
    /// Copies to host memory, at once.
    ///
    /// # Safety
    /// `to` must be writable for `bytes` bytes.
    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), GpuError>;

    /// Memory of the host that the device reads and writes by itself.
    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, GpuError>;
    /// Gives it back; nothing that is on a stream is about it any more.
    fn free_host(&self, address: *mut u8);
    /// Copies from such memory, when the stream comes to it.
    ///
    /// # Safety
    /// `from` must be readable for `bytes` bytes, and nobody may write there, until the stream has done so.
    unsafe fn upload_on(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError>;
    /// Copies to such memory, when the stream comes to it.
    ///
    /// # Safety
    /// `to` must be writable for `bytes` bytes, and nobody else may touch it, until the stream has done so.
    unsafe fn download_on(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError>;

    /// Copies on the device, without a kernel: what copies are measured by.
    fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<(), GpuError>;

    /// Runs a copy kernel.
    fn launch(&self, kernel: Kernel, table: &Table, stream: Stream) -> Result<(), GpuError>;

    /// An id for a new communicator.
    fn unique_id(&self) -> Result<UniqueId, GpuError>;
    /// Starts to form the communicator `id` as rank `rank` of `size`; it is there once [`is_ready`](Self::is_ready).
    fn join(&self, id: &UniqueId, rank: usize, size: usize) -> Result<Communicator, GpuError>;
    /// Whether the communicator has done what it was asked to do, as far as the host is concerned.
    ///
    /// # Errors
    /// What has gone wrong with it, on this rank or on another.
    fn is_ready(&self, communicator: Communicator) -> Result<bool, GpuError>;
    /// Puts calls onto the stream, as one.
    fn call(&self, communicator: Communicator, calls: &[Call], stream: Stream) -> Result<(), GpuError>;
    /// Ends a communicator that has nothing left to do on the device. What it still sends to others is sent, for some seconds at most.
    fn leave(&self, communicator: Communicator) {
        self.abort(communicator);
    }
    /// Ends the communicator, and the work it has on the device where that is not done.
    fn abort(&self, communicator: Communicator);
}

/// The devices of this process.
pub(crate) fn devices() -> &'static Arc<Registry> {
    static DEVICES: LazyLock<Arc<Registry>> =
        LazyLock::new(|| Arc::new(Registry::new(Box::new(cuda::open), cuda::count)));
    &DEVICES
}

/// Whether tensors can lie on GPUs here. It opens the first device, as ranks will, and lets go of it.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<(), GpuError> {
    cuda::open(0).map(drop)
}

/// The CUDA device that the rank which is number `local_rank` on this host uses.
///
/// # Errors
/// No device, or no driver.
pub fn ordinal_of(local_rank: usize) -> Result<u32, GpuError> {
    devices().ordinal_of(local_rank)
}

/// The version of the NCCL that this process can load, as a number: major · 10000 + minor · 100 + patch. None if there is none that will do, or
/// this build has no feature `nccl`.
pub fn nccl_version() -> Option<u32> {
    cuda::nccl_version()
}
