//! Errors of the start of a job.

use std::sync::Arc;

/// Reason for a failed rendezvous.
pub(crate) type Failure = Arc<dyn std::error::Error + Send + Sync>;

/// Converts an error to a [`Failure`].
pub(crate) fn failure(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Arc::new(error)
}

/// The ranks of the job cannot be connected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The ranks are on several hosts, and neither MPI nor TCP can be used.
    #[error(
        "the job has {size} ranks, only {local_size} of them on this host, and ranks on several \
         hosts need MPI or TCP. MPI: {no_mpi}. TCP: {no_tcp}"
    )]
    SeveralHosts {
        /// Number of ranks.
        size: usize,
        /// Number of ranks on this host.
        local_size: usize,
        /// Reason why no MPI can be used.
        no_mpi: Arc<dyn std::error::Error + Send + Sync>,
        /// Reason why TCP cannot be used.
        no_tcp: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The ranks are on several hosts, and shared memory was requested.
    #[error(
        "RONDE_BACKEND=local: the job has {size} ranks, only {local_size} of them on this host, \
         and shared memory connects only ranks on one host; leave RONDE_BACKEND at auto, which \
         uses MPI or TCP"
    )]
    NotLocal {
        /// Number of ranks.
        size: usize,
        /// Number of ranks on this host.
        local_size: usize,
    },
    /// The ranks have no local rank, and torch's rank 0 is on another host.
    #[error(
        "LOCAL_RANK and LOCAL_WORLD_SIZE are not set, which means that all {size} ranks are on this \
         host, but MASTER_ADDR={master} is another one; set both for each rank: 0 and 1 where it is \
         the only one on its host"
    )]
    NoLocalRank {
        /// Number of ranks.
        size: usize,
        /// Host of torch's rank 0.
        master: String,
    },
    /// MPI was requested and cannot be used.
    #[error("RONDE_BACKEND=mpi: {0}")]
    NoMpi(Arc<dyn std::error::Error + Send + Sync>),
    /// TCP was requested and cannot be used.
    #[error("RONDE_BACKEND=tcp: {0}")]
    NoTcp(Arc<dyn std::error::Error + Send + Sync>),
    /// The operating system gave no thread.
    #[error(
        "rank {rank} cannot start a thread: {source}; raise the limit of processes and threads (ulimit -u, \
         a container's --pids-limit)"
    )]
    Thread {
        /// The rank.
        rank: usize,
        /// Error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// The rendezvous with the other ranks failed.
    #[error(transparent)]
    Rendezvous(Arc<dyn std::error::Error + Send + Sync>),
}
