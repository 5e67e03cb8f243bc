//! Errors of `ronde timeline`; the text of each states the remedy.

use std::io;
use std::path::PathBuf;

use crate::EXIT_USAGE;
use crate::present::output::OutputError;
use ronde_trace::ReadError;
use ronde_trace::analysis::{AnalysisError, ScalingError};

use ronde_trace::analysis::profile::ProfileError;

/// Reason why there is no report, or why an output is missing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    #[error(transparent)]
    Scaling(#[from] ScalingError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("cannot read {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
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
    #[error("{flag} needs the timelines themselves; a report has no events")]
    NeedsTraces { flag: &'static str },
    #[error("--merge reads its inputs twice, which {} does not allow; give a file", path.display())]
    MergeOfPipe { path: PathBuf },
}

impl Error {
    /// Exit code: 2 for an error on the command line, 1 for any other error.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_code(),
            Self::NeedsTraces { .. } | Self::MergeOfPipe { .. } => EXIT_USAGE,
            _ => 1,
        }
    }
}
