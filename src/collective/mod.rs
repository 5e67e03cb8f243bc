//! The data seam: what moves and combines tensors once the ranks have agreed on a batch.
//!
//! A batch is a list of [`Span`]s of one element type, treated as if it were one buffer: where one tensor ends
//! and the next begins never shows in the result. Every rank calls with spans of the same lengths in the same
//! order; the cycle guarantees it.

mod kernels;
pub mod local;

use crate::error::Error;
use crate::tensor::{Dtype, ReduceOp, Span};

pub mod shaped;
#[cfg(test)]
pub(crate) mod sim;

/// How the elements of a batch are combined: `postscale · op(prescale · x₀, prescale · x₁, …)`, and for
/// [`ReduceOp::Average`] divided by the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// Element type of every span.
    pub dtype: Dtype,
    /// How elements are combined.
    pub op: ReduceOp,
    /// Factor on every contribution.
    pub prescale: f64,
    /// Factor on the result.
    pub postscale: f64,
}

/// Where the time of one batch went on this rank, nanoseconds. The phases of a streaming collective overlap
/// chunk by chunk; each number is the sum over the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Copying contributions to where the peers can read them.
    pub copy_in_ns: u64,
    /// Combining elements.
    pub reduce_ns: u64,
    /// Copying results to the outputs.
    pub copy_out_ns: u64,
    /// Waiting for peers.
    pub wait_ns: u64,
}

/// Moves and combines tensors among the ranks of one process set.
pub trait Collective: Send {
    /// What the timeline calls an allreduce by this backend, such as `SHM_ALLREDUCE`.
    fn allreduce_activity(&self) -> &'static str;

    /// What the timeline calls a broadcast by this backend, such as `SHM_BCAST`.
    fn broadcast_activity(&self) -> &'static str;

    /// Combines the batch element by element over all ranks; every rank gets the same bits, which depend neither
    /// on how tensors are batched nor on who came first (`design.md` §4).
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the limit; outputs are then unspecified.
    fn allreduce(&mut self, spans: &[Span], reduction: &Reduction) -> Result<Phases, Error>;

    /// Copies `root`'s inputs to the outputs of every rank, its own included.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error>;
}
