//! Common model of a rank's trace, whatever its format: [operations](Operation), each the transfer
//! of one tensor, and [marks](Mark).
//!
//! Times are nanoseconds since the file's zero, signed because clocks may go back. [`Source`] has
//! the wall clock at a file's zero.

use std::path::PathBuf;

use smallvec::SmallVec;

use ronde_job::Dtype;

/// Format of a file, named after the program that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Horovod's timeline.
    Horovod,
    /// Ronde's timeline: Horovod's format with rank, clock, steps and measured phases.
    Ronde,
    /// `comm.json` of BytePS, or of Ronde.
    Byteps,
    /// Trace of PyTorch's profiler.
    Kineto,
}

impl Format {
    /// Name of the program that writes the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Horovod => "Horovod",
            Self::Ronde => "Ronde",
            Self::Byteps => "BytePS",
            Self::Kineto => "PyTorch's profiler",
        }
    }
}

/// Smallest time that is taken for a wall clock, nanoseconds since 1970 (in 2001): a smaller time
/// counts from some start.
pub(crate) const WALL_CLOCK_MIN_NS: i64 = 1_000_000_000_000_000_000;

/// Properties of a whole file. Complete after the file has been read; data from its header are set
/// before the first event.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path of the file.
    pub path: PathBuf,
    /// Format.
    pub format: Format,
    /// Rank that wrote the file, if the file or its folder states it.
    pub rank: Option<u32>,
    /// Number of ranks in the job, if stated.
    pub size: Option<u32>,
    /// Wall clock at the file's zero, nanoseconds since 1970.
    pub epoch_ns: Option<i64>,
    /// Relation of the file's clock to that of rank 0.
    pub clock: Option<Clock>,
    /// Initial fusion threshold, bytes.
    pub fusion_threshold_bytes: Option<u64>,
    /// Additional limit of batches on GPUs, bytes.
    pub gpu_fusion_threshold_bytes: Option<u64>,
    /// Initial cycle time, milliseconds.
    pub cycle_time_ms: Option<f64>,
    /// Backend that moved the data (Ronde's `local`, `mpi`, …), if stated.
    pub backend: Option<String>,
    /// Whether the backend was slowed down to resemble a network (`ronde bench --link`).
    pub shaped: bool,
    /// Cycles dropped because the recorder's ring was full.
    pub dropped_cycles: u64,
    /// Whether text is missing: the file ends early, or part of it cannot be read.
    pub incomplete: bool,
    /// Whether a profiler's trace has calls of NCCL but no events of the GPU: all times are then
    /// those of the host.
    pub host_only: bool,
    /// Bytes of JSON read, after decompression.
    pub bytes: u64,
    /// Events read, metadata included.
    pub events: u64,
    /// Damage and oddities: one sentence each, with the loss and the place. Repetitions are
    /// counted, not listed.
    pub warnings: Vec<String>,
}

impl Source {
    /// Returns the description of a file of which only path and format are known.
    pub fn new(path: impl Into<PathBuf>, format: Format) -> Self {
        Self {
            path: path.into(),
            format,
            rank: None,
            size: None,
            epoch_ns: None,
            clock: None,
            fusion_threshold_bytes: None,
            gpu_fusion_threshold_bytes: None,
            cycle_time_ms: None,
            backend: None,
            shaped: false,
            dropped_cycles: 0,
            incomplete: false,
            host_only: false,
            bytes: 0,
            events: 0,
            warnings: Vec::new(),
        }
    }

    /// Offset to be added to the times of this file to get times of `reference`; `None` if the
    /// clocks cannot be related.
    pub(crate) fn shift_to(&self, reference: &Source) -> Option<i64> {
        let zeros = match (reference.clock, self.clock) {
            (Some(there), Some(here)) => Some((there.zero_ns, here.zero_ns)),
            _ => reference.epoch_ns.zip(self.epoch_ns),
        };
        zeros.map(|(there, here)| here.saturating_sub(there))
    }
}

/// Relation of a file's clock to that of rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Clock {
    /// The file's zero on rank 0's clock, nanoseconds. Files of one job are aligned by it.
    pub zero_ns: i64,
    /// Offset added to this rank's clock to get rank 0's, nanoseconds.
    pub offset_ns: i64,
    /// Error bound of the offset, nanoseconds.
    pub error_ns: u64,
    /// Drift of this rank's clock relative to rank 0's, parts per million.
    pub drift_ppm: f64,
}

/// Number of a name. Tensors and activities share one table, in order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// Interval from `began` to `ended`, never negative in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Start, nanoseconds since the file's zero.
    pub began: i64,
    /// End, nanoseconds since the file's zero.
    pub ended: i64,
}

impl Span {
    /// Length in nanoseconds.
    pub fn ns(self) -> u64 {
        (self.ended - self.began).unsigned_abs()
    }
}

/// Kind of an operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Every rank gets the reduction of all inputs.
    Allreduce,
    /// An allreduce with the Adasum reduction.
    Adasum,
    /// Every rank gets the inputs of all ranks.
    Allgather,
    /// Every rank gets the input of one rank.
    Broadcast,
    /// Each rank gets its part of every rank's input.
    Alltoall,
    /// Each rank gets its part of the reduction.
    Reducescatter,
    /// A rank has no more data.
    Join,
    /// Waits for all ranks.
    Barrier,
    /// A send or receive between two ranks.
    PointToPoint,
    /// Any other collective.
    Other,
}

