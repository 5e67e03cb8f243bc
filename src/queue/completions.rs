//! Completions: lets callers sleep until their ticket is complete, or until they can drive the
//! cycle.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::sync::lock;

/// Sleeping callers that wait for a ticket while another thread runs the cycle.
#[derive(Default)]
pub(crate) struct Completions {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    signal: Condvar,
}

impl Completions {
    /// Wakes every sleeper: some ticket is complete, or no thread runs the cycle any more.
    pub(crate) fn announce(&self) {
        // Pairs with the fence in `sleep`: either this thread sees the sleeper, or the sleeper sees
        // the change.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.lock));
            self.signal.notify_all();
        }
    }

    /// Sleeps until the next announcement, at most for `timeout`; returns at once if `look` returns
    /// a value.
    pub(crate) fn sleep<T>(
        &self,
        timeout: Duration,
        look: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let guard = lock(&self.lock);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let found = look();
        if found.is_none() {
            drop(
                self.signal
                    .wait_timeout(guard, timeout)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        found
    }
}
