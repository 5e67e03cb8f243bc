//! The one model of what a rank did, whatever wrote the file: [operations](Operation), each of them one tensor that
//! travels once, and [marks](Mark).
//!
//! Times are nanoseconds since the file's own zero, signed since clocks may have gone back; a file's zero is said by
//! its [`Source`].

use std::path::PathBuf;

use smallvec::SmallVec;

use ronde_job::Dtype;

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Horovod's timeline.
    Horovod,
    /// Ronde's: Horovod's with more in it (rank, clock, steps, measured phases).
    Ronde,
    /// BytePS's `comm.json`, ours included.
    Byteps,
    /// PyTorch's profiler.
    Kineto,
}

impl Format {
    /// The name of what writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Horovod => "Horovod",
            Self::Ronde => "Ronde",
            Self::Byteps => "BytePS",
            Self::Kineto => "PyTorch's profiler",
        }
    }
}

/// A wall clock shows at least this, in nanoseconds since 1970 (2001): a time below it is one since some start.
pub(crate) const WALL_CLOCK_MIN_NS: i64 = 1_000_000_000_000_000_000;

/// What is known of a file as a whole. Complete when the file has been read; what stands in its head is there from
/// the first event on.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Who wrote it.
    pub format: Format,
    /// The rank that wrote it, if file or folder say so.
    pub rank: Option<u32>,
    /// Number of ranks in the job, likewise.
    pub size: Option<u32>,
    /// Wall clock at the file's zero, nanoseconds since 1970.
    pub epoch_ns: Option<i64>,
    /// How the file's times relate to those of rank 0.
    pub clock: Option<Clock>,
    /// Fusion threshold in force at the beginning, bytes.
    pub fusion_threshold_bytes: Option<u64>,
    /// What batches on GPUs are bounded by besides.
    pub gpu_fusion_threshold_bytes: Option<u64>,
    /// Cycle time in force at the beginning, milliseconds.
    pub cycle_time_ms: Option<f64>,
    /// What moved the data (Ronde's `local`, `mpi`, …), if the file says so.
    pub backend: Option<String>,
    /// Whether that was slowed down to resemble a network (`ronde bench --link`).
    pub shaped: bool,
    /// Cycles that found no room in the recorder's ring.
    pub dropped_cycles: u64,
    /// Whether text is missing: the file ends early, or a part of it cannot be read.
    pub incomplete: bool,
    /// Bytes of JSON read (of a compressed file: after decompression).
    pub bytes: u64,
    /// Events read, metadata included.
    pub events: u64,
    /// What was damaged or odd, each a sentence that says what was lost and where. The same complaint is counted,
    /// not repeated.
    pub warnings: Vec<String>,
}

impl Source {
    /// A file of which nothing more is known.
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
            bytes: 0,
            events: 0,
            warnings: Vec::new(),
        }
    }
}

/// How a file's clock relates to that of rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Clock {
    /// The file's zero on rank 0's clock, nanoseconds. Files of one job are laid over each other by this.
    pub zero_ns: i64,
    /// What was added to this rank's clock to get rank 0's, nanoseconds.
    pub offset_ns: i64,
    /// How wrong that may be, nanoseconds.
    pub error_ns: u64,
    /// How fast this rank's clock runs away from rank 0's, parts per million.
    pub drift_ppm: f64,
}

/// A name's number: tensors and activities share one table, in order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// From `began` to `ended`; never negative in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Nanoseconds since the file's zero.
    pub began: i64,
    /// Likewise.
    pub ended: i64,
}

impl Span {
    /// Length in nanoseconds.
    pub fn ns(self) -> u64 {
        (self.ended - self.began).unsigned_abs()
    }
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Every rank gets the combination of all.
    Allreduce,
    /// Likewise, combined in Adasum's way.
    Adasum,
    /// Every rank gets what all bring.
    Allgather,
    /// Every rank gets what one brings.
    Broadcast,
    /// Each rank gets its part of what all bring.
    Alltoall,
    /// Each rank gets its part of the combination.
    Reducescatter,
    /// A rank has no more data.
    Join,
    /// Waits for all.
    Barrier,
    /// A send or receive between two ranks.
    PointToPoint,
    /// Any other collective.
    Other,
}

