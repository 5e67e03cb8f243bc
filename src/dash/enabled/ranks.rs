//! Waiting and transfer times of the latest ranks, per step.
//!
//! Rank 0 knows how long the job waited for each rank, from the negotiation. A rank reports its own
//! waits and transfers to the first rank of its host, so they are known of the ranks on rank 0's
//! host.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ronde_dash::{RankTimes, Ranks};

use crate::rank_times;

/// Shortest time that the values are averages of.
const INTERVAL: Duration = Duration::from_secs(1);

/// Times at the last report.
pub(super) struct RankView {
    at: Instant,
    step: u64,
    late_ns: Vec<u64>,
    times: HashMap<usize, rank_times::RankTimes>,
}

impl RankView {
    pub(super) fn new(ranks: usize) -> Self {
        Self {
            at: Instant::now(),
            step: 0,
            late_ns: vec![0; ranks],
            times: HashMap::new(),
        }
    }

    /// Whether a report is due at `now`, after `step` steps.
    pub(super) fn is_due(&self, now: Instant, step: u64) -> bool {
        step > self.step && now >= self.at + INTERVAL
    }

    /// Returns the times per step since the last report, of the latest ranks.
    pub(super) fn report(
        &mut self,
        now: Instant,
        step: u64,
        late_ns: Vec<u64>,
        times: Vec<(usize, rank_times::RankTimes)>,
    ) -> Ranks {
        let steps = step.saturating_sub(self.step).max(1) as f64;
        let per_step = |ns: u64| ns as f64 / 1e6 / steps;
        let since = |time: Duration, before: Duration| {
            per_step(time.saturating_sub(before).as_nanos() as u64)
        };
        let times: HashMap<_, _> = times.into_iter().collect();
        let late = |rank: usize| late_ns[rank].saturating_sub(self.late_ns[rank]);
        let row = |rank: usize| {
            let own = times.get(&rank).map(|times| {
                let before = self.times.get(&rank).copied().unwrap_or_default();
                (
                    since(times.waited, before.waited),
                    since(times.transferred, before.transferred),
                )
            });
            RankTimes {
                rank: rank as u64,
                late_ms: Some(per_step(late(rank))),
                wait_ms: own.map(|(wait, _)| wait),
                transfer_ms: own.map(|(_, transfer)| transfer),
            }
        };
        let mut latest: Vec<usize> = (0..late_ns.len()).collect();
        latest.sort_by_key(|&rank| Reverse(late(rank)));
        let rows = latest.into_iter().take(Ranks::MOST).map(row).collect();
        (self.at, self.step, self.late_ns, self.times) = (now, step, late_ns, times);
        Ranks { step, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_ranks_come_first_with_what_is_known_of_them() {
        let mut view = RankView::new(10);
        let start = view.at;
        assert!(!view.is_due(start, 3) && !view.is_due(start + INTERVAL, 0));
        assert!(view.is_due(start + INTERVAL, 1));
        let mut late_ns = vec![0; 10];
        (late_ns[4], late_ns[9]) = (8_000_000, 2_000_000);
        let ms = Duration::from_millis;
        let times = |waited, transferred| rank_times::RankTimes {
            waited: ms(waited),
            transferred: ms(transferred),
        };
        let now = start + INTERVAL;
        let ranks = view.report(now, 2, late_ns.clone(), vec![(4, times(1, 6))]);
        assert_eq!((ranks.step, ranks.rows.len()), (2, 8));
        let first = RankTimes {
            rank: 4,
            late_ms: Some(4.0),
            wait_ms: Some(0.5),
            transfer_ms: Some(3.0),
        };
        assert_eq!(ranks.rows[0], first);
        assert_eq!((ranks.rows[1].rank, ranks.rows[1].wait_ms), (9, None));
        // Only what has come since.
        late_ns[0] = 1_000_000;
        let ranks = view.report(now + INTERVAL, 3, late_ns, vec![(4, times(2, 6))]);
        assert_eq!((ranks.rows[0].rank, ranks.rows[0].late_ms), (0, Some(1.0)));
        let fourth = ranks.rows.iter().find(|row| row.rank == 4).unwrap();
        assert_eq!((fourth.wait_ms, fourth.transfer_ms), (Some(1.0), Some(0.0)));
    }
}
