//! Description of a job to launch, and the errors of a launch.

use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Job for [`launch`](super::launch).
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// Name of the sender in messages, such as `ronde run`.
    pub label: String,
    /// Program of each rank and its arguments, which are not passed through a shell.
    pub command: Vec<OsString>,
    /// Number of ranks, from 1 to [`MAX_RANKS`](ronde::internal::identity::MAX_RANKS).
    pub num_proc: usize,
    /// Variables for each rank, in addition to those of its identity.
    pub environment: Vec<(OsString, OsString)>,
    /// Destination of the ranks' output.
    pub output: Output,
    /// Directory for a copy of each rank's output, as `rank.<rank>/stdout` and `stderr`: the same
    /// lines, with their prefixes.
    pub output_dir: Option<PathBuf>,
    /// Whether to report the start and the end of ranks.
    pub verbose: bool,
    /// Command that starts the `ronde` program as a guard process, which kills all ranks if this
    /// process is killed by SIGKILL. If empty, the kernel kills the process of each rank, but not
    /// the processes that it started.
    pub guard: Vec<OsString>,
}

/// Destination of the ranks' output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// All output, line by line, each with the prefix `[<rank>]<stdout>:`, optionally with the time
    /// before it.
    Prefixed {
        /// Whether each line begins with the local time.
        timestamp: bool,
    },
    /// All output, line by line, without prefixes.
    Plain,
    /// Rank 0 inherits this process's standard output and error, so that it has access to the
    /// terminal. Of the other ranks only standard error is printed, with prefixes.
    Live,
}

/// Error of a launch: the job could not be started or supervised. All started processes have been
/// ended.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The number of ranks is not supported.
    #[error("{num_proc} ranks cannot be started: expected 1 to {max}")]
    Ranks {
        /// Requested number.
        num_proc: usize,
        /// Most ranks supported.
        max: usize,
    },
    /// The command is empty.
    #[error("no command to start; write it after --")]
    NoCommand,
    /// The program of a rank could not be started.
    #[error(
        "cannot start {} as rank {rank}: {source}{}",
        .program.display(),
        start_advice(.source, "check the command's spelling and PATH")
    )]
    Start {
        /// The program.
        program: PathBuf,
        /// The rank.
        rank: usize,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The process that starts the ranks of a host could not be started.
    #[error(
        "cannot start {} for the host {host}: {source}{}",
        .program.display(),
        start_advice(
            .source,
            "hosts without MPI are reached through ssh, so install its client (Debian: \
             openssh-client), or use this machine alone (-H localhost:N)"
        )
    )]
    Agent {
        /// The host.
        host: String,
        /// The program.
        program: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file for a rank's output could not be created.
    #[error("cannot write to {}: {source}; choose another output directory", .path.display())]
    OutputFile {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A system call that the launcher needs failed.
    #[error("cannot {action}: {source}")]
    System {
        /// Action that failed.
        action: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Advice after the error of a program that cannot be started, with a semicolon before it; `missing`
/// is the advice if there is no such program.
fn start_advice(source: &io::Error, missing: &str) -> String {
    let advice = match Errno::from_io_error(source) {
        Some(Errno::NOENT) => missing,
        Some(Errno::MFILE) => "raise the limit of open files (ulimit -n)",
        Some(Errno::AGAIN) => {
            "raise the limit of processes: the user's (ulimit -u), or that of the container \
             (docker: --pids-limit)"
        }
        Some(Errno::ACCESS) => {
            "check that it is a program, that its permissions allow its execution, and that its \
             file system is not mounted with noexec"
        }
        _ => return String::new(),
    };
    format!("; {advice}")
}

impl LaunchError {
    /// Exit code for this error, as in a shell: 127 for a command that does not exist, 126 for one
    /// that cannot be executed; 2 for an invalid number of ranks or an invalid command line.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Ranks { .. } | LaunchError::NoCommand => 2,
            LaunchError::Start { source, .. } | LaunchError::Agent { source, .. } => {
                match source.kind() {
                    io::ErrorKind::NotFound => 127,
                    _ => 126,
                }
            }
            LaunchError::OutputFile { .. } | LaunchError::System { .. } => 1,
        }
    }

    /// Error of a message to the guard process.
    pub(super) fn guard(source: io::Error) -> LaunchError {
        let action = "send a message to the guard process";
        LaunchError::System { action, source }
    }

    pub(super) fn system(action: &'static str) -> impl Fn(rustix::io::Errno) -> LaunchError {
        move |source| LaunchError::System {
            action,
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_after_a_failed_start_fits_its_reason() {
        let start = |source: Errno| LaunchError::Start {
            program: "a".into(),
            rank: 1,
            source: source.into(),
        };
        let agent = |source: Errno| LaunchError::Agent {
            host: "b".into(),
            program: "ssh".into(),
            source: source.into(),
        };
        let own = [
            (start as fn(Errno) -> LaunchError, "spelling and PATH"),
            (agent, "install its client"),
        ];
        for (of, missing) in own {
            for (source, part) in [
                (Errno::NOENT, missing),
                (Errno::MFILE, "ulimit -n"),
                (Errno::AGAIN, "--pids-limit"),
                (Errno::ACCESS, "noexec"),
            ] {
                let text = of(source).to_string();
                assert!(text.contains(part), "{text}");
                assert_eq!(text.contains(missing), part == missing, "{text}");
            }
            let text = of(Errno::NOMEM).to_string();
            assert!(text.ends_with("(os error 12)"), "{text}");
        }
    }
}
