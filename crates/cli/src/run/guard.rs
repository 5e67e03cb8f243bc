//! Guard process: kills a job's ranks if the launcher is killed.
//!
//! SIGKILL cannot be caught, so a launcher that is killed by it cannot clean up. The guard holds
//! the read end of a pipe whose write end closes when the launcher ends. The launcher reports each
//! rank's process group to it and, at a normal end, dismisses it. If the pipe closes without a
//! dismissal, the guard kills the groups.

use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

/// Name of the hidden subcommand that runs the guard.
pub const GUARD: &str = "__guard";

const DISMISSED: &str = "dismissed";

/// Guard process, as the launcher holds it.
pub(super) struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts the guard; `program` is the command that starts the `ronde` program.
    pub(super) fn start(program: &OsStr, arguments: &[OsString]) -> io::Result<Guard> {
        let mut process = Command::new(program)
            .args(arguments)
            .arg(GUARD)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // Ctrl-C must not reach the guard
            .spawn()?;
        match process.stdin.take() {
            Some(pipe) => Ok(Guard { process, pipe }),
            None => Err(io::Error::other("the guard has no pipe")),
        }
    }

    /// Reports a rank's process group to the guard.
    pub(super) fn watch(&mut self, group: Pid) -> io::Result<()> {
        writeln!(self.pipe, "{}", group.as_raw_nonzero())
    }

    /// Dismisses the guard after the job's end, and waits for its exit.
    pub(super) fn dismiss(mut self) {
        // An error means that the guard has ended already.
        let _ = writeln!(self.pipe, "{DISMISSED}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// Runs the guard process: reads from standard input.
pub fn guard_main() -> ExitCode {
    for group in orphans(io::stdin().lock()) {
        // An error means that the group has ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// Reads to the end of the input and returns the groups to kill: all reported groups, or none after
/// a dismissal.
fn orphans(input: impl BufRead) -> Vec<Pid> {
    let mut groups = Vec::new();
    for line in input.lines() {
        match line {
            Ok(line) if line == DISMISSED => return Vec::new(),
            // kill(2) would take 1 as a group for "every process".
            Ok(line) => groups.extend(
                line.parse()
                    .ok()
                    .filter(|pid| *pid > 1)
                    .and_then(Pid::from_raw),
            ),
            Err(_) => break,
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_orphans_unless_the_launcher_took_its_leave() {
        let groups = |text: &str| {
            orphans(text.as_bytes())
                .iter()
                .map(|pid| pid.as_raw_nonzero().get())
                .collect::<Vec<_>>()
        };
        assert_eq!(groups("12\n13\n"), [12, 13]);
        assert!(groups("12\n13\ndismissed\n").is_empty());
        assert_eq!(groups("0\n-1\n1\nx\n7\n"), [7]);
        assert!(groups("").is_empty());
    }
}
