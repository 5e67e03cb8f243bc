//! Errors of process sets: invalid ranks, sets that were removed, and failed additions.

use std::sync::Arc;

/// An invalid list of ranks for a process set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessSetProblem {
    /// The list is empty.
    #[error("the list is empty")]
    Empty,
    /// A rank is not in the job.
    #[error("rank {rank} is not in the job, whose ranks are 0..{size}")]
    NotInJob {
        /// The rank.
        rank: usize,
        /// Number of ranks in the job.
        size: usize,
    },
    /// A rank occurs twice.
    #[error("rank {rank} is in the list twice")]
    Duplicate {
        /// The rank.
        rank: usize,
    },
    /// The set of all ranks, which cannot be removed.
    #[error("the set of all ranks cannot be removed")]
    World,
    /// A process set with the same ranks exists.
    #[error("process set {set} has the same ranks; use that one")]
    Exists {
        /// Number of that set.
        set: u32,
    },
}

/// A process set cannot be added, used or removed; the other sets go on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessSetError {
    /// The caller is not in the process set.
    #[error("rank {rank} is not a member of process set {set}, whose ranks are {members:?}")]
    NotAMember {
        /// This rank.
        rank: usize,
        /// Number of the set.
        set: u32,
        /// Job ranks of the set.
        members: Vec<usize>,
    },
    /// List of ranks that cannot form a process set, or set that cannot be removed.
    #[error("process set of ranks {ranks:?}: {problem}")]
    Invalid {
        /// The given ranks.
        ranks: Vec<usize>,
        /// The problem of the list.
        problem: ProcessSetProblem,
    },
    /// Process sets cannot change in this job.
    #[error(
        "process sets are fixed when the context is made; set HOROVOD_DYNAMIC_PROCESS_SETS=1 on \
         all ranks to add and remove them later"
    )]
    Static,
    /// The process set was removed.
    #[error("process set {set} has been removed; use another one, or add it again")]
    Removed {
        /// Number of the set.
        set: u32,
    },
    /// A process set that is to be removed still has work.
    #[error(
        "process set {set} has {in_flight} tensors in flight on rank {rank}; wait for their \
         handles, then remove it"
    )]
    Busy {
        /// Number of the set.
        set: u32,
        /// A rank with tensors in flight.
        rank: usize,
        /// Number of tensors in flight on that rank.
        in_flight: usize,
    },
    /// The rendezvous of a process set failed.
    #[error("process set {set} of ranks {members:?}: {source}")]
    Start {
        /// Number of the set.
        set: u32,
        /// Job ranks of the set.
        members: Vec<usize>,
        /// The error of the rendezvous.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}
