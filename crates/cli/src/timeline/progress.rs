//! Progress bar for reading large files, shown if there is a terminal.

use std::fs;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use crate::present::{bar, harmless};

const TEMPLATE: &str =
    "{prefix} {bar:24} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left {wide_msg}";

/// Progress of reading several files.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Bytes of the files that are done.
    done: u64,
}

impl Progress {
    /// Creates a bar that ends when all `files` are read.
    pub(super) fn new(prefix: &'static str, files: &[PathBuf]) -> Self {
        let bytes = files.iter().map(|file| size(file)).sum();
        let bar = bar(TEMPLATE, Some(bytes)).map(|bar| bar.with_prefix(prefix));
        Self { bar, done: 0 }
    }

    /// Calls `read` for `file`; `read` reports the number of bytes that it has read.
    pub(super) fn during<T>(
        &mut self,
        file: &Path,
        read: impl FnOnce(&mut dyn FnMut(u64)) -> T,
    ) -> T {
        let Some(bar) = &self.bar else {
            return read(&mut |_| {});
        };
        bar.set_message(harmless(&file.to_string_lossy()));
        let done = self.done;
        let outcome = read(&mut |bytes| bar.set_position(done + bytes));
        self.done += size(file);
        bar.set_position(self.done);
        outcome
    }
}

impl Drop for Progress {
    /// Removes the bar, so that only the result remains.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}
