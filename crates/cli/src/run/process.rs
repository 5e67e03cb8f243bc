//! Child process in a process group of its own: its exit status, signals to the group, and its end.

#![allow(unsafe_code)] // runs code between fork and exec

use super::LaunchError;
use super::watch::Watch;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Process that has been started, and leads its group.
pub(super) struct Process {
    child: Child,
    /// Process id of the child, which leads its group.
    group: Pid,
    watch: Watch,
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
        Self::start_watched(command, failed, Watch::open)
    }

    fn start_watched(
        command: &mut Command,
        failed: impl FnOnce(io::Error) -> LaunchError,
        watch: impl FnOnce(Pid) -> Result<Watch, LaunchError>,
    ) -> Result<(Process, Pipes), LaunchError> {
        command.process_group(0);
        die_with_this_thread(command);
        let mut child = command.spawn().map_err(failed)?;
        let group = Pid::from_child(&child);
        match watch(group) {
            Ok(watch) => {
                let pipes = Pipes {
                    stdin: child.stdin.take().map(OwnedFd::from),
                    stdout: child.stdout.take().map(OwnedFd::from),
                    stderr: child.stderr.take().map(OwnedFd::from),
                };
                let exit = None;
                let process = Process {
                    child,
                    group,
                    watch,
                    exit,
                };
                Ok((process, pipes))
            }
            Err(error) => {
                // No other code knows this child yet. An error of `kill` means that it has ended
                // already.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Descriptor that polls as readable after the process has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// Process group, which exists until the process is reaped.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Returns the exit status if the process has ended. It stays a zombie until
    /// [`Process::reap`], so that its number cannot be reused by another process, which we would
    /// then wait for or kill.
    pub(super) fn check(&mut self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // By number: waitid(2) takes pidfds since Linux 5.4 only.
        self.exit = match rustix::process::waitid(WaitId::Pid(self.group), options) {
            Ok(None) => None,
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (_, Some(signal)) => Some(Exit::Signal(signal)),
                (code, None) => Some(Exit::Code(code.unwrap_or(1) as u8)), // 8 bits are kept
            },
            // Such as ECHILD: other code in this process has reaped the child.
            Err(error) => Some(Exit::Unknown(error.raw_os_error())),
        };
        self.exit
    }

    /// Signals the whole group. An empty group is not an error.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Reaps the process, which must have ended or been killed.
    pub(super) fn reap(&mut self) {
        self.watch.close();
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
    /// The operating system did not give the exit status, by this error (errno).
    Unknown(i32),
}

impl Exit {
    /// Exit code by which a shell reports this exit status.
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128u8.saturating_add(signal as u8), // signals are 1 to 64
            Exit::Unknown(_) => 1,
        }
    }
}