impl Kind {
    /// The name of its bar, as in Horovod's timelines where those have it.
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

/// What an activity is time spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for the tensor's data, or other tensors' of its batch (`WAIT_FOR_DATA`, `WAIT_FOR_OTHER_TENSOR_DATA`).
    WaitForData,
    /// Queued for the device (`QUEUE`).
    Queue,
    /// Making buffers, communicators and outputs (`INIT_FUSION_BUFFER`, `INIT_NCCL`, `ALLOCATE_OUTPUT`, …).
    Prepare,
    /// Into the fusion buffer, shared memory or the host (`MEMCPY_IN_…`, `COPYD2H`).
    CopyIn,
    /// The collective itself (`MPI_ALLREDUCE`, `SHM_ALLREDUCE`, `PUSH`, NCCL kernels).
    Collective,
    /// Out of it (`MEMCPY_OUT_…`, `COPYH2D`).
    CopyOut,
}

/// Something that happened to an operation: while it was executed, or in BytePS's files before. Those of Horovod and Ronde
/// follow one another; those of other formats may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its name in the file.
    pub name: NameId,
    /// What it is time spent on.
    pub phase: Phase,
    /// When.
    pub span: Span,
}

/// A rank had the tensor ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The rank, within the process set.
    pub rank: u32,
    /// When it submitted the tensor.
    pub at: i64,
}

/// What a batch's collective spent its time on where its phases overlap chunk by chunk: sums over the chunks, in
/// nanoseconds. Measured by Ronde's local backend; every member of a batch carries the batch's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseSums {
    /// Copying in.
    pub copy_in_ns: u64,
    /// Combining elements.
    pub reduce_ns: u64,
    /// Copying out.
    pub copy_out_ns: u64,
    /// Waiting for peers.
    pub wait_ns: u64,
}

/// One tensor that travelled once, as one rank's file tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The tensor.
    pub tensor: NameId,
    /// What was done with it.
    pub kind: Kind,
    /// From when the first rank had it ready until all had.
    pub negotiation: Option<Span>,
    /// When each rank had it ready, where that is known; in order of time.
    pub ticks: SmallVec<[Tick; 4]>,
    /// From when its batch began to be moved until the result was in place. Members of one batch have overlapping
    /// spans (Ronde: the same). None if the ranks disagreed about it or the file ends before.
    pub execution: Option<Span>,
    /// What happened meanwhile.
    pub activities: SmallVec<[Activity; 4]>,
    /// See there.
    pub sums: Option<PhaseSums>,
    /// Element type of the output.
    pub dtype: Option<Dtype>,
    /// Elements of the output.
    pub elements: Option<u64>,
    /// Bytes of the output; known without `dtype` in some formats.
    pub bytes: Option<u64>,
    /// The ranks disagreed about it.
    pub refused: bool,
}

/// What a [`Mark`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A cycle begins.
    Cycle,
    /// A step begins here (the beginning of PyTorch's `ProfilerStep#n`). Formats that mark ends only have none.
    StepBegin,
    /// A step ends here (Ronde's `STEP`, the end of PyTorch's `ProfilerStep#n`).
    Step,
    /// An epoch ends here.
    Epoch,
    /// From here on these settings are in force: fusion threshold in bytes, cycle time in nanoseconds.
    Settings {
        /// Bytes.
        fusion_threshold_bytes: u64,
        /// Nanoseconds.
        cycle_time_ns: u64,
    },
}

/// A point in time that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What.
    pub kind: MarkKind,
    /// When.
    pub at: i64,
}

/// Takes what a reader finds, roughly in order of time: an operation comes when its last event has been read, so that
/// two may be out of order by as long as one cycle or, in formats that are not sorted, are sorted first.
pub trait Visitor {
    /// A name has been met for the first time; numbers count up from 0.
    fn name(&mut self, id: NameId, name: &str);
    /// A tensor has travelled.
    fn operation(&mut self, operation: &Operation);
    /// A point in time.
    fn mark(&mut self, mark: Mark);
    /// The rank worked on something else than collectives. Spans may overlap; they come in order of beginning.
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
