//! Warnings of a rank that waits for others at the start of a job.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Warnings of a rank that waits for others at the start of a job: they may be slow, or have ended
/// before they came.
#[derive(Debug)]
pub struct LateWarnings {
    waiting_since: Instant,
    interval: Duration,
    limit: Duration,
    /// Time of the next warning, from `waiting_since` on; `None`: never.
    next: Cell<Option<Duration>>,
}

impl LateWarnings {
    /// Warnings of a wait that begins now and ends after `limit`, one after each `interval`; none
    /// if that is zero.
    pub fn new(interval: Duration, limit: Duration) -> Self {
        Self {
            waiting_since: Instant::now(),
            interval,
            limit,
            next: Cell::new((!interval.is_zero()).then_some(interval)),
        }
    }

    /// Time until the next warning is due; a long one if there is none.
    pub fn due_in(&self) -> Duration {
        let next = self.next.get().unwrap_or(Duration::MAX);
        next.saturating_sub(self.waiting_since.elapsed())
    }

    /// Logs a warning if one is due; `who` is called for a clause like `rank 1 has not come`.
    pub fn warn(&self, who: impl FnOnce() -> String) {
        if !self.due_in().is_zero() {
            return;
        }
        let waited = self.waiting_since.elapsed();
        self.next.set(waited.checked_add(self.interval));
        tracing::warn!(
            "waited {} s for the start of the job: {} yet; the limit is {} s \
             (HOROVOD_START_TIMEOUT)",
            waited.as_secs(),
            who(),
            self.limit.as_secs()
        );
    }
}
