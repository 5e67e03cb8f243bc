//! Tensors as the runtime sees them: an element type, a shape, and where the bytes lie.

use smallvec::SmallVec;

/// Element type of a tensor. The discriminants travel on the wire and follow Horovod's numbering
/// (`DataType` in `horovod/common/message.h`); bf16, which Horovod lacks, comes after its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// 8-bit unsigned integer.
    U8 = 0,
    /// 8-bit signed integer.
    I8 = 1,
    /// 16-bit signed integer.
    I16 = 3,
    /// 32-bit signed integer.
    I32 = 4,
    /// 64-bit signed integer.
    I64 = 5,
    /// IEEE 754 half precision.
    F16 = 6,
    /// IEEE 754 single precision.
    F32 = 7,
    /// IEEE 754 double precision.
    F64 = 8,
    /// Truth value, one byte: 0 is false, anything else true; results are 0 or 1. Reductions are logical: sum and max
    /// are OR, product and min are AND; there is no average, and scale factors are 1.
    Bool = 9,
    /// bfloat16: the upper half of a single-precision number.
    Bf16 = 10,
}

impl Dtype {
    /// Whether elements can be sent as `wire` between ranks, which has fewer bits.
    pub(crate) const fn narrows_to(self, wire: Self) -> bool {
        matches!(self, Self::F32 | Self::F64) && matches!(wire, Self::F16 | Self::Bf16)
    }

    /// Every element type, for tables and tests.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Bf16,
    ];

    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// The name used in timelines, profiles and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Bool => "bool",
            Self::Bf16 => "bfloat16",
        }
    }

    /// The element type with this wire number.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u8 == number)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How a reduction combines the ranks' elements. Discriminants are Horovod's public constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum divided by the number of ranks; integers drop the fraction.
    Average = 0,
    /// Sum; integers wrap.
    Sum = 1,
    /// Smallest element; NaN if any rank has NaN.
    Min = 3,
    /// Largest element; NaN if any rank has NaN.
    Max = 4,
    /// Product; integers wrap.
    Product = 5,
}

impl ReduceOp {
    /// Every operation, for tables and tests.
    pub const ALL: [Self; 5] = [Self::Average, Self::Sum, Self::Min, Self::Max, Self::Product];

    /// Lower-case name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
        }
    }

    /// The operation with this wire number.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == number)
    }
}

impl std::fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

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
