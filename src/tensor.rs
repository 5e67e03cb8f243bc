//! Tensors as the runtime sees them: an element type, a shape, and where the bytes lie.

#![allow(unsafe_code)] // addresses that are sent to another thread

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub use ronde_job::{Dtype, ReduceOp};

/// Where a tensor's bytes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// Memory of the CUDA device with this ordinal; needs the NCCL backend.
    Cuda {
        /// CUDA device ordinal on this host.
        ordinal: u32,
        /// The caller's `CUstream` as an integer; the data is ready when the work queued on it is done.
        stream: u64,
    },
}

/// Dimensions of a tensor, outermost first; empty for a scalar.
pub type Shape = SmallVec<[usize; 4]>;

/// One rank's bytes of a tensor, as a collective reads and writes them: an input of [`bytes`](Self::bytes) bytes, and an
/// output whose length follows from the operation.
///
/// - allreduce, broadcast: the output is as long as the input, and the same memory or disjoint;
/// - allgather: as long as all ranks' inputs together; the input may be its own place within the output, else disjoint;
/// - alltoall: as long as what all ranks send here; disjoint;
/// - reducescatter: as long as this rank's share; disjoint.
///
/// A rank that has no data for a tensor takes part with an [absent](Self::absent) span.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    input: *const u8,
    output: *mut u8,
    bytes: usize,
}

// SAFETY: whoever made the span promised (`Span::new`) that both ranges stay valid and are touched by nobody
// else until the operation is over; which thread executes it does not matter.
unsafe impl Send for Span {}
// SAFETY: a shared `Span` only hands out addresses.
unsafe impl Sync for Span {}

impl Span {
    /// A span over `bytes` bytes read at `input` and a result written at `output`.
    ///
    /// # Safety
    /// Until the operation that uses the span has completed, `input` must be readable for `bytes` bytes and `output`
    /// writable for the operation's result, both aligned for the tensor's element type; nobody else may write the input
    /// or touch the output, and the two may overlap only as the type's description allows.
    pub unsafe fn new(input: *const u8, output: *mut u8, bytes: usize) -> Self {
        Self { input, output, bytes }
    }

    /// The span of a rank that has no data for a tensor of `bytes` bytes: it contributes nothing and keeps nothing.
    pub fn absent(bytes: usize) -> Self {
        Self {
            input: std::ptr::null(),
            output: std::ptr::null_mut(),
            bytes,
        }
    }

    /// The same, with the result going to `output`.
    ///
    /// # Safety
    /// As for [`new`](Self::new), of the output.
    pub(crate) unsafe fn with_output(self, output: *mut u8) -> Self {
        Self { output, ..self }
    }

    /// The same, with the result going nowhere: this rank contributes and keeps nothing.
    pub(crate) fn keeping_nothing(self) -> Self {
        Self {
            output: std::ptr::null_mut(),
            ..self
        }
    }

    /// Whether this rank has no data for the tensor. False for a span of no bytes that has an address.
    pub fn is_absent(&self) -> bool {
        self.input.is_null() && self.output.is_null()
    }

    /// Whether this rank has no use for the result: it has no data for the tensor, or no room for what comes out.
    pub fn keeps_nothing(&self) -> bool {
        self.output.is_null()
    }

    /// Where the contribution is read.
    pub fn input(&self) -> *const u8 {
        self.input
    }

    /// Where the result is written.
    pub fn output(&self) -> *mut u8 {
        self.output
    }

    /// Length of the input in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whether the bytes of a tensor can be counted and addressed, those of a row and of all rows: also where a dimension
/// is 0.
pub(crate) fn fits_memory(dtype: Dtype, shape: &[usize]) -> bool {
    let mut lengths = shape.iter().filter(|&&length| length > 0);
    let bytes = lengths.try_fold(dtype.size_bytes(), |bytes, &length| bytes.checked_mul(length));
    bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be an element of a tensor.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The element type's tag.
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
/// A group that a tensor belongs to: its members become ready together and travel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Group {
    /// Hash of the group's name and its tensors', the same on all ranks.
    pub tag: u64,
    /// Number of its tensors.
    pub size: u32,
}