impl Kind {
    /// All kinds, in order.
    pub(crate) const ALL: [Self; Self::Other as usize + 1] = [
        Self::Allreduce,
        Self::Adasum,
        Self::Allgather,
        Self::Broadcast,
        Self::Alltoall,
        Self::Reducescatter,
        Self::Join,
        Self::Barrier,
        Self::PointToPoint,
        Self::Other,
    ];

    /// Name of the operation's bar, as in Horovod's timelines where Horovod has the operation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "ALLREDUCE",
            Self::Adasum => "ADASUM",
            Self::Allgather => "ALLGATHER",
            Self::Broadcast => "BROADCAST",
            Self::Alltoall => "ALLTOALL",
            Self::Reducescatter => "REDUCESCATTER",
            Self::Join => "JOIN",
            Self::Barrier => "BARRIER",
            Self::PointToPoint => "POINT_TO_POINT",
            Self::Other => "COLLECTIVE",
        }
    }
}

/// Phase of an operation that an activity belongs to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for the data of the tensor or of other tensors in its batch (`WAIT_FOR_DATA`,
    /// `WAIT_FOR_OTHER_TENSOR_DATA`).
    WaitForData,
    /// Queued for the device (`QUEUE`).
    Queue,
    /// Creation of buffers, communicators and outputs (`INIT_FUSION_BUFFER`, `INIT_NCCL`,
    /// `ALLOCATE_OUTPUT`, …).
    Prepare,
    /// Copy into the fusion buffer, shared memory or host memory (`MEMCPY_IN_…`, `COPYD2H`).
    CopyIn,
    /// The collective itself (`MPI_ALLREDUCE`, `SHM_ALLREDUCE`, `PUSH`, NCCL kernels).
    Collective,
    /// Copy out of these (`MEMCPY_OUT_…`, `COPYH2D`), and combination of data that came with the
    /// negotiation (`ATTACHED_ALLREDUCE`).
    CopyOut,
}

/// Named part of an operation, within its execution; in BytePS's files also before. Activities of
/// Horovod and Ronde follow one another; those of other formats may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Name in the file.
    pub name: NameId,
    /// Phase it belongs to.
    pub phase: Phase,
    /// Start and end.
    pub span: Span,
}

/// Time at which a rank had the tensor ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Rank of the job. (Horovod writes the rank within the process set.)
    pub rank: u32,
    /// Time at which the rank submitted the tensor, nanoseconds; in a profiler's trace of a GPU, at
    /// which its kernel began.
    pub at: i64,
}

/// Time in the phases of a batch's collective where they overlap chunk by chunk: sums over the
/// chunks, in nanoseconds. Measured by Ronde's local backend; every member of a batch has the
/// batch's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseSums {
    /// Copying in.
    pub copy_in_ns: u64,
    /// Reduction of elements.
    pub reduce_ns: u64,
    /// Copying out.
    pub copy_out_ns: u64,
    /// Waiting for peers.
    pub wait_ns: u64,
}

/// One transfer of one tensor, in one rank's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Name of the tensor.
    pub tensor: NameId,
    /// Kind of the operation.
    pub kind: Kind,
    /// From the first rank that had the tensor ready to the last.
    pub negotiation: Option<Span>,
    /// Ready times of the ranks, as far as known; in order of time.
    pub ticks: SmallVec<[Tick; 4]>,
    /// From the start of its batch's transfer until the result was in place. Members of one batch
    /// have overlapping spans; in Ronde's files they are equal. None if the ranks' requests
    /// mismatched or the file ends before.
    pub execution: Option<Span>,
    /// Activities of the operation.
    pub activities: SmallVec<[Activity; 4]>,
    /// Sums of overlapping phases, if measured.
    pub sums: Option<PhaseSums>,
    /// Element type of the output.
    pub dtype: Option<Dtype>,
    /// Elements of the output.
    pub elements: Option<u64>,
    /// Bytes of the output; in some formats known without `dtype`.
    pub bytes: Option<u64>,
    /// Whether the ranks' requests mismatched.
    pub refused: bool,
}

/// Kind of a [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A cycle begins.
    Cycle,
    /// A step begins (the start of PyTorch's `ProfilerStep#n`). Formats that mark only ends have
    /// none.
    StepBegin,
    /// A step ends (Ronde's `STEP`, the end of PyTorch's `ProfilerStep#n`).
    Step,
    /// An epoch ends.
    Epoch,
    /// These settings are in force from here on.
    Settings {
        /// Fusion threshold, bytes.
        fusion_threshold_bytes: u64,
        /// Cycle time, nanoseconds.
        cycle_time_ns: u64,
        /// Limit of batches on GPUs, bytes, if it has changed.
        gpu_fusion_threshold_bytes: Option<u64>,
    },
}

/// Event at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Kind of the mark.
    pub kind: MarkKind,
    /// Time, nanoseconds.
    pub at: i64,
}

/// Receives the content of a file, roughly in order of time. An operation is passed when its last
/// event has been read, so that two may be out of order by up to one cycle. Unsorted formats are
/// sorted first.
pub trait Visitor {
    /// A new name; numbers count up from 0.
    fn name(&mut self, id: NameId, name: &str);
    /// One operation.
    fn operation(&mut self, operation: &Operation);
    /// One mark.
    fn mark(&mut self, mark: Mark);
    /// Work of the rank other than collectives. Spans may overlap; they come in order of start.
    fn compute(&mut self, _span: Span, _work: Work) {}
}

/// Kind of work that is not a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// An operator on the CPU, in a trace without kernels.
    Cpu,
    /// A computing kernel on the GPU.
    Kernel,
    /// A memory copy or set, or a kernel of unknown type, on the GPU.
    OtherGpu,
}
