//! Errors for exceeded limits of the runtime or of the machine.

/// A limit is exceeded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// More tensors are in flight than the limit allows.
    #[error(
        "tensor {tensor} exceeds the limit of {limit} tensors in flight on rank {rank}; wait for \
         some handles first"
    )]
    InFlight {
        /// Name of the tensor.
        tensor: String,
        /// This rank.
        rank: usize,
        /// The limit.
        limit: usize,
    },
    /// Not enough memory for a result.
    #[error(
        "rank {rank} cannot allocate {bytes} bytes for the result of tensor {tensor}; gather it in parts"
    )]
    Memory {
        /// The tensor.
        tensor: String,
        /// Number of bytes of the result.
        bytes: usize,
        /// This rank.
        rank: usize,
    },
    /// A result is larger than any memory.
    #[error("the result of tensor {tensor} is larger than any memory; gather it in parts")]
    TooLarge {
        /// The tensor.
        tensor: String,
    },
    /// The requests or responses of one cycle do not fit a control frame.
    #[error(
        "rank {rank} has {bytes} bytes of requests or answers for one cycle, the limit is {limit_bytes}; \
         submit fewer tensors at a time (an answer has the rows of an alltoall from each rank to each), \
         or give them shorter names"
    )]
    ControlFrame {
        /// This rank.
        rank: usize,
        /// Length of the frame, bytes.
        bytes: usize,
        /// The limit, bytes.
        limit_bytes: usize,
    },
}
