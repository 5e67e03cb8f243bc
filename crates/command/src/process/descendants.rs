//! Processes that a run has started, from `/proc`.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A process, with its start time, which tells it from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    started: u64,
}

/// The process group of a run and its descendants in other groups.
pub(super) struct Tree {
    group: u32,
    others: Vec<Process>,
}

impl Tree {
    /// Processes of the run whose first process is `pid`.
    pub(super) fn of(pid: u32) -> Self {
        let mut tree = Self {
            group: pid,
            others: Vec::new(),
        };
        tree.grow();
        tree
    }

    /// Adds descendants that are not known yet.
    pub(super) fn grow(&mut self) {
        let all = processes();
        let mut known: Vec<i32> = self.others.iter().map(|process| process.pid).collect();
        known.push(self.group as i32);
        let mut index = 0;
        while index < known.len() {
            let parent = known[index];
            for (&pid, found) in &all {
                if found.parent == parent && !known.contains(&pid) {
                    known.push(pid);
                    self.others.push(Process {
                        pid,
                        started: found.started,
                    });
                }
            }
            index += 1;
        }
    }

    /// Whether a process of it is left. Zombies do not count: in a container, process 1 may not
    /// reap them.
    pub(super) fn is_alive(&self) -> bool {
        let all = processes();
        let is_in_group = |found: &Found| found.group == self.group as i32 && !found.is_zombie;
        all.values().any(is_in_group) || !self.alive(&all).is_empty()
    }

    fn alive(&self, all: &HashMap<i32, Found>) -> Vec<Process> {
        let is_alive = |process: &&Process| {
            let found = all.get(&process.pid);
            found.is_some_and(|found| found.started == process.started && !found.is_zombie)
        };
        self.others.iter().filter(is_alive).copied().collect()
    }

    /// Asks all of them to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends all of them.
    pub(super) fn kill(&mut self) {
        self.grow();
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // Errors mean that a process has ended.
        if let Some(group) = group(self.group) {
            let _ = kill_process_group(group, signal);
        }
        for process in self.alive(&processes()) {
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// Kills what is left of a process group.
pub(super) fn kill_group(pid: u32) {
    if let Some(group) = group(pid) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn group(pid: u32) -> Option<Pid> {
    // kill(2) takes 1 as a group for "every process".
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .and_then(Pid::from_raw)
}

/// Entry of `/proc`.
struct Found {
    parent: i32,
    group: i32,
    started: u64,
    is_zombie: bool,
}

fn processes() -> HashMap<i32, Found> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, parse(&stat)?))
    });
    found.collect()
}

/// Parses `/proc/PID/stat` (proc_pid_stat(5)): after the name in parentheses come the state, the
/// parent, the process group, and as the 20th field the start time.
fn parse(stat: &str) -> Option<Found> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Found {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        is_zombie: *fields.first()? == "Z",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn names_with_spaces_and_parentheses_are_read() {
        let stat = "7 (a) b (c) S 3 8 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let found = parse(stat).unwrap();
        assert_eq!(
            (found.parent, found.group, found.started, found.is_zombie),
            (3, 8, 4242, false)
        );
        assert!(parse("7 (a").is_none() && parse("7 (a) S").is_none());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = Command::new("cat");
        child.stdin(Stdio::piped()).process_group(0);
        let mut child = child.spawn().unwrap();
        let tree = Tree::of(child.id());
        assert!(tree.is_alive());
        drop(child.stdin.take()); // it ends, and is not reaped
        let pid = WaitId::Pid(Pid::from_child(&child));
        waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert!(!tree.is_alive());
        child.wait().unwrap();
    }
}
