//! One rank: its process, started in a group of its own, and the pipes that its output comes through.

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

/// Reads that empty a pipe of the largest size an unprivileged process may give it, 1 MiB.
const READS_MAX: usize = (1 << 20) / READ_BYTES;

/// A rank that has been started.
pub(super) struct Rank {
    child: Child,
    group: Pid,
    process: OwnedFd,
    pub(super) exit: Option<Exit>,
    pub(super) streams: Vec<Stream>,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(u8),
    Signal(i32),
}

impl Exit {
    /// The exit code by which a shell would tell of it.
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128u8.saturating_add(signal as u8), // signals are numbered 1 to 64
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
        for (name, value) in place.into_iter().chain([("CROSS_RANK", 0), ("CROSS_SIZE", 1)]) {
            command.env(format!("HOROVOD_{name}"), value.to_string());
        }
        command
            .env("RONDE_JOB_ID", job_id)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)));
        // A terminal would stop a process group in the background that reads it.
        let inherits = rank == 0 && !io::stdin().is_terminal();
        command.stdin(if inherits { Stdio::inherit() } else { Stdio::null() });
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
        match Rank::streams(spec, rank, &mut child).and_then(|streams| Ok((streams, process_of(&child)?))) {
            Ok((streams, (group, process))) => Ok(Rank {
                child,
                group,
                process,
                exit: None,
                streams,
            }),
            Err(error) => {
                // Nobody else knows of this child yet. That it may have ended by itself does not matter.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn streams(spec: &LaunchSpec, rank: usize, child: &mut Child) -> Result<Vec<Stream>, LaunchError> {
        let mut streams = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            streams.push(Stream::new(spec, rank, Target::Stdout, pipe.into())?);
        }
        if let Some(pipe) = child.stderr.take() {
            streams.push(Stream::new(spec, rank, Target::Stderr, pipe.into())?);
        }
        Ok(streams)
    }

    /// Polls as readable once the process has ended.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// The process group, which lives as long as the rank has not been reaped.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Looks whether the process has ended, and how. It stays a zombie until [`Rank::reap`], so that its group's number
    /// cannot be given to another process that we would then kill.
    pub(super) fn check(&mut self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.exit = match rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), options) {
            Ok(None) => None,
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (_, Some(signal)) => Some(Exit::Signal(signal)),
                (code, None) => Some(Exit::Code(code.unwrap_or(1) as u8)), // the kernel keeps 8 bits
            },
            // Somebody else in this process has reaped it; that it ended is all there is to know.
            Err(_) => Some(Exit::Code(1)),
        };
        self.exit
    }

    /// Signals the whole group. That nobody is left in it is no failure.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Waits for the process, which must have ended or been killed.
    pub(super) fn reap(&mut self) {
        // It fails only for a child that was waited for already.
        let _ = self.child.wait();
    }

    /// Takes what output there is without waiting.
    pub(super) fn drain(&mut self, queue: &mut Queue) {
        for stream in &mut self.streams {
            // Bounded, for a process outside the group may write for ever.
            let _ = (0..READS_MAX).take_while(|_| stream.read(queue)).count();
        }
    }
}

/// The group and a descriptor of a child that has not been reaped.
fn process_of(child: &Child) -> Result<(Pid, OwnedFd), LaunchError> {
    let pid = Pid::from_child(child);
    let process =
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(LaunchError::system("watch a rank"))?;
    Ok((pid, process)) // it leads its group, so the numbers are the same
}

/// Has the kernel kill the process when the thread that starts it ends, in case not even the guard is left.
fn die_with_this_thread(command: &mut Command) {
    let launcher = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The launcher may have died before the line above.
        if rustix::process::getppid() == Some(launcher) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `arm` makes two system calls through rustix,
    // and neither allocates nor takes a lock: `io::Error` from an `Errno` or `ErrorKind` is a plain value.
    unsafe { command.pre_exec(arm) };
}
