//! Errors that all ranks get for a tensor that they submitted differently, or that some of them did
//! not submit.

use super::Mismatch;

/// The ranks did not agree on a tensor.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// Two ranks submitted one name with different parameters. The runtime goes on.
    #[error(transparent)]
    Mismatch(Box<Mismatch>),
    /// Tensors were missing on some ranks for longer than the stall limit.
    #[error(
        "tensor {tensor} was submitted by ranks {submitted:?} and missing on ranks {missing:?} \
         for {waited_seconds} s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={limit_seconds}); make \
         every rank submit the same tensors"
    )]
    Stalled {
        /// A tensor that not all ranks submitted.
        tensor: String,
        /// Ranks that submitted it.
        submitted: Vec<usize>,
        /// Ranks that did not.
        missing: Vec<usize>,
        /// Time that the others have waited, seconds.
        waited_seconds: u64,
        /// The limit, seconds.
        limit_seconds: u64,
    },
    /// A tensor needs a rank that has joined: the root of a broadcast, or any rank with
    /// [`Builder::strict_join`](crate::context::Builder::strict_join). The runtime goes on.
    #[error("tensor {tensor} needs rank {rank}, which has joined and has no more data")]
    RankJoined {
        /// The tensor.
        tensor: String,
        /// The rank.
        rank: usize,
    },
}
