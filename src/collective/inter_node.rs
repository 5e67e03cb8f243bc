//! Inter-node stage of a hierarchical allreduce, for callers whose intra-node stage is not in host memory (NCCL).

use super::Reduction;
use crate::error::Error;
use crate::tensor::Span;

/// A rank's place among the hosts of its process set. *Lane* i is made of the *i*th rank of every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// Hosts.
    pub hosts: usize,
    /// The first rank of this one's host, as the set counts them.
    pub first: usize,
    /// This rank among those of its host, and their number.
    pub rank: usize,
    /// See `rank`.
    pub size: usize,
    /// Lanes there are: the ranks of the least host.
    pub lanes: usize,
    /// Whether all hosts have equally many ranks.
    pub is_even: bool,
}

/// See the module. What a rank begins is kept in the same order; every rank of a lane begins the same.
pub trait InterNode {
    /// Where this rank is.
    fn place(&self) -> HostPlace;

    /// Begins to combine what `part` holds with the same part of this rank's lane on all other hosts, as a part of a reduction over
    /// `ranks` ranks. The span is lent until it is [kept](Self::keep), or [given up](Self::give_up). This rank must be in a lane.
    fn begin(&mut self, part: Span, reduction: &Reduction, ranks: usize);

    /// Waits for the first that was begun and not kept.
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the limit.
    fn keep(&mut self) -> Result<(), Error>;

    /// Ends all that was begun and not kept: nothing touches their spans any more.
    fn give_up(&mut self);
}
