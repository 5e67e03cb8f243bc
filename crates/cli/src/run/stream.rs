//! Pipe of a process's standard output or error: read without blocking, line by line.

use super::LaunchError;
use super::lines::Lines;
use super::output::Queue;
use super::sink::Sink;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest number of bytes of one read.
pub(super) const READ_BYTES: usize = 16 << 10;

/// Pipe whose lines are read.
pub(super) struct LinePipe {
    /// Read end of the pipe; `None` after its end.
    pipe: Option<File>,
    lines: Lines,
}

impl LinePipe {
    pub(super) fn new(pipe: OwnedFd, lines: Lines) -> Result<Self, LaunchError> {
        rustix::io::ioctl_fionbio(&pipe, true).map_err(LaunchError::system("read a pipe"))?;
        Ok(Self {
            pipe: Some(pipe.into()),
            lines,
        })
    }

    /// Pipe, unless it has ended.
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(File::as_fd)
    }

    /// Reads once, without blocking, and calls `line` with each complete line. Returns whether more
    /// data may be available.
    pub(super) fn read(&mut self, line: impl FnMut(&[u8])) -> bool {
        let Some(mut pipe) = self.pipe.as_ref() else {
            return false;
        };
        let mut bytes = [0; READ_BYTES];
        match pipe.read(&mut bytes) {
            Ok(0) => self.finish(line),
            Ok(count) => {
                self.lines.feed(&bytes[..count], line);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.finish(line), // a pipe that cannot be read is treated as ended
        }
        false
    }

    /// Ends the pipe; an unfinished line counts as a line.
    pub(super) fn finish(&mut self, line: impl FnOnce(&[u8])) {
        self.pipe = None;
        self.lines.finish(line);
    }
}

/// Standard output or error of a rank, and its destination.
pub(super) struct Stream {
    source: LinePipe,
    sink: Sink,
}

impl Stream {
    pub(super) fn new(pipe: OwnedFd, sink: Sink) -> Result<Stream, LaunchError> {
        let source = LinePipe::new(pipe, Lines::default())?;
        Ok(Stream { source, sink })
    }

    /// Pipe, unless it has ended.
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.source.pipe()
    }

    /// Changes the rank in the prefix of the lines.
    pub(super) fn renumber(&mut self, rank: usize) {
        self.sink.renumber(rank);
    }

    /// Reads once, without blocking. Returns whether more data may be available.
    pub(super) fn read(&mut self, queue: &mut Queue) -> bool {
        self.source.read(|line| self.sink.emit(line, queue))
    }

    /// Ends the stream; an unfinished line is printed as it is.
    pub(super) fn finish(&mut self, queue: &mut Queue) {
        self.source.finish(|line| self.sink.emit(line, queue));
    }
}
