//! Errors of the subcommands; the text of each states the remedy.

use std::io;
use std::path::PathBuf;

use super::EXIT_USAGE;
use super::chart::picture::PictureError;
use super::present::interrupt::WatchError;
use super::present::output::OutputError;
use super::run::{ElasticError, HostsError, LaunchError, MpirunError, SshError};
use super::tune::CommandError;
use ronde::internal::gpu::GpuError;
use ronde::internal::identity::{IdentityError, MAX_RANKS};
use ronde::knobs::KnobError;
use ronde_command::Problem;
use ronde_job::replay::network::ProjectError;
use ronde_job::replay::profile::ProfileError;
use ronde_lab::bench::memory::MemoryError;
use ronde_lab::bench::models::UnknownModelError;
use ronde_lab::bench::{RunError, profile as tensors};
use ronde_lab::sweep::store::StoreError;
use ronde_trace::ReadError;
use ronde_trace::analysis::{AnalysisError, ScalingError, profile as extracted};
use ronde_tuner::{LogError, StateError};

/// Reason why a subcommand fails, or why one of its outputs is missing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error(transparent)]
    Signals(#[from] WatchError),
    #[error("cannot read {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot {action}: {source}")]
    System {
        action: &'static str,
        source: io::Error,
    },

    // The job that the environment and the flags describe.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Hosts(#[from] HostsError),
    #[error(transparent)]
    Elastic(#[from] ElasticError),
    #[error(transparent)]
    Mpirun(#[from] MpirunError),
    #[error(transparent)]
    Ssh(#[from] SshError),
    #[error(
        "--tcp starts a job without MPI on several hosts, which RONDE_BACKEND contradicts; give \
         --backend tcp, or none"
    )]
    TcpContradicted,
    #[error(transparent)]
    Runtime(#[from] ronde::error::Error),

    // The load of a benchmark.
    #[error(transparent)]
    Model(#[from] UnknownModelError),
    #[error(transparent)]
    Tensors(#[from] tensors::ProfileError),
    #[error("-np {np} is out of range: give 1 to {MAX_RANKS} ranks")]
    RankCount { np: usize },
    #[error("--slow-rank {rank} is not one of the {ranks} ranks: give 0 to {}", ranks - 1)]
    SlowRank { rank: usize, ranks: usize },
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(
        "-np {np} contradicts the job of {size} ranks that this process was started in; leave -np \
         out here"
    )]
    InnerRankCount { np: usize, size: usize },
    #[error("backend nccl: {0}")]
    Gpu(#[from] GpuError),
    #[error(
        "backend nccl: --link shapes operations in host memory only; omit it for tensors on GPUs"
    )]
    ShapedGpu,
    #[error(transparent)]
    Run(#[from] RunError),

    // Timelines, and the reports on them.
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    #[error(transparent)]
    Scaling(#[from] ScalingError),
    #[error(transparent)]
    Extracted(#[from] extracted::ProfileError),
    #[error("the page cannot be served on {address}: {source}")]
    Dash {
        address: String,
        source: ronde_dash::DashError,
    },
    #[error(
        "{}, line {}: not a report that `ronde timeline --json` wrote: {source}",
        path.display(), source.line()
    )]
    Report {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(
        "{} is a report of version {found}; this ronde reads {expected}: make it again from the \
         timeline",
        path.display()
    )]
    ReportVersion {
        path: PathBuf,
        found: u64,
        expected: u32,
    },
    #[error(
        "{} is a result of `ronde bench`, which says how long steps took, not why; give a timeline, \
         or use --scaling",
        path.display()
    )]
    Bench { path: PathBuf },
    #[error("{flag} needs the timelines themselves; a {given} has no events")]
    NeedsTraces {
        flag: &'static str,
        given: &'static str,
    },
    #[error("--merge reads its inputs twice, which {} does not allow; give a file", path.display())]
    MergeOfPipe { path: PathBuf },

    // Replays of timelines and profiles.
    #[error("profile {}, {source}", path.display())]
    Profile { path: PathBuf, source: ProfileError },
    #[error("profile {} is larger than {most} bytes; it may be a timeline", path.display())]
    LargeProfile { path: PathBuf, most: u64 },
    #[error(
        "{} cannot be replayed ({source}); record the job with HOROVOD_TIMELINE, whose files \
         contain ready times, sizes and cycles", path.display()
    )]
    NotReplayable {
        path: PathBuf,
        source: extracted::ProfileError,
    },
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(
        "{settings} settings for {targets} networks and numbers of ranks are too many; give \
         shorter lists ({most} in all)"
    )]
    TooManyPredictions {
        settings: usize,
        targets: usize,
        most: usize,
    },

    #[error(
        "{flag}: the allreduces were recorded as hierarchical ones, so only such can be predicted, for the same ranks and \
         network; record the job with HOROVOD_HIERARCHICAL_ALLREDUCE=0"
    )]
    RecordedHierarchical { flag: &'static str },
    #[error(
        "--hosts: {ranks} ranks cannot be spread over {hosts} hosts with the same number on all hosts but the last; give \
         another number of hosts, or --ranks-per-host"
    )]
    UnevenHosts { ranks: u32, hosts: u32 },

    // Autotune logs.
    #[error("{} is {kind}; give a log that HOROVOD_AUTOTUNE_LOG named", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    #[error("{} is larger than {most_mib} MiB, which no autotune log is", path.display())]
    LargeLog { path: PathBuf, most_mib: u64 },
    #[error("{}: {source}", path.display())]
    Log { path: PathBuf, source: LogError },
    #[error("{}: there is nothing to compare: {why}", path.display())]
    NothingToCompare { path: PathBuf, why: &'static str },
    #[error("--{format}: there is nothing to draw: no log has a trial")]
    NothingToDraw { format: &'static str },

    // Tuning of commands, and the tuner as a service.
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("{}: {problem}", path.display())]
    Space { path: PathBuf, problem: Problem },
    #[error("the input ended before a line gave the parameters; see ronde tune --help")]
    NoSpace,
    #[error(transparent)]
    State(#[from] StateError),

    // Sweeps.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a sweep starts its own ranks: start it without `ronde run`, mpirun or srun")]
    InsideJob,
    #[error(
        "a sweep changes the settings itself, so the tuner must be off: omit --autotune \
         (HOROVOD_AUTOTUNE)"
    )]
    Autotune,
    #[error("a sweep always measures the default, but {setting} is set, and {default}: {instead}")]
    DefaultExcluded {
        setting: &'static str,
        default: &'static str,
        instead: &'static str,
    },
    #[error(
        "--hierarchical-allreduce on: {because}, so no operation can be hierarchical; name several \
         hosts, as in -np 4 -H node1:2,node2:2, or omit it"
    )]
    Flat { because: &'static str },
    #[error("{points} points are too many; give shorter lists ({most} in all)")]
    TooManyPoints { points: usize, most: usize },
    #[error("cannot create the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "{} contains {found} already: give another --out, or --resume to continue that sweep",
        folder.display()
    )]
    Taken {
        folder: PathBuf,
        found: &'static str,
    },
    #[error(
        "there is no sweep in {} to continue: {source}; omit --resume to start one",
        path.display()
    )]
    NoPlan { path: PathBuf, source: io::Error },
    #[error("{}, line {}: not a plan of `ronde sweep`: {source}", path.display(), source.line())]
    Plan {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(
        "the sweep in {} has other arguments: {}; omit these, or give another --out",
        folder.display(), differences.join("; ")
    )]
    Differs {
        folder: PathBuf,
        differences: Vec<String>,
    },
    #[error(
        "the sweep in {} began on another machine ({}): step times cannot be compared; continue \
         there, or give --other-machine",
        folder.display(), changes.join("; ")
    )]
    OtherMachine {
        folder: PathBuf,
        changes: Vec<String>,
    },
    #[error("{profile} has changed since the sweep began: {then} then, {now} now")]
    OtherProfile {
        profile: String,
        then: String,
        now: String,
    },
    #[error(
        "the job of {np} ranks does not start: {reason}; the measurements so far are safe, \
         continue with --resume"
    )]
    NoStart { np: u32, reason: String },
}

