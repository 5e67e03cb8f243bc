//! Limit of open files: a connection and a pipe to a process are one each, and the usual limit of
//! 1024 is below what a large job needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Highest limit that is set: some programs close or list all possible files, which takes time.
const LIMIT_MAX: u64 = 1 << 16;

/// Raises this process's soft limit of open files (`ulimit -n`) to the hard one, or to 65,536 if
/// that is lower. Processes that this one starts inherit the limit.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(LIMIT_MAX, |hard| hard.min(LIMIT_MAX));
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
