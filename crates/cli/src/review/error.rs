//! What can go wrong; the text says what to do.

use std::io;
use std::path::PathBuf;

use ronde_tuner::LogError;

use crate::chart::picture::PictureError;
use crate::present::output::OutputError;

/// Why there is no review.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is {kind}; give a log that HOROVOD_AUTOTUNE_LOG named", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    #[error("{} is larger than {most_mb} MB, which no autotune log is", path.display())]
    TooLarge { path: PathBuf, most_mb: u64 },
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
    /// 2 where the command line is to blame, 1 where the world is.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_code(),
            _ => 1,
        }
    }
}
