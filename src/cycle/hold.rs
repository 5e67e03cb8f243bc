//! Delays cycles where waiting for a step's next tensors takes less time than another batch.
//!
//! Each rank measures the times of its batches ([`Messages`]) and when the tensors of a step are
//! submitted, and publishes the [`Hold`] that follows from both in its block. The agreed hold is
//! the later time of all ranks, and the same on every rank. Each rank applies it from the first
//! request of a cycle in a step, which the doorbell delivers to all ranks at nearly the same time.
//! A step ends in the cycle in which all ranks have submitted its last tensor.
//!
//! A hold decides when a cycle begins and never what it does, so a wrong one costs time only: at
//! most 1.25 times the latency. A cycle for which all ranks are eager is never delayed.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Nanos;
use crate::hold::Hold;
use crate::replay::Collective;
use crate::settings::Hierarchy;

/// Measurements and agreed hold of one process set on one rank.
#[derive(Debug, Default)]
pub(super) struct Holding {
    messages: Messages,
    /// Hierarchical operations during the measurements.
    hierarchy: Hierarchy,
    /// The hold to publish.
    own: Hold,
    agreed: Hold,
    /// First request of a cycle in this step, when this rank noticed it.
    step_began: Option<Nanos>,
}

impl Holding {
    /// A step's last tensor was submitted; `tensors` has the time of each submission since the
    /// first, ns, and its size. Empty if the step cannot be delayed.
    pub(super) fn step_submitted(&mut self, tensors: &[(u64, u64)], fusion_threshold_bytes: u64) {
        let message = self.messages.cost();
        self.own = message.map_or_else(Hold::default, |message| {
            Hold::new(tensors, message, fusion_threshold_bytes)
        });
    }

    /// The hold to publish in this rank's block.
    pub(super) fn own(&self) -> Hold {
        self.own
    }

    /// The ranks have agreed on `hold` in a cycle with these settings; `step_ended` if each of them
    /// has submitted the step's last tensor.
    pub(super) fn agreed(&mut self, hold: Hold, hierarchy: Hierarchy, step_ended: bool) {
        self.agreed = hold;
        if self.hierarchy != hierarchy {
            self.hierarchy = hierarchy;
            self.messages = Messages::default();
        }
        if step_ended {
            self.step_began = None;
        }
    }

    /// An allreduce of `bytes` took `took_ns`, without the wait for late ranks.
    pub(super) fn executed(&mut self, bytes: u64, took_ns: u64) {
        self.messages.add(bytes, took_ns);
    }

    /// Returns when a requested cycle begins that could begin at `at`. If the request was not
    /// noticed at once, because the cycle time had not passed, the step began with this rank's
    /// first `submission`.
    pub(super) fn begin(&mut self, at: Nanos, submission: impl FnOnce() -> Option<Nanos>) -> Nanos {
        let first = || submission().map_or(at, |submission| submission.min(at));
        let began = *self.step_began.get_or_insert_with(first);
        let since_ns = at.0.saturating_sub(began.0);
        at + Duration::from_nanos(self.agreed.begin_ns(since_ns) - since_ns)
    }
}

/// Batches kept of a size: the shortest counts, since other work only makes them longer.
const BATCHES_PER_SIZE: usize = 4;
/// A size without a batch among this many is forgotten: the network may have changed.
const BATCHES_KNOWN: u64 = 1_024;

/// Times of recent batches, by powers of two of their size.
#[derive(Debug)]
struct Messages {
    /// Size and time, ns, of the last batches, and the number of the last of them.
    sizes: [(VecDeque<(u64, u64)>, u64); u64::BITS as usize],
    batches: u64,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            sizes: std::array::from_fn(|_| Default::default()),
            batches: 0,
        }
    }
}

impl Messages {
    fn add(&mut self, bytes: u64, took_ns: u64) {
        let Some(size) = bytes.checked_ilog2() else {
            return;
        };
        self.batches += 1;
        let (batches, last) = &mut self.sizes[size as usize];
        if batches.len() == BATCHES_PER_SIZE {
            batches.pop_front();
        }
        batches.push_back((bytes, took_ns));
        *last = self.batches;
    }

