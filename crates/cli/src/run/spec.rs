//! What to launch, and what can go wrong before it runs.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// A job for [`launch`](super::launch).
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// Who speaks in messages, such as `ronde run`.
    pub label: String,
    /// Program of each rank and its arguments; no shell reads it.
    pub command: Vec<OsString>,
    /// Number of ranks, from 1 to [`MAX_RANKS`](ronde::internal::identity::MAX_RANKS).
    pub num_proc: usize,
    /// Variables set for each rank, beyond those that tell it its place.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the ranks' output goes.
    pub output: Output,
    /// Directory that also gets each rank's output, as `rank.<rank>/stdout` and `stderr`: the same lines, prefix included.
    pub output_dir: Option<PathBuf>,
    /// Whether to say what is started and how it ends.
    pub verbose: bool,
    /// How the `ronde` program is started, of which a second process then kills all ranks should this one be killed with
    /// SIGKILL. Empty: the kernel kills each rank's own process, but not those that it started.
    pub guard: Vec<OsString>,
}

/// Where the output of ranks goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// All of it, line by line, each behind `[<rank>]<stdout>:`, and behind the time if asked.
    Prefixed {
        /// Whether the local time comes first.
        timestamp: bool,
    },
    /// All of it, line by line.
    Plain,
    /// Rank 0 has this process's own standard output and error, so that it sees the terminal. Of the other ranks only
    /// standard error appears, prefixed.
    Live,
}

/// The job could not be started, or not be watched. Whatever was started has been ended.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The number of ranks is not supported.
    #[error("{num_proc} ranks cannot be started: expected 1 to {max}")]
    Ranks {
        /// The number asked for.
        num_proc: usize,
        /// Most ranks supported.
        max: usize,
    },
    /// There is no command.
    #[error("no command to start; write it after --")]
    NoCommand,
    /// The program of a rank could not be started.
    #[error("cannot start {} as rank {rank}: {source}; check the command's spelling and PATH", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The rank.
        rank: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A file for a rank's output could not be made.
    #[error("cannot write to {}: {source}; choose another output directory", .path.display())]
    OutputFile {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused what the launcher needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code that tells of this error: as shells have it, 127 for a command that does not exist and 126 for one
    /// that cannot be executed; 2 for a number of ranks or a command line that cannot be.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Ranks { .. } | LaunchError::NoCommand => 2,
            LaunchError::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::Start { .. } => 126,
            LaunchError::OutputFile { .. } | LaunchError::System { .. } => 1,
        }
    }

    pub(super) fn system(action: &'static str) -> impl Fn(rustix::io::Errno) -> LaunchError {
        move |source| LaunchError::System {
            action,
            source: source.into(),
        }
    }
}
