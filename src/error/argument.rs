//! Errors for invalid arguments of one rank's own call.

use crate::tensor::Dtype;

/// Error of a call that this rank refuses by itself: the other ranks do not learn of it, and the
/// runtime goes on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A tensor of this name is still in flight on this rank.
    #[error(
        "tensor {tensor} is already in flight on rank {rank}; wait for its handle, or give this \
         one another name"
    )]
    DuplicateName {
        /// Name of the tensor.
        tensor: String,
        /// This rank.
        rank: usize,
    },
    /// Name that is reserved for the runtime.
    #[error(
        "tensor name {tensor} is reserved: names that begin with `ronde.` belong to the runtime"
    )]
    ReservedName {
        /// Name of the tensor.
        tensor: String,
    },
    /// Submission of this rank after `join`.
    #[error("rank {rank} has joined and cannot submit tensor {tensor}; wait until `join` returns")]
    HasJoined {
        /// The tensor.
        tensor: String,
        /// This rank.
        rank: usize,
    },
    /// Operation that is not defined for the element type.
    #[error(
        "{what} is not defined for {dtype} (tensor {tensor}); convert the tensor first, or use \
         another operation"
    )]
    InvalidDtype {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// The operation.
        what: &'static str,
    },
    /// Element type that cannot be sent as the requested wire dtype.
    #[error(
        "elements of tensor {tensor} ({dtype}) cannot be sent as {wire} here: those of float32 \
         and float64 in reductions on GPUs can be sent as float16 or bfloat16"
    )]
    InvalidCompression {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// The wire dtype.
        wire: Dtype,
    },
    /// Operation on rows, for a tensor without dimensions.
    #[error(
        "{operation} of tensor {tensor}, which is a rank-zero tensor: give it a first dimension"
    )]
    NoRows {
        /// The tensor.
        tensor: String,
        /// The operation.
        operation: &'static str,
    },
    /// The splits of an alltoall do not fit its tensor or its process set.
    #[error(
        "splits {splits:?} of tensor {tensor} must be {size} numbers, one per rank, that add up \
         to its {rows} rows"
    )]
    InvalidSplits {
        /// The tensor.
        tensor: String,
        /// The splits given.
        splits: Vec<usize>,
        /// Ranks in the process set.
        size: usize,
        /// Rows of the tensor.
        rows: usize,
    },
    /// Alltoall without splits, with a number of rows that cannot be divided evenly.
    #[error(
        "the {rows} rows of tensor {tensor} are not an even multiple of {size} ranks; give the \
         splits of its alltoall"
    )]
    UnevenRows {
        /// The tensor.
        tensor: String,
        /// Its rows.
        rows: usize,
        /// Ranks in the process set.
        size: usize,
    },
    /// Memory for a result with the wrong size.
    #[error(
        "the result of tensor {tensor} has shape {shape:?}, {expected_bytes} bytes; the memory \
         given for it has {found_bytes}"
    )]
    OutputSize {
        /// The tensor.
        tensor: String,
        /// Shape of the result.
        shape: Vec<usize>,
        /// Bytes of the result.
        expected_bytes: usize,
        /// Bytes given.
        found_bytes: usize,
    },
    /// The root of a broadcast is not in the process set.
    #[error(
        "invalid root rank {root} for tensor {tensor}: the ranks of process set {set} are {members:?}"
    )]
    RootNotAMember {
        /// The tensor.
        tensor: String,
        /// The root asked for, a rank of the job.
        root: usize,
        /// Number of the set.
        set: u32,
        /// Job ranks of the set.
        members: Vec<usize>,
    },
    /// The root of a broadcast is not a rank.
    #[error("invalid root rank {root} for tensor {tensor}: ranks are 0..{size}")]
    InvalidRoot {
        /// Name of the tensor.
        tensor: String,
        /// The root asked for.
        root: usize,
        /// Number of ranks.
        size: usize,
    },
    /// Shape that does not match the buffer.
    #[error("shape {shape:?} of tensor {tensor} has {expected} elements, its buffer {found}")]
    ShapeMismatch {
        /// Name of the tensor.
        tensor: String,
        /// The shape.
        shape: Vec<usize>,
        /// Number of elements of the shape.
        expected: usize,
        /// Number of elements in the buffer.
        found: usize,
    },
    /// Shape with more elements than memory can hold.
    #[error("shape {shape:?} of tensor {tensor} has more elements than memory can hold")]
    ShapeTooLarge {
        /// Name of the tensor.
        tensor: String,
        /// The shape.
        shape: Vec<usize>,
    },
}
