//! A second process that outlives a killed launcher just long enough to kill its ranks.
//!
//! SIGKILL cannot be caught, so a launcher killed by it cannot clean up. The guard holds the read end of a pipe whose
//! write end dies with the launcher. It is told each rank's process group and, at an orderly end, that it is not needed;
//! if the pipe ends without that word, it kills the groups.

use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

/// Name of the hidden subcommand that is the guard.
pub const GUARD: &str = "__guard";

const DISMISSED: &str = "dismissed";

/// The launcher's end.
pub(super) struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// `program` is how the `ronde` program is started.
    pub(super) fn start(program: &OsStr, arguments: &[OsString]) -> io::Result<Guard> {
        let mut process = Command::new(program)
            .args(arguments)
            .arg(GUARD)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a Ctrl-C is not for it
            .spawn()?;
        match process.stdin.take() {
            Some(pipe) => Ok(Guard { process, pipe }),
            None => Err(io::Error::other("the guard has no pipe")),
        }
    }

    /// Tells it of a rank's process group.
    pub(super) fn watch(&mut self, group: Pid) -> io::Result<()> {
        writeln!(self.pipe, "{}", group.as_raw_nonzero())
    }

    /// Tells it that all is over, and waits for its end.
    pub(super) fn dismiss(mut self) {
        // If it is gone already, there is nobody to tell.
        let _ = writeln!(self.pipe, "{DISMISSED}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// Runs the guard, on standard input.
pub fn guard_main() -> ExitCode {
    for group in orphans(io::stdin().lock()) {
        // It may have ended by itself meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// Reads to the end, and gives the groups to kill: those named, or none after an orderly end.
fn orphans(input: impl BufRead) -> Vec<Pid> {
    let mut groups = Vec::new();
    for line in input.lines() {
        match line {
            Ok(line) if line == DISMISSED => return Vec::new(),
            // Pid 1 as a group would be "every process" to kill(2).
            Ok(line) => groups.extend(line.parse().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw)),
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
