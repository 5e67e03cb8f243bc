//! Reference clock: this rank's estimate of rank 0's clock, shared by all process sets of the rank.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Alignment;
use crate::sync::lock;

/// See the module. The set of all ranks measures, every set reads.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    alignment: Mutex<Alignment>,
    /// Something has been measured: where ranks share a clock this stays false, and nothing is locked.
    is_measured: AtomicBool,
}

impl Reference {
    /// How the rank's own clock relates to rank 0's, as last measured; `None` if never: they are taken to be the same.
    pub(crate) fn alignment(&self) -> Option<Alignment> {
        self.is_measured
            .load(Ordering::Acquire)
            .then(|| *lock(&self.alignment))
    }

    /// It has been measured anew.
    pub(crate) fn measured(&self, alignment: Alignment) {
        *lock(&self.alignment) = alignment;
        self.is_measured.store(true, Ordering::Release);
    }
}
