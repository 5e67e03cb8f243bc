//! Errors for the loss of another rank, or of the memory or network shared with it.

/// A rank is lost, or its data is invalid: no further operation is possible in this context.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The process of a rank has ended.
    #[error(
        "rank {rank} died (process {pid}); look at its last output for the first error, then \
         start the job again"
    )]
    Lost {
        /// The rank that died.
        rank: usize,
        /// Its process id.
        pid: u32,
    },
    /// A rank has left the job with `shutdown` while others still had work for it.
    #[error(
        "rank {rank} has shut down while this rank still had work for it; make every rank \
         submit the same tensors"
    )]
    Left {
        /// The rank that left.
        rank: usize,
    },
    /// A rank on another host has sent no heartbeat.
    #[error(
        "rank {rank} on host {host} has been silent for {silent_seconds} s: it was killed or \
         stopped, or its host or the network to it is gone; look at its last output, then start \
         the job again"
    )]
    Silent {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Time since its last message, seconds.
        silent_seconds: u64,
    },
    /// The connection to a rank on another host has ended.
    #[error(
        "rank {rank} on host {host} is lost: {reason}; look at its last output, then start the \
         job again"
    )]
    Disconnected {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Sign by which its end was found.
        reason: String,
    },
    /// A rank left the job because of an error of its own.
    #[error("rank {rank} stopped after an error: {reason}")]
    Failed {
        /// The rank that failed.
        rank: usize,
        /// Text of its error.
        reason: String,
    },
    /// A rank did not answer within the stall limit.
    #[error(
        "rank {rank} has not answered for {waited_seconds} s \
         (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={limit_seconds}); it may be stopped, or blocked outside \
         of the training loop?"
    )]
    Stalled {
        /// The silent rank.
        rank: usize,
        /// Time that this rank has waited, seconds.
        waited_seconds: u64,
        /// The limit, seconds.
        limit_seconds: u64,
    },
    /// A rank sent control data that no rank of this build can send: a bug, or faulty memory.
    #[error(
        "rank {rank} sent invalid control data: {problem}; make sure that all ranks run the \
         same program with the same build of ronde, look at the first error of each rank, then \
         start the job again"
    )]
    InvalidData {
        /// Rank that sent it, as far as this rank can determine.
        rank: usize,
        /// The first invalid value.
        problem: String,
    },
    /// A word of the memory that the ranks of a host share has a value that no rank writes.
    #[error(
        "the job's shared memory holds an invalid value: {word} is {value:#x}; a process of \
         this user has overwritten it: look for memory errors in native code, then start the \
         job again"
    )]
    InvalidSharedMemory {
        /// Name of the word.
        word: String,
        /// Its value.
        value: u64,
    },
    /// An MPI call failed: another rank or the network may be gone.
    #[error(
        "rank {rank} on host {host}: {call} failed: {reason}; another rank or the network may \
         be gone: look for the first error of all ranks"
    )]
    Mpi {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Name of the call in the MPI standard.
        call: &'static str,
        /// MPI's description of the error.
        reason: String,
    },
}