/// Hint after the end of `rank` by SIGKILL, which the launcher has not sent.
pub(super) fn lack_of_memory(exit: Exit, rank: &str) -> Option<String> {
    (exit == Exit::Signal(Signal::KILL.as_raw())).then(|| {
        format!(
            "the system may have killed {rank} for lack of memory: see dmesg, and the memory limit \
             of the container"
        )
    })
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("no name");
                write!(f, "was killed by signal {signal} ({name})")
            }
            Exit::Unknown(error) => {
                let error = io::Error::from_raw_os_error(error);
                write!(f, "ended with an exit status that cannot be read: {error}")
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::wait::Waiting;
    use super::*;
    use std::collections::HashMap;
    use std::fs;
    use std::time::Instant;

    type Open = fn(Pid) -> Result<Watch, LaunchError>;

    /// Both ways to watch a process.
    const WATCHES: [Open; 2] = [Watch::open, Watch::by_thread];

    fn start(script: &str, watch: Open) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let failed = |source| panic!("sh: {source}");
        let (process, _) = Process::start_watched(&mut command, failed, watch).unwrap();
        process
    }

    /// Waits for the end of `process`, by its descriptor.
    fn end(process: &mut Process) -> Exit {
        let mut waiting = Waiting::new();
        waiting.readable(process.descriptor(), ());
        waiting.wait(None).unwrap();
        process.check().expect("it has ended")
    }

    fn has_ended(process: &Process) -> bool {
        let mut waiting = Waiting::new();
        waiting.readable(process.descriptor(), ());
        !waiting.wait(Some(Instant::now())).unwrap().is_empty()
    }

    /// Waits for the end of a child, which stays a zombie, without its watch.
    fn await_zombie(pid: Pid) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), options).unwrap();
    }

    #[test]
    fn exit_codes_and_signals_are_told_apart() {
        for watch in WATCHES {
            for (script, exit) in [
                ("exit 0", Exit::Code(0)),
                ("exit 3", Exit::Code(3)),
                ("exit 255", Exit::Code(255)),
                ("kill -9 $$", Exit::Signal(9)),
                ("kill -15 $$", Exit::Signal(15)),
            ] {
                let mut process = start(script, watch);
                assert_eq!(end(&mut process), exit, "{script}");
                assert_eq!(process.check(), Some(exit), "{script}"); // it is still a zombie
                process.reap();
                assert_eq!(process.exit, Some(exit), "{script}");
            }
        }
    }

    #[test]
    fn a_process_is_signalled_with_its_group_and_has_not_ended_before() {
        for watch in WATCHES {
            let mut process = start("sleep 1000 & wait", watch);
            assert!(!has_ended(&process));
            assert_eq!(process.check(), None);
            process.signal(Signal::TERM);
            assert_eq!(end(&mut process), Exit::Signal(15));
            process.signal(Signal::KILL);
            process.reap();
        }
    }

    #[test]
    fn a_process_can_end_before_it_is_watched() {
        let late: [Open; 2] = [
            |pid| {
                await_zombie(pid);
                Watch::open(pid)
            },
            |pid| {
                await_zombie(pid);
                Watch::by_thread(pid)
            },
        ];
        for watch in late {
            let mut process = start("exit 4", watch);
            assert_eq!(end(&mut process), Exit::Code(4));
            process.reap();
        }
    }

    #[test]
    fn an_exit_status_that_cannot_be_read_is_reported_with_the_reason() {
        for watch in WATCHES {
            let mut process = start("exit 0", watch);
            let taken = process.child.wait().unwrap(); // by other code
            assert!(taken.success());
            let exit = end(&mut process);
            let text = "ended with an exit status that cannot be read: No child processes";
            assert!(exit.to_string().starts_with(text), "{exit}");
            assert_eq!(exit.code(), 1);
            process.reap();
        }
    }

    /// Threads of this process that watch one of `children`.
    fn threads(children: &[Pid]) -> usize {
        let names: Vec<_> = children
            .iter()
            .map(|pid| format!("ronde-{}\n", pid.as_raw_nonzero()))
            .collect();
        let threads = fs::read_dir("/proc/self/task").unwrap();
        threads
            .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).ok())
            .filter(|name| names.contains(name))
            .count()
    }

    /// For each open descriptor of this process to one of `files`, the file.
    fn open_files(files: &[String]) -> Vec<String> {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        descriptors
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .filter_map(|link| link.into_os_string().into_string().ok())
            .filter(|link| files.contains(link))
            .collect()
    }

    #[test]
    fn many_processes_leave_no_thread_and_no_descriptor_behind() {
        const CHILDREN: usize = 64;
        let script = |child| match child % 4 {
            3 => "kill -9 $$".to_owned(),
            _ => format!("exit {child}"),
        };
        let mut children: Vec<Process> = (0..CHILDREN)
            .map(|child| start(&script(child), Watch::by_thread))
            .collect();
        let pids: Vec<Pid> = children.iter().map(Process::group).collect();
        let pipes: Vec<String> = children
            .iter()
            .map(|child| rustix::fs::fstat(child.descriptor()).unwrap().st_ino)
            .map(|inode| format!("pipe:[{inode}]"))
            .collect();
        assert!(open_files(&pipes).len() >= CHILDREN);
        let mut exits = HashMap::new();
        while exits.len() < CHILDREN {
            let mut waiting = Waiting::new();
            for (child, process) in children.iter().enumerate() {
                if process.exit.is_none() {
                    waiting.readable(process.descriptor(), child);
                }
            }
            for child in waiting.wait(None).unwrap() {
                exits.insert(child, children[child].check().expect("it has ended"));
            }
        }
        for child in 0..CHILDREN {
            let exit = match child % 4 {
                3 => Exit::Signal(9),
                _ => Exit::Code(child as u8),
            };
            assert_eq!(exits[&child], exit, "{child}");
        }
        children.iter_mut().for_each(Process::reap);
        drop(children);
        // The kernel removes a thread that has been joined from the list a moment later.
        let until = Instant::now() + std::time::Duration::from_secs(10);
        while threads(&pids) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(threads(&pids), 0);
        assert!(open_files(&pipes).is_empty());
    }
}
