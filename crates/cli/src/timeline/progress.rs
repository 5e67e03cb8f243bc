//! Progress bar for reading large files, shown if there is a terminal.

use std::path::Path;

use indicatif::ProgressBar;

use crate::present::{bar, harmless};

const TEMPLATE: &str =
    "{prefix} {bar:24} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left {wide_msg}";

/// Progress of reading several files. The bar disappears at the end, so that only the result
/// remains.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Names of the files, and the bytes of the files before each.
    files: Vec<(String, u64)>,
}

impl Progress {
    /// Creates a bar that ends when all `files` are read.
    pub(super) fn new<'a>(prefix: &'static str, files: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut bytes = 0;
        let before = |file: &Path| {
            let name = harmless(&file.to_string_lossy());
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            bytes += size;
            (name, bytes - size)
        };
        let files = files.into_iter().map(before).collect();
        let bar = bar(TEMPLATE, Some(bytes)).map(|bar| bar.with_prefix(prefix));
        Self { bar, files }
    }

    /// Shows that these bytes of the file with this index are read.
    pub(super) fn show(&self, file: usize, bytes: u64) {
        if let Some(bar) = &self.bar {
            let (name, before) = &self.files[file];
            bar.set_message(name.clone());
            bar.set_position(before + bytes);
        }
    }
}
