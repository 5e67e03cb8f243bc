//! Errors of `ronde replay`; the text names the remedy.

use std::io;
use std::path::PathBuf;

use crate::EXIT_USAGE;
use crate::present::output::OutputError;
use crate::timeline::error::Error as TimelineError;
use ronde_job::replay::network::ProjectError;
use ronde_job::replay::profile::ProfileError;
use ronde_trace::analysis::profile;

/// Reason why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error("profile {}, {source}", path.display())]
    Profile { path: PathBuf, source: ProfileError },
    #[error(
        "{} cannot be replayed ({source}); record the job with HOROVOD_TIMELINE, whose files contain ready times, sizes and \
         cycles", path.display()
    )]
    NotReplayable {
        path: PathBuf,
        source: profile::ProfileError,
    },
    #[error("cannot read {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("profile {} is larger than {most} bytes; it may be a timeline", path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error("--steps needs timelines; a profile has no steps")]
    NeedsTraces,
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(
        "{settings} settings for {targets} networks and numbers of ranks are too many; give shorter lists ({most} in all)"
    )]
    TooMany {
        settings: usize,
        targets: usize,
        most: usize,
    },
}

impl Error {
    /// Exit code: 2 for an error in the command line, 1 for any other.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_code(),
            Self::Timeline(error) => error.exit_code(),
            Self::NeedsTraces | Self::Project(_) | Self::TooMany { .. } => EXIT_USAGE,
            _ => 1,
        }
    }
}
