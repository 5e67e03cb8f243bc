//! Types of knob values: log level, backend, timeline, step range, link and settings of the tuner's
//! start.

use std::path::PathBuf;

/// Lowest level that is logged (`HOROVOD_LOG_LEVEL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// All events.
    Trace,
    /// Events that help to follow the runtime.
    Debug,
    /// Events that happen once.
    Info,
    /// Possible problems.
    Warning,
    /// Errors.
    Error,
    /// Only errors that end the process; other errors are returned to the caller.
    Fatal,
}

/// Connection of the ranks (`RONDE_BACKEND`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The best backend that works for this job.
    Auto,
    /// Shared memory, all ranks on one host.
    Local,
    /// MPI, ranks on any hosts; needs an MPI library and its plug-in.
    Mpi,
    /// TCP, ranks on any hosts.
    Tcp,
    /// As [`Auto`](Self::Auto), and each rank has a GPU; needs the feature `nccl`.
    Nccl,
}

/// Destination of the timeline (`HOROVOD_TIMELINE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineTarget {
    /// Rank 0 records into this file from initialization on.
    File(PathBuf),
    /// Nothing is recorded until the program starts the timeline itself.
    Dynamic,
}

/// Range of steps of a job, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRange {
    /// First step.
    pub first: u64,
    /// Last step, included; `None` without an end.
    pub last: Option<u64>,
}

impl StepRange {
    /// Whether `step` is in the range.
    pub fn holds(&self, step: u64) -> bool {
        step >= self.first && self.last.is_none_or(|last| step <= last)
    }
}

/// Link that the local collective simulates (`RONDE_LINK`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Latency per message, in µs.
    pub alpha_us: f64,
    /// Bandwidth, in 10⁹ bytes per second.
    pub gb_per_s: f64,
}

/// Settings that the tuner starts from without fixing them (`RONDE_AUTOTUNE_START`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AutotuneStart {
    /// Fusion threshold, in MiB.
    pub fusion_mb: Option<f64>,
    /// Cycle time, in ms.
    pub cycle_ms: Option<f64>,
}

impl LogLevel {
    /// The words of `HOROVOD_LOG_LEVEL`, in the order of the variants.
    pub(super) const WORDS: &'static [&'static str] =
        &["trace", "debug", "info", "warning", "error", "fatal"];
    pub(super) const ALL: [LogLevel; 6] = [
        LogLevel::Trace,
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Fatal,
    ];
}

impl Backend {
    /// The words of `RONDE_BACKEND`, in the order of the variants.
    pub(super) const WORDS: &'static [&'static str] = &["auto", "local", "mpi", "tcp", "nccl"];
    pub(super) const ALL: [Backend; 5] = [
        Backend::Auto,
        Backend::Local,
        Backend::Mpi,
        Backend::Tcp,
        Backend::Nccl,
    ];
}
