//! Hold: times of a step at which no cycle begins, because waiting for the step's next tensors
//! takes less time than the latency of one more batch.
//!
//! A batch of n bytes takes α + β n, and batches run one after another. Let R be the time until the
//! step's last tensor. If R < α, a cycle that begins now and leaves a second batch to be run ends
//! 2 α + β n from now, at best; one that waits for all tensors ends R + α + β n from now, which is
//! earlier. So no cycle begins in the last α of a step, until its last tensor is submitted.
//!
//! If the step's first batch would end in the time before its last tensor at which no further cycle
//! begins, it can begin later at no cost, and then has more tensors: it is delayed until it ends
//! with the last tensor. Its begin then does not depend on how many microseconds the ranks' first
//! tensors lie apart. (Without a hold, a cycle that finds a tensor on one rank only is followed by
//! the next one a cycle time later.)
//!
//! The cycle and the replay use the same function. A hold decides when a cycle begins, never what
//! it does.
//!
//! ```
//! use ronde_job::hold::Hold;
//! use ronde_job::replay::Collective;
//!
//! let message = Collective { alpha_us: 15_000.0, us_per_byte: 1e-4 };
//! let tensors = [(0, 1 << 20), (8_000_000, 1 << 20), (20_000_000, 1 << 20)]; // ns, bytes
//! let hold = Hold::new(&tensors, message, 128 << 20);
//! assert_eq!(hold.begin_ns(16_000_000), hold.until_ns);
//! assert_eq!(hold.begin_ns(30_000_000), 30_000_000);
//! ```

use crate::replay::Collective;

/// Smallest latency for which cycles are delayed, µs. Below, a delay gains less than a sleeping
/// thread's wake-up may cost.
const ALPHA_US_MIN: f64 = 500.0;
/// Limit of the latency: a cycle is delayed by at most 1.25 times this.
const ALPHA_NS_MAX: u64 = 1_000_000_000;
/// Longest step for which cycles are delayed: one minute.
const STEP_NS_MAX: u64 = 60_000_000_000;

/// Times from the first request of a cycle in a step, ns. The default delays nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The step's first cycle does not begin before this time.
    pub first_ns: u64,
    /// A cycle that could begin at this time or later …
    pub from_ns: u64,
    /// … does not begin before this time, unless all tensors of the step are submitted.
    pub until_ns: u64,
}

impl Hold {
    /// Returns the hold of a step whose tensors were submitted at these times (ns from the first,
    /// ascending) with these sizes (bytes), on a network on which a batch takes `message`.
    ///
    /// There is none if the tensors do not fit into one batch: waiting then need not save a batch.
    pub fn new(tensors: &[(u64, u64)], message: Collective, fusion_threshold_bytes: u64) -> Self {
        if message.alpha_us < ALPHA_US_MIN {
            return Self::default(); // the usual case within a host
        }
        let bytes: u64 = tensors.iter().map(|&(_, bytes)| bytes).sum();
        let last_ns = tensors.iter().map(|&(at_ns, _)| at_ns).max().unwrap_or(0);
        if last_ns == 0 || last_ns > STEP_NS_MAX || bytes > fusion_threshold_bytes {
            return Self::default();
        }
        let message = Collective {
            alpha_us: message.alpha_us.min(ALPHA_NS_MAX as f64 / 1e3),
            ..message
        };
        let alpha_ns = (message.alpha_us * 1e3) as u64;
        Self {
            first_ns: first_ns(tensors, message, last_ns),
            from_ns: last_ns.saturating_sub(alpha_ns),
            until_ns: last_ns + alpha_ns / 4, // the tensors of the next step may come later
        }
    }

    /// Returns when a cycle begins that could begin at `at_ns` from the step's first request.
    pub fn begin_ns(&self, at_ns: u64) -> u64 {
        let begin_ns = at_ns.max(self.first_ns);
        if (self.from_ns..self.until_ns).contains(&begin_ns) {
            let latest_ns = begin_ns + ALPHA_NS_MAX + ALPHA_NS_MAX / 4;
            self.until_ns.min(latest_ns) // two ranks' times, combined, may lie farther apart
        } else {
            begin_ns
        }
    }

    /// Combines the holds of two ranks: the later time counts.
    pub fn max(self, other: Self) -> Self {
        Self {
            first_ns: self.first_ns.max(other.first_ns),
            from_ns: self.from_ns.max(other.from_ns),
            until_ns: self.until_ns.max(other.until_ns),
        }
    }

    /// Describes a value that no rank computes; `None` if all are possible.
    pub fn problem(&self) -> Option<String> {
        let most_ns = STEP_NS_MAX + ALPHA_NS_MAX / 4;
        let Self {
            first_ns,
            from_ns,
            until_ns,
        } = *self;
        let is_possible = first_ns <= ALPHA_NS_MAX && from_ns <= STEP_NS_MAX && until_ns <= most_ns;
        (!is_possible).then(|| {
            format!(
                "a hold of {first_ns}, {from_ns} and {until_ns} ns, where {ALPHA_NS_MAX}, \
                 {STEP_NS_MAX} and {most_ns} are the most"
            )
        })
    }
}

