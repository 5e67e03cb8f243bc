//! Counts what this process sends. MPI lives once in a process, and so do the counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::traffic::MpiTraffic;

static MESSAGES: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static COLLECTIVES: AtomicU64 = AtomicU64::new(0);

/// A message of `bytes` bytes has been begun.
pub(super) fn count_message(bytes: usize) {
    MESSAGES.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// A collective call has been.
pub(super) fn count_collective() {
    COLLECTIVES.fetch_add(1, Ordering::Relaxed);
}

/// All so far.
pub(crate) fn traffic() -> MpiTraffic {
    MpiTraffic {
        messages: MESSAGES.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
        collectives: COLLECTIVES.load(Ordering::Relaxed),
    }
}