    /// Returns the line through the shortest batch of the smallest size and that of the largest
    /// size; `None` if both sizes are too close to separate latency and bandwidth.
    fn cost(&self) -> Option<Collective> {
        let is_known = |last: u64| self.batches - last < BATCHES_KNOWN;
        let mut shortest = self
            .sizes
            .iter()
            .filter(|(_, last)| is_known(*last))
            .filter_map(|(batches, _)| batches.iter().min_by_key(|&&(_, took_ns)| took_ns));
        let &(few, few_ns) = shortest.next()?;
        let &(many, many_ns) = shortest.next_back()?;
        if many < 2 * few {
            return None;
        }
        let ns_per_byte = many_ns.saturating_sub(few_ns) as f64 / (many - few) as f64;
        let alpha_ns = few_ns.min(many_ns) as f64 - ns_per_byte * few as f64;
        Some(Collective {
            alpha_us: alpha_ns.max(0.0) / 1e3,
            us_per_byte: ns_per_byte / 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Batches of 1 and 64 MB that take 10 ms and 1 ms per MB.
    fn measured() -> Holding {
        let mut holding = Holding::default();
        for _ in 0..4 {
            holding.executed(1_000_000, 11 * MS);
            holding.executed(64_000_000, 74 * MS);
        }
        holding
    }

    #[test]
    fn latency_and_bandwidth_are_the_line_through_the_shortest_batches() {
        let mut holding = measured();
        holding.executed(1_000_000, 50 * MS); // disturbed
        let cost = holding.messages.cost().expect("two sizes");
        assert!((cost.alpha_us - 10_000.0).abs() < 1e-6, "{cost:?}");
        assert!((cost.us_per_byte - 1e-3).abs() < 1e-9, "{cost:?}");
    }

    #[test]
    fn one_size_or_an_old_one_separates_nothing() {
        let mut messages = Messages::default();
        messages.add(0, 5);
        messages.add(1_000, 5);
        assert_eq!(messages.cost(), None);
        messages.add(1_500, 5);
        assert_eq!(messages.cost(), None);
        messages.add(4_000, 9);
        assert!(messages.cost().is_some());
        (0..BATCHES_KNOWN).for_each(|_| messages.add(4_000, 9));
        assert_eq!(messages.cost(), None);
    }

    #[test]
    fn a_cycle_waits_from_the_first_request_of_the_step_on() {
        let mut holding = measured();
        let tensors = [(0, 1_000), (20 * MS, 1_000)];
        holding.step_submitted(&tensors, 1 << 20);
        let hold = holding.own();
        assert!((hold.from_ns, hold.until_ns) > (9 * MS, 20 * MS));
        holding.agreed(hold, Hierarchy::default(), true);
        let at = |ms: u64| Nanos(ms * MS);
        let none = || None;
        assert_eq!(
            holding.begin(at(100), none),
            Nanos(at(100).0 + hold.first_ns)
        );
        assert_eq!(
            holding.begin(at(112), none),
            Nanos(at(100).0 + hold.until_ns)
        );
        assert_eq!(holding.begin(at(130), none), at(130));
        // Without an end of the step, later cycles are not delayed; after one, they are.
        assert_eq!(holding.begin(at(200), none), at(200));
        holding.agreed(hold, Hierarchy::default(), true);
        assert_eq!(
            holding.begin(at(300), none),
            Nanos(at(300).0 + hold.first_ns)
        );
        // The request came before this rank noticed it.
        holding.agreed(hold, Hierarchy::default(), true);
        assert_eq!(
            holding.begin(at(412), || Some(at(400))),
            Nanos(at(400).0 + hold.until_ns)
        );
        // Other operations have other latencies.
        let other = Hierarchy {
            allreduce: true,
            allgather: false,
        };
        holding.agreed(hold, other, false);
        holding.step_submitted(&tensors, 1 << 20);
        assert_eq!(holding.own(), Hold::default());
    }
}
