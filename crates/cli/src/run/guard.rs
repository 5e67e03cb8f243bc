//! Guard process: kills a job's ranks if the launcher is killed.
//!
//! SIGKILL cannot be caught, so a launcher that is killed by it cannot clean up. The guard holds
//! the read end of a pipe whose write end closes when the launcher ends. The launcher reports each
//! rank's process group to it and, at a normal end, dismisses it. If the pipe closes without a
//! dismissal, the guard kills the groups. It removes the job's temporary folder in both cases,
//! since the launcher may be killed just after the dismissal.

use super::{LaunchError, LaunchSpec};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

/// First word of a line that names a folder to remove.
const FOLDER: &str = "folder ";

/// Name of the hidden subcommand that runs the guard.
pub const GUARD: &str = "__guard";

/// First word of a line that names a group of which no process is left: its number may be given to
/// other processes.
const ENDED: &str = "ended ";

const DISMISSED: &str = "dismissed";

/// Guard process, as the launcher holds it.
pub(crate) struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts the guard of a job, if the job has one.
    pub(super) fn of_job(spec: &LaunchSpec) -> Result<Option<Guard>, LaunchError> {
        let Some((program, arguments)) = spec.guard.split_first() else {
            return Ok(None);
        };
        let started = Self::start(program, arguments);
        started.map(Some).map_err(|source| LaunchError::System {
            action: "start the guard process",
            source,
        })
    }

    /// Starts the guard; `program` is the command that starts the `ronde` program.
    pub(crate) fn start(program: &OsStr, arguments: &[OsString]) -> io::Result<Guard> {
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
    pub(crate) fn watch(&mut self, group: Pid) -> io::Result<()> {
        writeln!(self.pipe, "{}", group.as_raw_nonzero())
    }

    /// Reports the end of a process group.
    pub(crate) fn forget(&mut self, group: Pid) -> io::Result<()> {
        writeln!(self.pipe, "{ENDED}{}", group.as_raw_nonzero())
    }

    /// Reports a folder that the guard removes at its end.
    pub(super) fn remove_later(&mut self, folder: &Path) -> io::Result<()> {
        let line = [FOLDER.as_bytes(), folder.as_os_str().as_bytes(), b"\n"].concat();
        self.pipe.write_all(&line)
    }

    /// Dismisses the guard after the job's end, and waits for its exit.
    pub(crate) fn dismiss(mut self) {
        // An error means that the guard has ended already.
        let _ = writeln!(self.pipe, "{DISMISSED}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// Runs the guard process: reads from standard input.
pub fn guard_main() -> ExitCode {
    let Orphans { groups, folders } = orphans(io::stdin().lock());
    for group in groups {
        // An error means that the group has ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    for folder in folders {
        // An error means that the folder has been removed already.
        let _ = std::fs::remove_dir_all(folder);
    }
    ExitCode::SUCCESS
}

/// Process groups and folders that a killed launcher has not removed.
#[derive(Debug, Default)]
struct Orphans {
    groups: Vec<Pid>,
    folders: Vec<PathBuf>,
}

/// Reads to the end of the input and returns all reported folders, and all reported groups unless a
/// dismissal follows.
fn orphans(input: impl BufRead) -> Orphans {
    let mut orphans = Orphans::default();
    for line in input.split(b'\n') {
        let Ok(line) = line else { break };
        if line == DISMISSED.as_bytes() {
            orphans.groups.clear();
            break;
        }
        if let Some(folder) = line.strip_prefix(FOLDER.as_bytes()) {
            orphans.folders.push(OsStr::from_bytes(folder).into());
        } else if let Some(ended) = line.strip_prefix(ENDED.as_bytes()) {
            let ended = group(ended);
            orphans.groups.retain(|group| Some(*group) != ended);
        } else {
            orphans.groups.extend(group(&line));
        }
    }
    orphans
}

fn group(text: &[u8]) -> Option<Pid> {
    let number: i32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // kill(2) would take 1 as a group for "every process".
    Some(number)
        .filter(|number| *number > 1)
        .and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_orphans_unless_the_launcher_took_its_leave() {
        let groups = |text: &str| {
            orphans(text.as_bytes())
                .groups
                .iter()
                .map(|pid| pid.as_raw_nonzero().get())
                .collect::<Vec<_>>()
        };
        assert_eq!(groups("12\n13\n"), [12, 13]);
        assert!(groups("12\n13\ndismissed\n").is_empty());
        assert_eq!(groups("12\n13\nended 12\n14\n"), [13, 14]);
        assert_eq!(groups("0\n-1\n1\nx\n7\n"), [7]);
        assert!(groups("").is_empty());
        let folders = |text: &str| orphans(text.as_bytes()).folders;
        assert_eq!(folders("12\nfolder /tmp/a b\n"), [Path::new("/tmp/a b")]);
        assert_eq!(folders("folder /tmp/a\ndismissed\n"), [Path::new("/tmp/a")]);
    }
}
