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
    /// The ranks are on several hosts, but shared memory connects only ranks on one host.
    #[error(
        "the job has {size} ranks, only {local_size} of them on this host: ranks on several \
         hosts need the MPI backend; build ronde with --features mpi (and leave RONDE_BACKEND \
         at auto), or start all ranks on one host"
    )]
    SeveralHosts {
        /// Number of ranks.
        size: usize,
        /// Number of ranks on this host.
        local_size: usize,
    },
    /// MPI was requested in a build without it.
    #[error(
        "RONDE_BACKEND=mpi: this build of ronde has no MPI; build it with --features mpi, or \
         leave the backend at auto"
    )]
    NoMpi,
    /// The rendezvous with the other ranks failed.
    #[error(transparent)]
    Rendezvous(Arc<dyn std::error::Error + Send + Sync>),
}
