//! What waits to be written to standard output and error.
//!
//! One queue for both, so that lines stay whole and in order even when both are the same terminal or file. It is written
//! only as far as that does not block, so that a reader that has paused cannot keep the launcher from its signals.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::AsFd;

/// Where a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Stdout,
    Stderr,
}

/// Lines of one target are joined up to this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Reading from the ranks pauses while more than this many bytes wait.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// A pipe that polls as writable takes at least PIPE_BUF bytes without blocking (pipe(7)).
const WRITE_BYTES_MAX: usize = 4096;

/// The queue of lines.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pieces: VecDeque<(Target, Vec<u8>)>,
    /// Bytes of the first piece that have been written.
    written: usize,
    bytes: usize,
}

impl Queue {
    /// Appends a whole line, without its end.
    pub(super) fn push(&mut self, target: Target, line: &[u8]) {
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

    /// Where the next bytes go, if there are any.
    pub(super) fn target(&self) -> Option<Target> {
        self.pieces.front().map(|(target, _)| *target)
    }

    /// Writes some bytes to the next target, which must have polled as writable. Gives the target if it is closed; what
    /// waited for it is then gone.
    pub(super) fn write(&mut self) -> Option<Target> {
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
            Err(_) => {
                let target = *target;
                self.discard(target);
                Some(target)
            }
        }
    }

    fn discard(&mut self, target: Target) {
        self.pieces.retain(|(other, _)| *other != target);
        self.written = 0; // the first piece was the target's
        self.bytes = self.pieces.iter().map(|(_, piece)| piece.len()).sum();
    }
}
