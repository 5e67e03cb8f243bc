//! Lateness: the ranks that were last to submit their tensors, over the whole job.

use crate::negotiation::Last;

/// A rank that is less late than this is not late: clocks of hosts differ by as much.
const LATE_US_MIN: u64 = 100;

/// For each rank of a job, how often it was the last one, and how late.
#[derive(Debug)]
pub(super) struct Lateness {
    /// For each rank, the cycles in which it was last, and how late it was in them, microseconds.
    ranks: Vec<(u64, u64)>,
    cycles: u64,
}

impl Lateness {
    /// Of `size` ranks.
    pub(super) fn new(size: usize) -> Self {
        Self {
            ranks: vec![(0, 0); size],
            cycles: 0,
        }
    }

    /// Counts a cycle.
    pub(super) fn add(&mut self, last: &Last) {
        self.cycles += 1;
        if let Some((count, late_us)) = self.ranks.get_mut(last.rank)
            && last.late_us >= LATE_US_MIN
        {
            *count += 1;
            *late_us = late_us.saturating_add(last.late_us);
        }
    }

    /// Describes the rank that the others have waited for longest; `None` if no rank was late.
    pub(super) fn summary(&self) -> Option<String> {
        let ranks = self.ranks.iter().enumerate();
        let (rank, &(count, late_us)) = ranks.max_by_key(|(_, (_, late_us))| *late_us)?;
        let mean_ms = late_us.checked_div(count)? as f64 / 1e3;
        Some(format!(
            "rank {rank} was the last to submit its tensors in {count} of {} cycles, {mean_ms:.1} ms after \
             the first on average; record a timeline (HOROVOD_TIMELINE) to see why",
            self.cycles
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_others_waited_for_longest_is_named() {
        let mut lateness = Lateness::new(3);
        assert_eq!(lateness.summary(), None);
        for (rank, late_us) in [
            (1, 200),
            (2, 99),
            (1, 200),
            (0, 3_000),
            (0, 1_000),
            (9, 5_000),
        ] {
            lateness.add(&Last { rank, late_us });
        }
        let expected = "rank 0 was the last to submit its tensors in 2 of 6 cycles, 2.0 ms after the \
                        first on average; record a timeline (HOROVOD_TIMELINE) to see why";
        assert_eq!(lateness.summary().as_deref(), Some(expected));
    }
}
