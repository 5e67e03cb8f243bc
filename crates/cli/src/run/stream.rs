//! Output stream of a rank (standard output or error): read without blocking and forwarded line by
//! line, optionally also to a file.

use super::lines::Lines;
use super::output::{Queue, Target};
use super::{LaunchError, LaunchSpec, Output};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Most bytes of one read.
pub(super) const READ_BYTES: usize = 16 << 10;

/// Standard output or error of a rank.
pub(super) struct Stream {
    target: Target,
    /// Read end of the pipe; `None` after its end.
    pipe: Option<File>,
    lines: Lines,
    prefix: String,
    timestamp: bool,
    file: Option<File>,
}

impl Stream {
    pub(super) fn new(
        spec: &LaunchSpec,
        rank: usize,
        target: Target,
        pipe: OwnedFd,
    ) -> Result<Stream, LaunchError> {
        rustix::io::ioctl_fionbio(&pipe, true)
            .map_err(LaunchError::system("read a rank's output"))?;
        let name = match target {
            Target::Stdout => "stdout",
            Target::Stderr => "stderr",
        };
        let prefix = if spec.output == Output::Plain {
            String::new()
        } else {
            format!("[{rank}]<{name}>:")
        };
        Ok(Stream {
            target,
            pipe: Some(pipe.into()),
            lines: Lines::default(),
            prefix,
            timestamp: spec.output == Output::Prefixed { timestamp: true },
            file: output_file(spec, rank, name)?,
        })
    }

    /// Pipe, unless it has ended.
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(File::as_fd)
    }

    /// Reads once, without blocking. Returns whether more data may be available.
    pub(super) fn read(&mut self, queue: &mut Queue) -> bool {
        let Some(mut pipe) = self.pipe.as_ref() else {
            return false;
        };
        let mut bytes = [0; READ_BYTES];
        match pipe.read(&mut bytes) {
            Ok(0) => self.finish(queue),
            Ok(count) => {
                let mut lines = std::mem::take(&mut self.lines);
                lines.feed(&bytes[..count], |line| self.emit(line, queue));
                self.lines = lines;
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.finish(queue), // a pipe that cannot be read is treated as ended
        }
        false
    }

    /// Ends the stream; an unfinished line is printed as it is.
    pub(super) fn finish(&mut self, queue: &mut Queue) {
        self.pipe = None;
        let mut lines = std::mem::take(&mut self.lines);
        lines.finish(|line| self.emit(line, queue));
    }

    fn emit(&mut self, line: &[u8], queue: &mut Queue) {
        let time = if self.timestamp {
            asctime()
        } else {
            String::new()
        };
        let line = [time.as_bytes(), self.prefix.as_bytes(), line].concat();
        queue.push(self.target, &line);
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(&line).and_then(|()| file.write_all(b"\n")) {
            self.file = None; // report the error only once
            queue.push(
                Target::Stderr,
                format!("ronde: {}cannot write its file: {error}", self.prefix).as_bytes(),
            );
        }
    }
}

/// Local time in the format of C's asctime, which horovodrun prints before the prefix.
fn asctime() -> String {
    jiff::Zoned::now()
        .strftime("%a %b %e %H:%M:%S %Y")
        .to_string()
}

/// Creates `DIR/rank.<rank>/<name>` if a directory is given; rank numbers are zero-padded to equal
/// width.
fn output_file(spec: &LaunchSpec, rank: usize, name: &str) -> Result<Option<File>, LaunchError> {
    let Some(dir) = &spec.output_dir else {
        return Ok(None);
    };
    let width = (spec.num_proc - 1).to_string().len();
    let dir = dir.join(format!("rank.{rank:0width$}"));
    let error = |path: PathBuf| |source| LaunchError::OutputFile { path, source };
    std::fs::create_dir_all(&dir).map_err(error(dir.clone()))?;
    let path = dir.join(name);
    File::create(&path).map_err(error(path)).map(Some)
}
