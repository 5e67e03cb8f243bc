//! Agent of one host, as the launcher sees it: its process, its pipes, and its state.

use super::super::LaunchError;
use super::super::lines::Lines;
use super::super::process::Process;
use super::super::stream::{LinePipe, READ_BYTES};
use super::plan::HostPlan;
use super::wire::{HELLO, PREFIX_BYTES_MAX};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

/// Number of reads that empty the pipes of an agent that has ended.
const READS_MAX: usize = (1 << 20) / READ_BYTES;

/// Most lines that are kept from before an agent's first one.
const LINES_MAX: usize = 1000;

/// State of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum State {
    /// Not connected yet.
    Connecting,
    /// Connected; it prepares the start.
    Connected,
    /// Its ranks can start.
    Ready,
    /// Its ranks have ended, with this code.
    Ended(u8),
}

/// Agent of one host.
pub(in super::super) struct Host {
    pub(in super::super) plan: HostPlan,
    pub(in super::super) agent: Process,
    pub(in super::super) state: State,
    pub(in super::super) output: LinePipe,
    pub(in super::super) errors: LinePipe,
    /// Lines before the agent's first one: of `ssh`, and of a shell's start-up files.
    pub(in super::super) said: Vec<String>,
    input: Option<OwnedFd>,
    /// Bytes that the agent has not taken yet.
    outgoing: Vec<u8>,
}

impl Host {
    /// Starts the agent by `line`, and begins to send it `task`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(in super::super) fn start(
        plan: HostPlan,
        line: &[OsString],
        task: Vec<u8>,
    ) -> Result<Self, LaunchError> {
        let Some((program, arguments)) = line.split_first() else {
            return Err(LaunchError::NoCommand);
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if plan.is_this_machine {
            // It names the address by which the user has reached this machine; other hosts may not
            // reach that.
            command.env_remove("SSH_CONNECTION");
        }
        let failed = |source| LaunchError::Agent {
            host: plan.name.clone(),
            program: program.into(),
            source,
        };
        let (agent, pipes) = Process::start(&mut command, failed)?;
        let piped = |pipe: Option<OwnedFd>| {
            pipe.ok_or_else(|| LaunchError::System {
                action: "make a pipe",
                source: io::ErrorKind::Other.into(),
            })
        };
        let input = piped(pipes.stdin)?;
        rustix::io::ioctl_fionbio(&input, true)
            .map_err(LaunchError::system("write to a host's process"))?;
        let lines = Lines::with_room(PREFIX_BYTES_MAX);
        Ok(Self {
            plan,
            agent,
            state: State::Connecting,
            output: LinePipe::new(piped(pipes.stdout)?, lines)?,
            errors: LinePipe::new(piped(pipes.stderr)?, Lines::default())?,
            said: Vec::new(),
            input: Some(input),
            outgoing: task,
        })
    }

    /// Keeps a line from before the agent's first one.
    pub(in super::super) fn note(&mut self, line: &[u8]) {
        if self.said.len() < LINES_MAX {
            self.said.push(String::from_utf8_lossy(line).into_owned());
        }
    }

    /// Takes a line from before the agent's reports, and returns the agent's version if it is the
    /// agent's first one. A text of a shell's start-up file that has no line end may precede it.
    pub(in super::super) fn greeting(&mut self, line: &[u8]) -> Option<String> {
        let (before, version) = match memchr::memmem::find(line, HELLO.as_bytes()) {
            Some(at) => (&line[..at], Some(&line[at + HELLO.len()..])),
            None => (line, None),
        };
        if !before.is_empty() || version.is_none() {
            self.note(before);
        }
        version.map(|version| String::from_utf8_lossy(version).into_owned())
    }

    /// Sends a line.
    pub(in super::super) fn send(&mut self, line: &str) {
        self.outgoing.extend_from_slice(line.as_bytes());
        self.outgoing.push(b'\n');
        self.write();
    }

    /// Pipe to write to when it is writable, if bytes wait for that.
    pub(in super::super) fn writable(&self) -> Option<BorrowedFd<'_>> {
        let input = self.input.as_ref().filter(|_| !self.outgoing.is_empty());
        input.map(AsFd::as_fd)
    }

    /// Writes without waiting. If the agent has ended, the rest is discarded; its end is an event
    /// of its own.
    pub(in super::super) fn write(&mut self) {
        while let Some(input) = &self.input
            && !self.outgoing.is_empty()
        {
            match rustix::io::write(input, &self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.input = None;
                    self.outgoing.clear();
                }
            }
        }
    }

    /// Ends the agent's input: there are no more orders.
    pub(in super::super) fn close(&mut self) {
        self.write();
        self.input = None;
        self.outgoing.clear();
    }

    /// Complete lines of the agent's output or errors, after one read.
    pub(in super::super) fn read(&mut self, source: Source) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        self.pipe(source).read(|line| lines.push(line.to_vec()));
        lines
    }

    /// All lines that are left after the agent's end. Other processes may keep the pipes open.
    pub(in super::super) fn rest(&mut self, source: Source) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let pipe = self.pipe(source);
        let mut read = || pipe.read(|line| lines.push(line.to_vec()));
        let _ = (0..READS_MAX).take_while(|_| read()).count();
        pipe.finish(|line| lines.push(line.to_vec()));
        lines
    }

    fn pipe(&mut self, source: Source) -> &mut LinePipe {
        match source {
            Source::Output => &mut self.output,
            Source::Errors => &mut self.errors,
        }
    }
}

/// Stream of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Source {
    Output,
    Errors,
}

impl Drop for Host {
    /// Ends the connection, if it is left: a remote agent then ends its ranks.
    fn drop(&mut self) {
        self.agent.signal(rustix::process::Signal::KILL);
        self.agent.reap();
    }
}
