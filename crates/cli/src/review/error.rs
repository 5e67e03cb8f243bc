//! Errors of `ronde review`; the text of each states the remedy.

use std::io;
use std::path::PathBuf;

use ronde_tuner::LogError;

use crate::chart::picture::PictureError;
use crate::present::output::OutputError;

/// Reason why there is no review, or why an output is missing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is {kind}; give a log that HOROVOD_AUTOTUNE_LOG named", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    #[error("{} is larger than {most_mib} MiB, which no autotune log is", path.display())]
    TooLarge { path: PathBuf, most_mib: u64 },
    #[error("{}: {source}", path.display())]
    Log { path: PathBuf, source: LogError },
    #[error("{}: there is nothing to compare: {why}", path.display())]
    NothingToCompare { path: PathBuf, why: &'static str },
    #[error("--{format}: there is nothing to draw: no log has a trial")]
    NothingToDraw { format: &'static str },
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Figure(#[from] PictureError),
}

impl Error {
    /// Exit code: 2 for an error on the command line, 1 for any other error.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_code(),
            _ => 1,
        }
    }
}
