//! A bar while large files are read, if there is a terminal.

use std::fs;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;

use crate::present::{bar, harmless};

const TEMPLATE: &str = "{prefix} {bar:24} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left {wide_msg}";

/// Shows how far the reading of several files has got.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Bytes of the files that are done.
    done: u64,
}

impl Progress {
    /// A bar that ends when all `files` are read.
    pub(super) fn new(prefix: &'static str, files: &[PathBuf]) -> Self {
        let bytes = files.iter().map(|file| size(file)).sum();
        let bar = bar(TEMPLATE, Some(bytes)).map(|bar| bar.with_prefix(prefix));
        Self { bar, done: 0 }
    }

    /// Reads `file` with `read`, which is to tell how many of its bytes it has read.
    pub(super) fn during<T>(&mut self, file: &Path, read: impl FnOnce(&mut dyn FnMut(u64)) -> T) -> T {
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
    /// Takes the bar away, so that the result stands alone.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}
