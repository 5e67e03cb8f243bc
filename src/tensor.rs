//! Tensors in the runtime: element type, shape, and addresses of the data.

#![allow(unsafe_code)] // addresses that are sent to another thread

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub use ronde_job::{Dtype, ReduceOp};

/// Location of a tensor's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// Memory of the CUDA device with this ordinal; needs the NCCL backend.
    Cuda {
        /// CUDA device ordinal on this host.
        ordinal: u32,
        /// The caller's `CUstream` as an integer; the data is ready when the work queued on it is
        /// done.
        stream: u64,
    },
}

/// Dimensions of a tensor, outermost first; empty for a scalar.
pub type Shape = SmallVec<[usize; 4]>;

/// One rank's bytes of a tensor, as a collective reads and writes them: an input of
/// [`bytes`](Self::bytes) bytes, and an output whose length follows from the operation.
///
/// - allreduce, broadcast: the output is as long as the input, and the same memory or disjoint;
/// - allgather: the output is as long as the inputs of all ranks together; the input may be its own
///   part of the output, or disjoint;
/// - alltoall: the output is as long as the data that all ranks send to this one; disjoint;
/// - reducescatter: the output is as long as this rank's share; disjoint.
///
/// A rank that has no data for a tensor takes part with an [absent](Self::absent) span.
#[doc(hidden)] // public for the benchmarks of collectives
#[derive(Clone, Copy, Debug)]
pub struct Span {
    input: *const u8,
    output: *mut u8,
    bytes: usize,
}

// SAFETY: the caller of `Span::new` has promised that both ranges stay valid and are not used
// otherwise until the operation has completed; it may run on any thread.
unsafe impl Send for Span {}
// SAFETY: a shared `Span` only returns addresses.
unsafe impl Sync for Span {}

impl Span {
    /// Makes a span over `bytes` bytes at `input`, with a result at `output`.
    ///
    /// # Safety
    /// Until the operation that uses the span has completed, `input` must be readable for `bytes`
    /// bytes and `output` writable for the operation's result, both aligned for the tensor's
    /// element type. No other code may write the input or access the output meanwhile. The two may
    /// overlap only as the type's description allows.
    pub unsafe fn new(input: *const u8, output: *mut u8, bytes: usize) -> Self {
        Self {
            input,
            output,
            bytes,
        }
    }

    /// Span of a rank that has no data for a tensor of `bytes` bytes: it contributes nothing and
    /// keeps nothing.
    pub fn absent(bytes: usize) -> Self {
        Self {
            input: std::ptr::null(),
            output: std::ptr::null_mut(),
            bytes,
        }
    }

    /// Returns the span with another `output`.
    ///
    /// # Safety
    /// As for [`new`](Self::new), for the output.
    pub(crate) unsafe fn with_output(self, output: *mut u8) -> Self {
        Self { output, ..self }
    }

    /// Returns the span without an output: this rank contributes its data and keeps nothing.
    pub(crate) fn keeping_nothing(self) -> Self {
        Self {
            output: std::ptr::null_mut(),
            ..self
        }
    }

    /// Whether this rank has no data for the tensor. False for a span of no bytes that has an
    /// address.
    pub fn is_absent(&self) -> bool {
        self.input.is_null() && self.output.is_null()
    }

    /// Whether this rank does not need the result: it has no data for the tensor, or no output.
    pub fn keeps_nothing(&self) -> bool {
        self.output.is_null()
    }

    /// Address of the contribution.
    pub fn input(&self) -> *const u8 {
        self.input
    }

    /// Address of the result.
    pub fn output(&self) -> *mut u8 {
        self.output
    }

    /// Length of the input in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whether the number of bytes of a tensor, and of one row, fits memory, also if a dimension is 0.
pub(crate) fn fits_memory(dtype: Dtype, shape: &[usize]) -> bool {
    let mut lengths = shape.iter().filter(|&&length| length > 0);
    let bytes = lengths.try_fold(dtype.size_bytes(), |bytes, &length| {
        bytes.checked_mul(length)
    });
    bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

mod sealed {
    pub trait Sealed {}
}

/// Rust type of a tensor's elements.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Tag of the element type.
    const DTYPE: Dtype;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust { const DTYPE: Dtype = Dtype::$dtype; }
    )*};
}
element!(
    u8 => U8,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    half::f16 => F16,
    f32 => F32,
    f64 => F64,
    bool => Bool,
    half::bf16 => Bf16,
);
/// Group of a tensor: its members become ready together and are fused together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Group {
    /// Hash of the names of the group and its tensors, the same on all ranks.
    pub tag: u64,
    /// Number of its tensors.
    pub size: u32,
}
