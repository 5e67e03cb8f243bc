//! The crate's one public error: fields, not sentences, and what to try next.

use std::path::PathBuf;
use std::sync::Arc;

mod mismatch;

pub use mismatch::{Mismatch, Mismatched, Submitted};

/// What is wrong with the ranks of a process set.
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

/// Everything that can go wrong between a submission and its result. Cloneable, because one lost peer fails every
/// pending tensor.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank's process is gone.
    #[error(
        "rank {rank} died (process {pid}); look at its last output for the first error, then start the job again"
    )]
    PeerLost {
        /// The rank that died.
        rank: usize,
        /// Its process id.
        pid: u32,
    },
    /// A rank has left the job with `shutdown` while others still had work for it.
    #[error(
        "rank {rank} has shut down while this rank still had work for it; make every rank submit the same tensors"
    )]
    PeerLeft {
        /// The rank that left.
        rank: usize,
    },
    /// Nothing has been heard of a rank on another host.
    #[error(
        "rank {rank} on host {host} has been silent for {silent_seconds} s: it was killed or stopped, or its host or the \
         network to it is gone; look at its last output, then start the job again"
    )]
    PeerSilent {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Since when.
        silent_seconds: u64,
    },
    /// A rank left the job because of an error of its own.
    #[error("rank {rank} stopped after an error: {reason}")]
    PeerFailed {
        /// The rank that failed.
        rank: usize,
        /// Its error, as text.
        reason: String,
    },
    /// A word of the memory that the ranks of a host share has a value that no rank writes.
    #[error(
        "the job's shared memory holds an invalid value: {word} is {value:#x}; a process of this user has overwritten it: \
         look for memory errors in native code, then start the job again"
    )]
    InvalidSharedMemory {
        /// Which word.
        word: String,
        /// Its value.
        value: u64,
    },
    /// A rank did not answer within the stall limit.
    #[error(
        "rank {rank} has not answered for {waited_seconds} s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={limit_seconds}); \
         is it stopped, or stuck outside of the training loop?"
    )]
    PeerStalled {
        /// The silent rank.
        rank: usize,
        /// How long it was waited for.
        waited_seconds: u64,
        /// The limit.
        limit_seconds: u64,
    },
    /// A rank sent control data that no rank of this build can send: a bug, or faulty memory.
    #[error(
        "rank {rank} sent invalid control data: {problem}; make sure that all ranks run the same program with the same \
         build of ronde, look at the first error of each rank, then start the job again"
    )]
    InvalidPeerData {
        /// The rank that sent it, as far as this rank can tell.
        rank: usize,
        /// The first thing found to be wrong.
        problem: String,
    },
    /// Tensors were missing on some ranks for longer than the stall limit.
    #[error(
        "tensor {tensor} was submitted by ranks {submitted:?} and missing on ranks {missing:?} for {waited_seconds} s \
         (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={limit_seconds}); make every rank submit the same tensors"
    )]
    TensorStalled {
        /// A tensor that not all ranks submitted.
        tensor: String,
        /// The ranks that did.
        submitted: Vec<usize>,
        /// The ranks that did not.
        missing: Vec<usize>,
        /// How long the others waited.
        waited_seconds: u64,
        /// The limit.
        limit_seconds: u64,
    },
    /// This context has been shut down.
    #[error("the context has been shut down; create a new one before submitting tensors")]
    ShutDown,
    /// Used in a child process made by `fork`.
    #[error(
        "this process was forked after the context was created; create one of its own, or submit from the parent"
    )]
    Forked,
    /// Two ranks submitted different things under one name. The runtime goes on.
    #[error(transparent)]
    Mismatch(Box<Mismatch>),
    /// A tensor of this name is still in flight on this rank.
    #[error(
        "tensor {tensor} is already in flight on rank {rank}; wait for its handle, or give this one another name"
    )]
    DuplicateName {
        /// The name.
        tensor: String,
        /// This rank.
        rank: usize,
    },
    /// A name that the runtime keeps for itself.
    #[error("tensor {tensor} cannot be called that: names that begin with `ronde.` are the runtime's own")]
    ReservedName {
        /// The name.
        tensor: String,
    },
    /// More tensors are in flight than the runtime keeps.
    #[error(
        "tensor {tensor} would be one too many in flight on rank {rank} (limit {limit}); wait for some handles first"
    )]
    TooManyInFlight {
        /// The name.
        tensor: String,
        /// This rank.
        rank: usize,
        /// The limit.
        limit: usize,
    },
    /// A tensor needs a rank that has joined: the root of a broadcast, any rank where the program has said so
    /// ([`Builder::strict_join`](crate::context::Builder::strict_join)). The runtime goes on.
    #[error("tensor {tensor} needs rank {rank}, which has joined and has no more data")]
    RankJoined {
        /// The tensor.
        tensor: String,
        /// The rank.
        rank: usize,
    },
    /// This rank has joined, and submits all the same.
    #[error("rank {rank} has joined and cannot submit tensor {tensor}; wait until `join` returns")]
    HasJoined {
        /// The tensor.
        tensor: String,
        /// This rank.
        rank: usize,
    },
    /// An operation is not defined for elements of this type.
    #[error(
        "{what} is not defined for {dtype} (tensor {tensor}); convert the tensor first, or use another operation"
    )]
    InvalidDtype {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: crate::tensor::Dtype,
        /// The operation.
        what: &'static str,
    },
    /// Elements that cannot be sent as others.
    #[error(
        "elements of tensor {tensor} ({dtype}) cannot be sent as {wire} here: those of float32 and float64 in reductions on GPUs can be \
         sent as float16 or bfloat16"
    )]
    InvalidCompression {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: crate::tensor::Dtype,
        /// That on the way.
        wire: crate::tensor::Dtype,
    },
    /// An operation on rows, of a tensor that has no dimension.
    #[error("{operation} of tensor {tensor}, which is a rank-zero tensor: give it a first dimension")]
    NoRows {
        /// The tensor.
        tensor: String,
        /// The operation.
        operation: &'static str,
    },
    /// The splits of an alltoall do not fit its tensor or its process set.
    #[error(
        "splits {splits:?} of tensor {tensor} must be {size} numbers, one per rank, that add up to its {rows} rows"
    )]
    InvalidSplits {
        /// The tensor.
        tensor: String,
        /// The splits given.
        splits: Vec<usize>,
        /// Ranks in the process set.
        size: usize,
        /// Rows of the tensor.
        rows: usize,
    },
    /// An alltoall without splits, whose rows cannot be dealt evenly.
    #[error(
        "the {rows} rows of tensor {tensor} are not an even multiple of {size} ranks; give the splits of its alltoall"
    )]
    UnevenRows {
        /// The tensor.
        tensor: String,
        /// Its rows.
        rows: usize,
        /// Ranks in the process set.
        size: usize,
    },
    /// The memory given for a result has another size.
    #[error(
        "the result of tensor {tensor} has shape {shape:?}, {expected_bytes} bytes; the memory given for it has {found_bytes}"
    )]
    OutputSize {
        /// The tensor.
        tensor: String,
        /// Shape of the result.
        shape: Vec<usize>,
        /// Bytes of the result.
        expected_bytes: usize,
        /// Bytes given.
        found_bytes: usize,
    },
    /// There is no memory for a result.
    #[error("no memory for the {bytes} bytes of the result of tensor {tensor}; gather it in parts")]
    OutOfMemory {
        /// The tensor.
        tensor: String,
        /// Bytes of the result.
        bytes: usize,
    },
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
    InvalidProcessSet {
        /// The ranks given.
        ranks: Vec<usize>,
        /// What is wrong with them.
        problem: ProcessSetProblem,
    },
    /// Process sets cannot change in this job.
    #[error(
        "process sets are fixed when the context is made; set HOROVOD_DYNAMIC_PROCESS_SETS=1 on all ranks to add and \
         remove them later"
    )]
    StaticProcessSets,
    /// The process set was removed.
    #[error("process set {set} has been removed; use another one, or add it again")]
    ProcessSetRemoved {
        /// The set's number.
        set: u32,
    },
    /// A process set that is to be removed still has work.
    #[error(
        "process set {set} has {in_flight} tensors in flight on rank {rank}; wait for their handles, then remove it"
    )]
    ProcessSetBusy {
        /// The set's number.
        set: u32,
        /// A rank that has work for it.
        rank: usize,
        /// Tensors in flight there.
        in_flight: usize,
    },
    /// The rendezvous of a process set failed.
    #[error("process set {set} of ranks {members:?}: {source}")]
    ProcessSetStart {
        /// The set's number.
        set: u32,
        /// Its ranks.
        members: Vec<usize>,
        /// Why.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The root of a broadcast is not in the process set.
    #[error("invalid root rank {root} for tensor {tensor}: the ranks of process set {set} are {members:?}")]
    RootNotAMember {
        /// The tensor.
        tensor: String,
        /// The root asked for, a rank of the job.
        root: usize,
        /// The set's number.
        set: u32,
        /// Its ranks.
        members: Vec<usize>,
    },
    /// The root of a broadcast is not a rank.
    #[error("invalid root rank {root} for tensor {tensor}: ranks are 0..{size}")]
    InvalidRoot {
        /// Name of the tensor.
        tensor: String,
        /// The root asked for.
        root: usize,
        /// Number of ranks.
        size: usize,
    },
    /// The shape given does not describe the buffer given.
    #[error("shape {shape:?} of tensor {tensor} has {expected} elements, its buffer {found}")]
    ShapeMismatch {
        /// Name of the tensor.
        tensor: String,
        /// The shape.
        shape: Vec<usize>,
        /// Elements by the shape.
        expected: usize,
        /// Elements in the buffer.
        found: usize,
    },
    /// The backend cannot do this.
    #[error("the {backend} backend cannot do {what} (tensor {tensor})")]
    Unsupported {
        /// Name of the tensor.
        tensor: String,
        /// The backend.
        backend: &'static str,
        /// What was asked.
        what: String,
    },
    /// The requests or responses of one cycle do not fit a control frame.
    #[error(
        "rank {rank} has {bytes} bytes of requests for one cycle, the limit is {limit_bytes}; \
         submit fewer tensors at a time, or give them shorter names"
    )]
    ControlFrameTooLong {
        /// This rank.
        rank: usize,
        /// Length of the frame.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A tensor's GPU, or NCCL.
    #[error("{}rank {rank}: {source}", tensor.as_ref().map_or_else(String::new, |tensor| format!("tensor {tensor} on ")))]
    Gpu {
        /// This rank.
        rank: usize,
        /// The tensor, if it is about one.
        tensor: Option<String>,
        /// What has gone wrong.
        source: Arc<crate::gpu::GpuError>,
    },
    /// The cycle thread panicked: a bug in Ronde.
    #[error("internal error on rank {rank}: {message}; please report it")]
    Internal {
        /// This rank.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// The ranks are on several hosts, which shared memory does not reach.
    #[error(
        "the job has {size} ranks, only {local_size} of them on this host: ranks on several hosts need the MPI backend; \
         build ronde with --features mpi (and leave RONDE_BACKEND at auto), or start all ranks on one host"
    )]
    SeveralHosts {
        /// Number of ranks.
        size: usize,
        /// Number of ranks on this host.
        local_size: usize,
    },
    /// MPI is asked for in a build without it.
    #[error(
        "RONDE_BACKEND=mpi: this build of ronde has no MPI; build it with --features mpi, or leave the backend at auto"
    )]
    NoMpi,
    /// A call of MPI's failed.
    #[error(
        "rank {rank} on host {host}: {call} failed: {reason}; another rank or the network may be gone: look for the first \
         error of all ranks"
    )]
    Mpi {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// The call's name in the standard.
        call: &'static str,
        /// What MPI says.
        reason: String,
    },
    /// The rendezvous with the other ranks failed.
    #[error(transparent)]
    Rendezvous(Arc<dyn std::error::Error + Send + Sync>),
    /// A setting in the environment is wrong.
    #[error(transparent)]
    Configuration(Arc<dyn std::error::Error + Send + Sync>),
    /// Settings are to be changed by who may not, or to what they cannot be.
    #[error("the settings stay as they are: {reason}")]
    SettingsRefused {
        /// What is in the way.
        reason: String,
    },
    /// A timeline is to be started or stopped in a job that was not set up for one.
    #[error(
        "timelines are off in this job: set HOROVOD_TIMELINE=DYNAMIC on all ranks to start and stop them while it runs, or \
         HOROVOD_TIMELINE=<file> to record from the beginning as well"
    )]
    TimelineNotEnabled,
    /// A file that the runtime is to write cannot be written.
    #[error("cannot write {what} to {path} ({variable}): {source}", path = path.display())]
    Output {
        /// What the file is for.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The variable that names it.
        variable: &'static str,
        /// Why not.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// Whether the job has lost a rank, in whatever way: nothing more can be reduced in this context.
    pub fn is_peer_gone(&self) -> bool {
        matches!(
            self,
            Self::PeerLost { .. }
                | Self::PeerLeft { .. }
                | Self::PeerFailed { .. }
                | Self::PeerStalled { .. }
                | Self::PeerSilent { .. }
                | Self::InvalidPeerData { .. }
                | Self::InvalidSharedMemory { .. }
                | Self::Mpi { .. }
        )
    }

    /// Whether ranks disagreed about one tensor; the context goes on.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Mismatch(_))
    }

    /// Whether the context has come to its end in an orderly way.
    pub fn is_shut_down(&self) -> bool {
        matches!(self, Self::ShutDown)
    }

    /// Whether it ends a cycle without anything having gone wrong.
    pub(crate) fn is_orderly(&self) -> bool {
        matches!(self, Self::ShutDown | Self::ProcessSetRemoved { .. })
    }
}
