//! Collective operations: the trait of the backends that move and combine tensors once the ranks
//! have agreed on a batch.
//!
//! A batch is a list of [`Span`]s of one element type, processed as if it were one buffer; the
//! borders between tensors never affect the result. Every rank calls the same operations over the
//! same tensors in the same order, with the same tables of lengths; the cycle guarantees it.
//!
//! A joined rank that has no data takes part with [absent](Span::absent) spans. It contributes
//! nothing: an identity element instead would change results through scale factors and signed
//! zeros.

pub(crate) mod asynchronous;
pub(crate) mod attached;
pub(crate) mod hosts;
mod inter_node;
mod kernels;
pub mod local;
mod nccl;
mod stream;

use crate::error::Error;
use crate::tensor::{Dtype, ReduceOp, Span};

pub(crate) mod shaped;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use inter_node::{HostPlace, InterNode};
pub(crate) use kernels::DefaultFloatEnv;
pub(crate) use ronde_job::settings::Hierarchy;

#[cfg(test)]
pub(crate) use kernels::reference;

/// Describes how the elements of a batch are combined: `postscale · op(prescale · x₀, prescale ·
/// x₁, …)`, for [`ReduceOp::Average`] divided by the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// Element type of every span.
    pub dtype: Dtype,
    /// Operation that combines the elements.
    pub op: ReduceOp,
    /// Factor of every contribution.
    pub prescale: f64,
    /// Factor of the result.
    pub postscale: f64,
}

/// Time of one batch on this rank by phase, nanoseconds. The phases of a streaming collective
/// overlap chunk by chunk; each number is the sum over the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Copying contributions to memory that the peers can read.
    pub copy_in_ns: u64,
    /// Combining elements.
    pub reduce_ns: u64,
    /// Copying results to the outputs.
    pub copy_out_ns: u64,
    /// Waiting for peers.
    pub wait_ns: u64,
    /// Delay of the batch by peers that arrived late: the part of `wait_ns` at the beginning.
    pub late_ns: u64,
    /// Copying this rank's first chunk in, before any other stage runs: a part of `copy_in_ns`.
    /// Hierarchical: the host's work on the first chunk before any transfer between hosts.
    pub lead_in_ns: u64,
    /// Copying the last chunk out, after all other stages have ended: a part of `copy_out_ns`. Zero
    /// for an operation that reduces directly into the outputs. Hierarchical: the host's work after
    /// the last transfer between hosts.
    pub tail_out_ns: u64,
}

/// Names of an operation's successive parts on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Name of the time [`Phases::lead_in_ns`], such as `MEMCPY_IN_FUSION_BUFFER`.
    pub lead_in: &'static str,
    /// Name of the operation itself, such as `SHM_ALLREDUCE`.
    pub collective: &'static str,
    /// Name of the time [`Phases::tail_out_ns`], such as `MEMCPY_OUT_FUSION_BUFFER`.
    pub tail_out: &'static str,
}

impl Stages {
    /// Returns the names for an operation that copies to memory that the peers can read, and back.
    pub const fn streamed(collective: &'static str) -> Self {
        Self {
            lead_in: "MEMCPY_IN_FUSION_BUFFER",
            collective,
            tail_out: "MEMCPY_OUT_FUSION_BUFFER",
        }
    }
}

/// Names of a backend's operations on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activities {
    /// Such as `SHM_ALLREDUCE`.
    pub allreduce: Stages,
    /// Such as `SHM_ALLGATHER`.
    pub allgather: Stages,
    /// Such as `SHM_BCAST`.
    pub broadcast: Stages,
    /// Such as `SHM_ALLTOALL`.
    pub alltoall: Stages,
    /// Such as `SHM_REDUCESCATTER`.
    pub reducescatter: Stages,
}

/// Moves and combines tensors among the ranks of one process set.
///
/// In tables of lengths, `size` is the number of ranks and tensor `t` is `spans[t]`. The spans of
/// one rank in one batch are all absent or none is.
pub trait Collective: Send {
    /// Returns the names of this backend's operations on the timeline, flat or hierarchical as the
    /// last operation was.
    fn activities(&self) -> &'static Activities;

    /// Makes the operations in `hierarchy` hierarchical from the next operation on. All ranks make
    /// the same call between the same two operations. A backend without hierarchical operations
    /// ignores the call.
    fn set_hierarchy(&mut self, _hierarchy: Hierarchy) {}

    /// Returns the inter-node stage for tensors that are not in host memory, if allreduces are now
    /// hierarchical; equal on all ranks.
    fn inter_node(&mut self) -> Option<&mut dyn InterNode> {
        None
    }

    /// Combines the batch element by element over all ranks but those in `absent`, in rank order.
    /// Every rank gets the same bits. They depend on whether the operation is hierarchical, and
    /// neither on how tensors are batched nor on the order of arrival. An average divides by the
    /// number of all ranks, including absent ones.
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the limit; outputs are then unspecified.
    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error>;

    /// Copies `root`'s inputs to the outputs of every rank, including its own. The root is not
    /// absent.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error>;

    /// Concatenates the ranks' inputs, in rank order, in the outputs of every rank. Rank `r`
    /// contributes `bytes[t * size + r]` bytes to tensor `t`; an absent rank contributes none.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error>;

    /// Sends a part of every rank's input to each rank: of tensor `t`, rank `f` sends `bytes[(t *
    /// size + f) * size + r]` bytes to rank `r`. Inputs hold these parts in the order of `r`,
    /// outputs in the order of `f`. An absent rank sends none, and bytes sent to it are dropped.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error>;

    /// Combines as [`allreduce`](Self::allreduce) does, with the same bits, but each rank gets its
    /// share only. Rank `r`'s share of tensor `t` has `bytes[t * size + r]` bytes; every input
    /// holds the shares in rank order. An absent rank's share is not reduced.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error>;
}
