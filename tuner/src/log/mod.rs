//! Autotune logs as CSV: writing ours, and reading it or Horovod's.

mod read;
mod write;

pub use read::{LogContents, LogError, LogRow, read_log, read_logs};
pub use write::Log;
