//! Counters of the messages that this process sends over MPI or TCP, in all of its contexts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::traffic::MpiTraffic;

static MESSAGES: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static COLLECTIVES: AtomicU64 = AtomicU64::new(0);

/// Counts a message of `bytes` bytes. Empty parts of an operation are not sent.
pub(super) fn count_message(bytes: usize) {
    if bytes == 0 {
        return;
    }
    MESSAGES.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Counts a collective operation.
pub(super) fn count_collective() {
    COLLECTIVES.fetch_add(1, Ordering::Relaxed);
}

/// All messages so far.
pub(crate) fn traffic() -> MpiTraffic {
    MpiTraffic {
        messages: MESSAGES.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
        collectives: COLLECTIVES.load(Ordering::Relaxed),
    }
}
