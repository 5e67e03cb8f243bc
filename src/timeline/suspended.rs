//! Recordings of this process whose context has ended: the next one continues them after a reset of
//! an elastic job.

use std::path::Path;
use std::sync::Mutex;

use super::documents::Documents;
use crate::sync::lock;

/// Most recordings kept; a job has one for each process.
const KEPT_MAX: usize = 4;

static KEPT: Mutex<Vec<Documents>> = Mutex::new(Vec::new());

/// Keeps the files of a context that has ended, if they can be continued.
pub(super) fn keep(documents: Documents) {
    let Some(target) = documents.target() else {
        return;
    };
    let mut kept = lock(&KEPT);
    kept.retain(|other| other.target() != Some(target));
    if kept.len() == KEPT_MAX {
        kept.remove(0);
    }
    kept.push(documents);
}

/// Returns the files that were recorded for `target`.
pub(super) fn take(target: &Path) -> Option<Documents> {
    let mut kept = lock(&KEPT);
    let index = kept.iter().position(|kept| kept.target() == Some(target))?;
    Some(kept.remove(index))
}