/// Returns the latest start of the first batch at which it ends by `last_ns`; 0 if it would end so
/// early that another batch could begin and end before.
fn first_ns(tensors: &[(u64, u64)], message: Collective, last_ns: u64) -> u64 {
    let latest_ns = |bytes: u64| {
        let took_us = message.alpha_us + message.us_per_byte * bytes as f64;
        last_ns as f64 - took_us * 1e3
    };
    let mut bytes = 0;
    let mut begin_ns = 0;
    for (index, &(at_ns, of_tensor)) in tensors.iter().enumerate() {
        bytes += of_tensor;
        let latest_ns = latest_ns(bytes);
        let is_first = index == 0;
        if latest_ns < at_ns as f64 || (is_first && latest_ns >= message.alpha_us * 1e3) {
            break;
        }
        let next_ns = tensors.get(index + 1).map_or(last_ns, |&(next, _)| next);
        begin_ns = next_ns.min(latest_ns as u64);
    }
    begin_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 20 tensors of 1 MB, one per ms from 0 on.
    fn tensors() -> Vec<(u64, u64)> {
        (0..20).map(|i| (i * MS, 1_000_000)).collect()
    }

    fn message(alpha_ms: f64) -> Collective {
        Collective {
            alpha_us: alpha_ms * 1e3,
            us_per_byte: 1e-3, // 1 ms for a tensor
        }
    }

    #[test]
    fn no_cycle_begins_in_the_last_latency_of_a_step() {
        let hold = Hold::new(&tensors(), message(4.0), 1 << 30);
        assert_eq!(
            (hold.first_ns, hold.from_ns, hold.until_ns),
            (0, 15 * MS, 20 * MS)
        );
        let begins = [0, 14, 15, 18, 20, 25].map(|ms| hold.begin_ns(ms * MS) / MS);
        assert_eq!(begins, [0, 14, 20, 20, 20, 25]);
    }

    #[test]
    fn all_tensors_are_awaited_if_the_last_comes_within_the_latency() {
        let hold = Hold::new(&tensors(), message(40.0), 1 << 30);
        assert_eq!(
            (hold.first_ns, hold.from_ns, hold.until_ns),
            (0, 0, 29 * MS)
        );
        assert_eq!(hold.begin_ns(0), 29 * MS);
    }

    #[test]
    fn the_first_batch_ends_with_the_last_tensor_if_no_other_fits_before_it() {
        // 12 ms and 1 ms per tensor: with the tensors of 0, 1, 2 and 3 ms, a batch takes 16 ms, and
        // ends at 19 ms if it begins at 3.
        let hold = Hold::new(&tensors(), message(12.0), 1 << 30);
        assert_eq!(hold.first_ns, 3 * MS);
        assert_eq!(hold.begin_ns(0), 3 * MS);
        assert_eq!(hold.begin_ns(5 * MS), 5 * MS);
        // 8 ms: a batch at 0 ends at 9 ms, and a second one before 19 ms.
        assert_eq!(Hold::new(&tensors(), message(8.0), 1 << 30).first_ns, 0);
    }

    #[test]
    fn nothing_is_held_where_it_gains_nothing() {
        let none = Hold::default();
        assert_eq!(Hold::new(&tensors(), message(0.4), 1 << 30), none);
        assert_eq!(Hold::new(&tensors(), message(4.0), 19_999_999), none);
        assert_eq!(Hold::new(&[], message(4.0), 1 << 30), none);
        assert_eq!(Hold::new(&[(0, 8), (0, 8)], message(4.0), 1 << 30), none);
        assert_eq!((none.begin_ns(0), none.begin_ns(7)), (0, 7));
    }

    #[test]
    fn holds_are_combined_and_checked() {
        let hold = |first_ns, from_ns, until_ns| Hold {
            first_ns,
            from_ns,
            until_ns,
        };
        assert_eq!(hold(1, 5, 9).max(hold(2, 4, 10)), hold(2, 5, 10));
        assert_eq!(hold(1, 5, 9).problem(), None);
        let longest = [(0, 1), (STEP_NS_MAX, 1)];
        assert_eq!(Hold::new(&longest, message(1e9), 1 << 30).problem(), None);
        assert!(hold(1_000_000_001, 0, 0).problem().is_some());
        // No cycle is delayed by more than 1.25 s, whatever ranks publish.
        assert_eq!(hold(0, 0, 60 * 1_000 * MS).begin_ns(7), 1_250 * MS + 7);
        let text = hold(0, 0, u64::MAX).problem().unwrap();
        assert!(text.contains("0, 0 and 18446744073709551615 ns"), "{text}");
    }
}