impl Error {
    /// Exit code: 2 for an error in the command line, 1 for most others.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_code(),
            Self::Launch(error) => error.exit_code(),
            Self::Mpirun(error) => error.exit_code(),
            Self::Ssh(error) => error.exit_code(),
            Self::Command(error) if error.is_usage() => EXIT_USAGE,
            Self::Knob(_)
            | Self::Hosts(_)
            | Self::Elastic(_)
            | Self::TcpContradicted
            | Self::Runtime(ronde::error::Error::Device(_))
            | Self::Model(_)
            | Self::RankCount { .. }
            | Self::SlowRank { .. }
            | Self::InnerRankCount { .. }
            | Self::Gpu(_)
            | Self::ShapedGpu
            | Self::NeedsTraces { .. }
            | Self::MergeOfPipe { .. }
            | Self::Project(_)
            | Self::TooManyPredictions { .. }
            | Self::RecordedHierarchical { .. }
            | Self::UnevenHosts { .. }
            | Self::InsideJob
            | Self::Autotune
            | Self::DefaultExcluded { .. }
            | Self::Flat { .. }
            | Self::TooManyPoints { .. }
            | Self::Taken { .. }
            | Self::NoPlan { .. }
            | Self::Differs { .. } => EXIT_USAGE,
            _ => 1,
        }
    }

    /// Error of a failed system call.
    pub(crate) fn system(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
