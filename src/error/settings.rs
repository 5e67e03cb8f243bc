//! Errors of settings: in the environment, in changes while the job runs, and of output files.

use std::path::PathBuf;
use std::sync::Arc;

/// A setting is invalid, or does not allow the call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A setting in the environment is invalid.
    #[error(transparent)]
    Invalid(Arc<dyn std::error::Error + Send + Sync>),
    /// Change of the settings by a rank that may not change them, or to invalid values.
    #[error("the settings were not changed: {reason}")]
    Refused {
        /// Reason of the refusal.
        reason: String,
    },
    /// A timeline cannot be started or stopped, because the job was started without
    /// HOROVOD_TIMELINE.
    #[error(
        "timelines are off in this job: set HOROVOD_TIMELINE=DYNAMIC on all ranks to start and \
         stop them while it runs, or HOROVOD_TIMELINE=<file> to record from the beginning as \
         well"
    )]
    TimelineNotEnabled,
    /// A program without the Python package in an elastic job.
    #[error(
        "the launcher has started an elastic job (RONDE_ELASTIC_SOCKET), in which only programs \
         that use the Python package get a rank; start this one with -np, without --min-np and \
         --host-discovery-script"
    )]
    NoElasticRank,
    /// An output file cannot be written.
    #[error("cannot write {what} to {path} ({variable}): {source}", path = path.display())]
    Output {
        /// Purpose of the file.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Variable that gives the path.
        variable: &'static str,
        /// The error of the system.
        source: Arc<std::io::Error>,
    },
    /// An address cannot be listened on.
    #[error("cannot listen for {what} on {address} ({variable}): {reason}")]
    Listen {
        /// Purpose of the listener.
        what: &'static str,
        /// The address, as in the variable.
        address: String,
        /// Variable that gives the address.
        variable: &'static str,
        /// The reason, and a way to solve it.
        reason: String,
    },
    /// A file with a secret cannot be used.
    #[error("the file {path} of {variable} is no secret: {reason}", path = path.display())]
    Secret {
        /// The path.
        path: PathBuf,
        /// Variable that gives the path.
        variable: &'static str,
        /// The reason, and a way to solve it.
        reason: String,
    },
}
