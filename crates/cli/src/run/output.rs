//! Output queue: data that waits to be written to standard output and standard error.
//!
//! Both share one queue, so that lines stay complete and in order even if both are the same
//! terminal or file. Writes never block, so that a paused reader cannot keep the launcher from
//! handling signals.

use super::wait::Waiting;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{Stderr, Stdout, Write};
use std::os::fd::AsFd;

/// Prints a message before there is a queue. That standard error is closed is not an error.
pub(super) fn say(label: &str, message: &str) {
    let _ = writeln!(std::io::stderr(), "{label}: {message}");
}

/// Destination of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Stdout,
    Stderr,
}

/// Exit code after standard output was closed: that of a program killed by SIGPIPE.
pub(super) const EXIT_PIPE: u8 = 128 + 13;

/// Lines of one target are joined up to this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Reading from the ranks pauses while more than this many bytes wait.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// A pipe that polls as writable takes at least PIPE_BUF bytes without blocking (pipe(7)).
const WRITE_BYTES_MAX: usize = 4096;

/// Queue of lines.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pieces: VecDeque<(Target, Vec<u8>)>,
    /// Number of bytes of the first piece that have been written.
    written: usize,
    bytes: usize,
    /// Standard output cannot be written: its lines are dropped.
    is_stdout_lost: bool,
}

impl Queue {
    /// Appends a complete line; the line end is added.
    pub(super) fn push(&mut self, target: Target, line: &[u8]) {
        if self.is_stdout_lost && target == Target::Stdout {
            return;
        }
        match self.pieces.back_mut() {
            Some((last, piece)) if *last == target && piece.len() < PIECE_BYTES => {
                piece.extend_from_slice(line);
                piece.push(b'\n');
            }
            _ => self.pieces.push_back((target, [line, b"\n"].concat())),
        }
        self.bytes += line.len() + 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes > QUEUE_BYTES_MAX
    }

    /// Target of the next bytes, if there are any.
    pub(super) fn target(&self) -> Option<Target> {
        self.pieces.front().map(|(target, _)| *target)
    }

    /// Adds to `waiting` that the target of the next bytes, if there are any, is writable.
    pub(super) fn wait<'a, Event>(
        &self,
        waiting: &mut Waiting<'a, Event>,
        (stdout, stderr): &'a (Stdout, Stderr),
        event: Event,
    ) {
        match self.target() {
            Some(Target::Stdout) => waiting.writable(stdout.as_fd(), event),
            Some(Target::Stderr) => waiting.writable(stderr.as_fd(), event),
            None => {}
        }
    }

    /// Like [`write`](Self::write); returns whether nobody reads standard output any more. After
    /// another error of it, such as a full disk, its lines are dropped, with a message.
    pub(super) fn write_or_drop(&mut self, label: &str) -> bool {
        match self.write() {
            None | Some((Target::Stderr, _)) => false,
            Some((Target::Stdout, Errno::PIPE | Errno::CONNRESET)) => true,
            Some((Target::Stdout, error)) => {
                self.is_stdout_lost = true;
                let error = std::io::Error::from(error);
                let message = format!(
                    "{label}: cannot write to standard output: {error}; further output is lost; \
                     redirect it to another disk, or give --output-filename a folder there"
                );
                self.push(Target::Stderr, message.as_bytes());
                false
            }
        }
    }

    /// Writes some bytes to the next target, which must have polled as writable. On an error,
    /// discards the data for the target and returns it.
    pub(super) fn write(&mut self) -> Option<(Target, Errno)> {
        let (target, piece) = self.pieces.front()?;
        let rest = &piece[self.written..];
        let chunk = &rest[..rest.len().min(WRITE_BYTES_MAX)];
        let outcome = match target {
            Target::Stdout => rustix::io::write(std::io::stdout().as_fd(), chunk),
            Target::Stderr => rustix::io::write(std::io::stderr().as_fd(), chunk),
        };
        match outcome {
            Ok(written) => {
                self.written += written;
                self.bytes -= written;
                if self.written == piece.len() {
                    self.pieces.pop_front();
                    self.written = 0;
                }
                None
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(error) => {
                let target = *target;
                self.discard(target);
                Some((target, error))
            }
        }
    }

    fn discard(&mut self, target: Target) {
        self.pieces.retain(|(other, _)| *other != target);
        self.written = 0; // the first piece belonged to the target
        self.bytes = self.pieces.iter().map(|(_, piece)| piece.len()).sum();
    }
}
