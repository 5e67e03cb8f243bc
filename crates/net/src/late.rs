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

    /// Logs a warning if one is due; `who` is called for a clause as of [`not_come`].
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

/// Returns the clause that says which ranks have not come; none are known if `missing` is empty.
pub fn not_come(missing: &[usize]) -> String {
    match missing {
        [] => "not all ranks have come".into(),
        missing => format!("{} not come", who(missing)),
    }
}

/// Subject and verb of a clause about these ranks, of which the first are named.
pub(crate) fn who(ranks: &[usize]) -> String {
    const SHOWN: usize = 16;
    match ranks {
        [rank] => format!("rank {rank} has"),
        ranks if ranks.len() <= SHOWN => format!("ranks {ranks:?} have"),
        ranks => format!(
            "{} ranks, among them {:?}, have",
            ranks.len(),
            &ranks[..SHOWN]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_named_and_many_are_counted() {
        assert_eq!(not_come(&[]), "not all ranks have come");
        assert_eq!(not_come(&[4]), "rank 4 has not come");
        assert_eq!(not_come(&[1, 3]), "ranks [1, 3] have not come");
        let many = not_come(&(0..100).collect::<Vec<_>>());
        assert!(many.starts_with("100 ranks, among them [0, 1,") && many.len() < 120);
    }
}
