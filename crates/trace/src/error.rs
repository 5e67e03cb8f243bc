//! Why a file tells nothing.

use std::path::PathBuf;

/// A path that cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system refuses.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried: `open`, `read`, `list`.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The path is no file that ends: a device, a socket.
    #[error("{path} is {kind}, not a file; give a recorded timeline", path = .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file holds something else.
    #[error(
        "{path} holds no trace: it {found}; expected a timeline of Horovod or Ronde, BytePS's comm.json or a trace of \
         PyTorch's profiler (.json or .json.gz)", path = .path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it looks like: a predicate such as `is empty`, `looks like an HTML page`.
        found: String,
    },
    /// A folder in which there is no trace.
    #[error(
        "no trace in {path}: looked in it and its folders for timelines (*.json, *.json.gz) and BytePS's \
         <local rank>/comm.json among {files} files", path = .path.display()
    )]
    NoTraces {
        /// The folder.
        path: PathBuf,
        /// Number of files seen.
        files: usize,
    },
}
