//! Inter-node stage of a hierarchical allreduce, for callers whose intra-node stage is not in host
//! memory (NCCL).

use super::Reduction;
use crate::error::Error;
use crate::tensor::Span;

/// Position of a rank among the hosts of its process set. *Lane* i consists of the *i*th rank of
/// every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// Number of hosts.
    pub hosts: usize,
    /// First rank of this host, as a set rank.
    pub first: usize,
    /// Position of this rank among the ranks of its host.
    pub rank: usize,
    /// Number of ranks of this host.
    pub size: usize,
    /// Number of lanes: the number of ranks of the smallest host.
    pub lanes: usize,
    /// Whether all hosts have equally many ranks.
    pub is_even: bool,
}

/// Inter-node stage of one rank. Operations end in the order in which they began; all ranks of a
/// lane begin the same operations in the same order.
pub trait InterNode {
    /// Position of this rank.
    fn place(&self) -> HostPlace;

    /// Name of this stage on the timeline.
    fn activity(&self) -> &'static str;

    /// Begins to combine `part` with the same part of this rank's lane on all other hosts, as a
    /// part of a reduction over `ranks` ranks. The stage uses the span until [`keep`](Self::keep)
    /// or [`give_up`](Self::give_up) has ended the operation. This rank must be in a lane.
    fn begin(&mut self, part: Span, reduction: &Reduction, ranks: usize);

    /// Waits for the oldest operation that has begun and has not ended.
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the limit.
    fn keep(&mut self) -> Result<(), Error>;

    /// Ends all operations that have begun; none of their spans is accessed afterwards.
    fn give_up(&mut self);
}
