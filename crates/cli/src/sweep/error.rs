//! Errors of `ronde sweep`; the text names the remedy.

use std::io;
use std::path::PathBuf;

use super::report::ReportError;
use crate::EXIT_USAGE;
use crate::bench::LoadError;
use crate::present::output::OutputError;
use crate::replay::error::Error as ReplayError;
use crate::run::ElsewhereError;
use crate::timeline::error::Error as TimelineError;
use ronde::internal::identity::IdentityError;
use ronde::knobs::KnobError;
use ronde_lab::sweep::store::StoreError;

/// Reason why a sweep does not start or fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Write(#[from] OutputError),
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("a sweep starts its own ranks: start it without `ronde run`, mpirun or srun")]
    InsideJob,
    #[error(
        "a sweep changes the settings itself, so the tuner must be off: omit --autotune (HOROVOD_AUTOTUNE)"
    )]
    Autotune,
    #[error(transparent)]
    Elsewhere(#[from] ElsewhereError),
    #[error(
        "--hierarchical-allreduce on: {because}, so no operation can be hierarchical; name several hosts, as in -np 4 -H node1:2,node2:2, \
         or omit it"
    )]
    Flat { because: &'static str },
    #[error("{points} points are too many; give shorter lists ({most} in all)")]
    TooMany { points: usize, most: usize },
    #[error("cannot create the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "{} contains {found} already: give another --out, or --resume to continue that sweep", folder.display()
    )]
    Taken {
        folder: PathBuf,
        found: &'static str,
    },
    #[error("there is no sweep in {} to continue: {source}; omit --resume to start one", path.display())]
    NoPlan { path: PathBuf, source: io::Error },
    #[error("{}, line {}: not a plan of `ronde sweep`: {source}", path.display(), source.line())]
    Plan {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(
        "the sweep in {} has other arguments: {}; omit these, or give another --out", folder.display(), differences.join("; ")
    )]
    Differs {
        folder: PathBuf,
        differences: Vec<String>,
    },
    #[error(
        "the sweep in {} began on another machine ({}): step times cannot be compared; continue there, or give --other-machine",
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
    #[error("cannot {action}: {source}")]
    System {
        action: &'static str,
        source: io::Error,
    },
    #[error(
        "the job of {np} ranks does not start: {reason}; the measurements so far are safe, continue with --resume"
    )]
    NoStart { np: u32, reason: String },
}

impl Error {
    /// Exit code: 2 for an error in the command line, 1 for any other.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Load(error) => error.exit_code(),
            Self::Replay(error) => error.exit_code(),
            Self::InsideJob
            | Self::Autotune
            | Self::Elsewhere(_)
            | Self::Flat { .. }
            | Self::TooMany { .. }
            | Self::Taken { .. }
            | Self::NoPlan { .. }
            | Self::Differs { .. } => EXIT_USAGE,
            _ => 1,
        }
    }

    /// Error of a failed system call.
    pub(super) fn system(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
