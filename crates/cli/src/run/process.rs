//! Child process in a process group of its own: its exit status, signals to the group, and its end.

#![allow(unsafe_code)] // runs code between fork and exec

use super::LaunchError;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Process that has been started, and leads its group.
pub(super) struct Process {
    child: Child,
    group: Pid,
    descriptor: OwnedFd,
    pub(super) exit: Option<Exit>,
}

impl Process {
    /// Starts `command` in a group of its own. The kernel kills the process when the thread that
    /// starts it ends. Returns the child's pipes beside it.
    ///
    /// # Errors
    /// The program cannot be started, by `failed`; or the process cannot be watched.
    pub(super) fn start(
        command: &mut Command,
        failed: impl FnOnce(io::Error) -> LaunchError,
    ) -> Result<(Process, Pipes), LaunchError> {
        command.process_group(0);
        die_with_this_thread(command);
        let mut child = command.spawn().map_err(failed)?;
        match process_of(&child) {
            Ok((group, descriptor)) => {
                let pipes = Pipes {
                    stdin: child.stdin.take().map(OwnedFd::from),
                    stdout: child.stdout.take().map(OwnedFd::from),
                    stderr: child.stderr.take().map(OwnedFd::from),
                };
                let exit = None;
                let process = Process {
                    child,
                    group,
                    descriptor,
                    exit,
                };
                Ok((process, pipes))
            }
            Err(error) => {
                // No other code knows this child yet. An error means that it has ended already.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Descriptor that polls as readable after the process has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Process group, which exists until the process is reaped.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Returns the exit status if the process has ended. It stays a zombie until
    /// [`Process::reap`], so that its group's number cannot be reused by another process, which we
    /// would then kill.
    pub(super) fn check(&mut self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let waited = rustix::process::waitid(WaitId::PidFd(self.descriptor.as_fd()), options);
        self.exit = match waited {
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
}

/// This process's ends of a child's pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// Exit status of a process.
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

/// Process group and descriptor of a child that has not been reaped.
fn process_of(child: &Child) -> Result<(Pid, OwnedFd), LaunchError> {
    let pid = Pid::from_child(child);
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(LaunchError::system("watch a process"))?;
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
