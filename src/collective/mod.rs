//! The data interface: moves and combines tensors once the ranks have agreed on a batch.
//!
//! A batch is a list of [`Span`]s of one element type, treated as if it were one buffer: where one tensor ends
//! and the next begins never shows in the result. Every rank calls with the same operations over the same tensors in
//! the same order, and with the same tables of lengths; the cycle guarantees it.
//!
//! A rank that has joined and has no data takes part with [absent](Span::absent) spans. It contributes nothing,
//! rather than an identity element: scale factors and signed zeros would show that.

pub(crate) mod asynchronous;
mod inter_node;
mod kernels;
pub mod local;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
mod nccl;
mod stream;

use crate::error::Error;
use crate::tensor::{Dtype, ReduceOp, Span};

pub(crate) mod shaped;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use inter_node::{HostPlace, InterNode};
pub(crate) use ronde_job::settings::Hierarchy;

#[cfg(test)]
pub(crate) use kernels::reference;

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
    /// By how much peers that came late have held the batch up: a part of `wait_ns`, at the beginning.
    pub late_ns: u64,
    /// At the beginning, copying this rank's first chunk in, with nothing behind it yet: a part of `copy_in_ns`.
    /// Hierarchical: all that the host did with the first chunk before anything crossed.
    pub lead_in_ns: u64,
    /// At the end, copying the last chunk out, with nothing behind it any more: a part of `copy_out_ns`. An operation that
    /// reduces right into the outputs has none. Hierarchical: all that the host did after everything had crossed.
    pub tail_out_ns: u64,
}

/// What the timeline calls an operation: the parts of it that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// What [`Phases::lead_in_ns`] was spent on, such as `MEMCPY_IN_FUSION_BUFFER`.
    pub lead_in: &'static str,
    /// All at once, such as `SHM_ALLREDUCE`.
    pub collective: &'static str,
    /// What [`Phases::tail_out_ns`] was spent on, such as `MEMCPY_OUT_FUSION_BUFFER`.
    pub tail_out: &'static str,
}

impl Stages {
    /// Those of an operation that copies to where the peers can read, and back.
    pub const fn streamed(collective: &'static str) -> Self {
        Self {
            lead_in: "MEMCPY_IN_FUSION_BUFFER",
            collective,
            tail_out: "MEMCPY_OUT_FUSION_BUFFER",
        }
    }
}

/// What the timeline calls a backend's operations.
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
/// In tables of lengths, `size` is the number of ranks and tensor `t` is `spans[t]`. The spans of one rank in one batch
/// are all absent or none is.
pub trait Collective: Send {
    /// What the timeline calls this backend's operations, the way the last one went.
    fn activities(&self) -> &'static Activities;

    /// From the next operation on, those that `hierarchy` names are hierarchical. All ranks make the same call between the same two
    /// operations. A collective that has but one way goes that way.
    fn set_hierarchy(&mut self, _hierarchy: Hierarchy) {}

    /// The inter-node stage for tensors that are not in host memory, if allreduces are hierarchical now; the same on all ranks.
    fn inter_node(&mut self) -> Option<&mut dyn InterNode> {
        None
    }

    /// Combines the batch element by element over all ranks but those in `absent`, in rank order; every rank gets the
    /// same bits, which depend neither on how tensors are batched nor on who came first, but on whether it
    /// is hierarchical. An average divides by the number of all ranks, absent or not.
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the limit; outputs are then unspecified.
    fn allreduce(&mut self, spans: &[Span], reduction: &Reduction, absent: &[usize])
    -> Result<Phases, Error>;

    /// Copies `root`'s inputs to the outputs of every rank, its own included. The root is not absent.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error>;

    /// Lays the ranks' inputs one after another, in rank order, into the outputs of every rank. Rank `r` contributes
    /// `bytes[t * size + r]` bytes to tensor `t`, an absent one none.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error>;

    /// Sends a part of every rank's input to each rank: of tensor `t`, rank `f` sends rank `r` so many bytes as
    /// `bytes[(t * size + f) * size + r]` says. Inputs hold these parts in rank order of `r`, outputs in rank order of
    /// `f`. An absent rank sends none, and what is sent to it is dropped.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error>;

    /// Combines as [`allreduce`](Self::allreduce) does, with the same bits, but each rank gets its share only. Rank `r`'s
    /// share of tensor `t` has `bytes[t * size + r]` bytes; every input holds the shares in rank order. An absent rank's
    /// share is reduced by nobody.
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
