//! Errors of process sets: invalid ranks, sets that were removed, and failed additions.

use std::sync::Arc;

/// An invalid list of ranks for a process set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessSetProblem {
    /// There are none.
    #[error("there are none")]
    Empty,
    /// One is not in the job.
    #[error("rank {rank} is not in the job, whose ranks are 0..{size}")]
    NotInJob {
        /// The rank.
        rank: usize,
        /// Ranks in the job.
        size: usize,
    },
    /// One comes twice.
    #[error("rank {rank} comes twice")]
    Duplicate {
        /// The rank.
        rank: usize,
    },
    /// It is the set that cannot be removed.
    #[error("it is the set of all ranks, which stays as long as the context")]
    World,
    /// There is a set of just these.
    #[error("process set {set} has the same ranks; use that one")]
    Exists {
        /// The set's number.
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
        /// The set's number.
        set: u32,
        /// Its ranks.
        members: Vec<usize>,
    },
    /// A list of ranks that cannot be a process set, or not be removed.
    #[error("process set of ranks {ranks:?}: {problem}")]
    Invalid {
        /// The ranks given.
        ranks: Vec<usize>,
        /// What is wrong with them.
        problem: ProcessSetProblem,
    },
    /// Process sets cannot change in this job.
    #[error(
        "process sets are fixed when the context is made; set HOROVOD_DYNAMIC_PROCESS_SETS=1 on all \
         ranks to add and remove them later"
    )]
    Static,
    /// The process set was removed.
    #[error("process set {set} has been removed; use another one, or add it again")]
    Removed {
        /// The set's number.
        set: u32,
    },
    /// A process set that is to be removed still has work.
    #[error(
        "process set {set} has {in_flight} tensors in flight on rank {rank}; wait for their handles, \
         then remove it"
    )]
    Busy {
        /// The set's number.
        set: u32,
        /// A rank that has work for it.
        rank: usize,
        /// Tensors in flight there.
        in_flight: usize,
    },
    /// The rendezvous of a process set failed.
    #[error("process set {set} of ranks {members:?}: {source}")]
    Start {
        /// The set's number.
        set: u32,
        /// Its ranks.
        members: Vec<usize>,
        /// The error of the rendezvous.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}
