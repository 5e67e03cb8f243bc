//! Reference clock: this rank's estimate of rank 0's clock, shared by all process sets of the rank.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Alignment;
use crate::sync::lock;

/// Latest estimate of rank 0's clock. The set of all ranks measures, every set reads.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    alignment: Mutex<Alignment>,
    /// Whether a measurement exists. Where ranks share a clock this stays false, and the lock is
    /// never taken.
    is_measured: AtomicBool,
}

impl Reference {
    /// Latest measurement; `None` if there is none: the clocks are then taken to be equal.
    pub(crate) fn alignment(&self) -> Option<Alignment> {
        self.is_measured
            .load(Ordering::Acquire)
            .then(|| *lock(&self.alignment))
    }

    /// Stores a new measurement.
    pub(crate) fn measured(&self, alignment: Alignment) {
        *lock(&self.alignment) = alignment;
        self.is_measured.store(true, Ordering::Release);
    }
}
