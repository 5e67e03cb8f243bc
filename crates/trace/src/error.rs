//! Errors of reading a trace.

use std::path::PathBuf;

/// A path that cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reported an error.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Io {
        /// Operation that failed: `open`, `read` or `list`.
        what: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The path is a device or a socket, whose data does not end, or a folder.
    #[error("{path} is {kind}, not a file; give a recorded timeline", path = .path.display())]
    NotAFile {
        /// Path that was given.
        path: PathBuf,
        /// Kind of the path, such as `a device`.
        kind: &'static str,
    },
    /// The file holds no trace.
    #[error(
        "{path} holds no trace: it {found}; expected a timeline of Horovod or Ronde, BytePS's comm.json or a trace of \
         PyTorch's profiler (.json or .json.gz)", path = .path.display()
    )]
    NotATrace {
        /// Path of the file.
        path: PathBuf,
        /// Predicate that describes the content, such as `is empty` or `looks like an HTML page`.
        found: String,
    },
    /// A folder without traces.
    #[error(
        "no trace in {path}: looked in it and its folders for timelines (*.json, *.json.gz) and BytePS's \
         <local rank>/comm.json among {files} files", path = .path.display()
    )]
    NoTraces {
        /// Path of the folder.
        path: PathBuf,
        /// Number of files examined.
        files: usize,
    },
}
