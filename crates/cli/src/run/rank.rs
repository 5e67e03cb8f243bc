//! Process of one rank: started in its own process group, with pipes for its output.

#![allow(unsafe_code)] // runs code between fork and exec

use super::output::{Queue, Target};
use super::stream::{READ_BYTES, Stream};
use super::{LaunchError, LaunchSpec, Output};
use ronde::internal::identity::IDENTITY_VARIABLES;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::fmt;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Number of reads that empty a pipe of 1 MiB, the largest size that an unprivileged process can
/// set.
const READS_MAX: usize = (1 << 20) / READ_BYTES;

/// Rank that has been started.
pub(super) struct Rank {
    child: Child,
    group: Pid,
    process: OwnedFd,
    pub(super) exit: Option<Exit>,
    pub(super) streams: Vec<Stream>,
}

/// Exit status of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(u8),
    Signal(i32),
}

impl Exit {
    /// Exit code by which a shell reports this exit status.
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128u8.saturating_add(signal as u8), // signals are 1 to 64
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("no name");
                write!(f, "was killed by signal {signal} ({name})")
            }
        }
    }
}

impl Rank {
    /// Starts a rank.
    pub(super) fn start(spec: &LaunchSpec, job_id: &str, rank: usize) -> Result<Rank, LaunchError> {
        let Some((program, arguments)) = spec.command.split_first() else {
            return Err(LaunchError::NoCommand);
        };
        let live = spec.output == Output::Live;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        for name in IDENTITY_VARIABLES {
            command.env_remove(name);
        }
        let place = [
            ("RANK", rank),
            ("SIZE", spec.num_proc),
            ("LOCAL_RANK", rank),
            ("LOCAL_SIZE", spec.num_proc),
        ];
        for (name, value) in place
            .into_iter()
            .chain([("CROSS_RANK", 0), ("CROSS_SIZE", 1)])
        {
            command.env(format!("HOROVOD_{name}"), value.to_string());
        }
        command
            .env("RONDE_JOB_ID", job_id)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)));
        // A process group in the background is stopped when it reads from a terminal.
        let inherits = rank == 0 && !io::stdin().is_terminal();
        command.stdin(if inherits {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stdout(match (live, rank) {
            (false, _) => Stdio::piped(),
            (true, 0) => Stdio::inherit(),
            (true, _) => Stdio::null(),
        });
        command.stderr(if live && rank == 0 {
            Stdio::inherit()
        } else {
            Stdio::piped()
        });
        die_with_this_thread(&mut command);
        let mut child = command.spawn().map_err(|source| LaunchError::Start {
            program: program.into(),
            rank,
            source,
        })?;
        match Rank::streams(spec, rank, &mut child)
            .and_then(|streams| Ok((streams, process_of(&child)?)))
        {
            Ok((streams, (group, process))) => Ok(Rank {
                child,
                group,
                process,
                exit: None,
                streams,
            }),
            Err(error) => {
                // No other code knows this child yet. An error means that it has ended already.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn streams(
        spec: &LaunchSpec,
        rank: usize,
        child: &mut Child,
    ) -> Result<Vec<Stream>, LaunchError> {
        let mut streams = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            streams.push(Stream::new(spec, rank, Target::Stdout, pipe.into())?);
        }
        if let Some(pipe) = child.stderr.take() {
            streams.push(Stream::new(spec, rank, Target::Stderr, pipe.into())?);
        }
        Ok(streams)
    }

    /// Descriptor that polls as readable after the process has ended.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Process group, which exists until the rank is reaped.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Returns the exit status if the process has ended. It stays a zombie until [`Rank::reap`], so
    /// that its group's number cannot be reused by another process, which we would then kill.
    pub(super) fn check(&mut self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.exit = match rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), options) {
            Ok(None) => None,
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (_, Some(signal)) => Some(Exit::Signal(signal)),
                (code, None) => Some(Exit::Code(code.unwrap_or(1) as u8)), // 8 bits are kept
            },
            // Other code in this process has reaped the child, so its exit status is unknown.
            Err(_) => Some(Exit::Code(1)),
        };
        self.exit
    }

    /// Signals the whole group. An empty group is not an error.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Reaps the process, which must have ended or been killed.
    pub(super) fn reap(&mut self) {
        // An error means that the child has been reaped before.
        let _ = self.child.wait();
    }

    /// Reads the available output without waiting.
    pub(super) fn drain(&mut self, queue: &mut Queue) {
        for stream in &mut self.streams {
            // Bounded, because a process outside of the group may write forever.
            let _ = (0..READS_MAX).take_while(|_| stream.read(queue)).count();
        }
    }
}

/// Process group and descriptor of a child that has not been reaped.
fn process_of(child: &Child) -> Result<(Pid, OwnedFd), LaunchError> {
    let pid = Pid::from_child(child);
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(LaunchError::system("watch a rank"))?;
    Ok((pid, process)) // the child leads its group: same number
}

/// Lets the kernel kill the process when the thread that starts it ends, in case the guard is
/// killed too.
fn die_with_this_thread(command: &mut Command) {
    let launcher = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The launcher may have ended before the system call above.
        if rustix::process::getppid() == Some(launcher) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `arm` makes two
    // system calls through rustix, and neither allocates nor takes a lock: an `io::Error` from an
    // `Errno` or `ErrorKind` is a plain value.
    unsafe { command.pre_exec(arm) };
}
