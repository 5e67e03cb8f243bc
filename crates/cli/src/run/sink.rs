//! Sink for the lines of a rank's output stream. It prints them with a prefix and may also write
//! them to a file, or it sends them to the launcher on another host.

use super::output::{Queue, Target};
use super::ssh::wire;
use super::{LaunchError, LaunchSpec, Output};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// Destination of the lines of one stream.
pub(super) struct Sink {
    target: Target,
    prefix: String,
    timestamp: bool,
    file: Option<File>,
}

impl Sink {
    /// Output of this process, and the file that `spec` names for the stream, of a job with `size`
    /// ranks.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn new(
        spec: &LaunchSpec,
        size: usize,
        rank: usize,
        target: Target,
    ) -> Result<Sink, LaunchError> {
        let prefix = match spec.output {
            Output::Plain => String::new(),
            _ => prefix(rank, target),
        };
        Ok(Sink {
            target,
            prefix,
            timestamp: spec.output == Output::Prefixed { timestamp: true },
            file: output_file(spec, size, rank, name(target))?,
        })
    }

    /// Changes the rank in the prefix, if there is one.
    pub(super) fn renumber(&mut self, rank: usize) {
        if !self.prefix.is_empty() {
            self.prefix = prefix(rank, self.target);
        }
    }

    /// Reports to the launcher.
    pub(super) fn report(rank: usize, target: Target) -> Sink {
        Sink {
            target: Target::Stdout,
            prefix: wire::output_prefix(rank, target),
            timestamp: false,
            file: None,
        }
    }

    /// Prints and stores a line.
    pub(super) fn emit(&mut self, line: &[u8], queue: &mut Queue) {
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

fn prefix(rank: usize, target: Target) -> String {
    format!("[{rank}]<{}>:", name(target))
}

fn name(target: Target) -> &'static str {
    match target {
        Target::Stdout => "stdout",
        Target::Stderr => "stderr",
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
fn output_file(
    spec: &LaunchSpec,
    size: usize,
    rank: usize,
    name: &str,
) -> Result<Option<File>, LaunchError> {
    let Some(dir) = &spec.output_dir else {
        return Ok(None);
    };
    let width = (size - 1).to_string().len();
    let dir = dir.join(format!("rank.{rank:0width$}"));
    let error = |path: PathBuf| |source| LaunchError::OutputFile { path, source };
    std::fs::create_dir_all(&dir).map_err(error(dir.clone()))?;
    let path = dir.join(name);
    File::create(&path).map_err(error(path)).map(Some)
}
