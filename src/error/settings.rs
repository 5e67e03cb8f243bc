//! Errors of settings: in the environment, changed while the job runs, and the files that they name.

use std::path::PathBuf;
use std::sync::Arc;

/// A setting is invalid, or does not allow the call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A setting in the environment is invalid.
    #[error(transparent)]
    Invalid(Arc<dyn std::error::Error + Send + Sync>),
    /// A change of the settings by a rank that may not change them, or to invalid values.
    #[error("the settings stay as they are: {reason}")]
    Refused {
        /// What does not allow it.
        reason: String,
    },
    /// A timeline is to be started or stopped in a job that was not set up for one.
    #[error(
        "timelines are off in this job: set HOROVOD_TIMELINE=DYNAMIC on all ranks to start and stop \
         them while it runs, or HOROVOD_TIMELINE=<file> to record from the beginning as well"
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
        /// The error of the system.
        source: Arc<std::io::Error>,
    },
}
