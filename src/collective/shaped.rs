//! Collective that simulates the speed of a network: every message takes at least its latency and
//! the transfer time of its bytes. The bytes are those that the rank sends or receives, whichever
//! is more; for an allreduce or a broadcast, those of the batch.
//!
//! It sleeps instead of spinning, so that computation overlaps with it as with a network card, and
//! it does move the data. `ronde bench --link` uses it, and its output says "shaped".

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::{Activities, Collective, Hierarchy, InterNode, Phases, Reduction};
use crate::clock::{Clock, MonotonicClock};
use crate::error::Error;
use crate::knobs::Link;
use crate::tensor::Span;

/// Wraps another collective and slows it down to the speed of a link.
pub(crate) struct ShapedCollective {
    inner: Box<dyn Collective>,
    link: Link,
    rank: usize,
    size: usize,
    clock: Arc<dyn Clock>,
}

impl ShapedCollective {
    /// Slows `inner`, the collective of rank `rank` of `size`, down to `link`.
    pub(crate) fn new(inner: Box<dyn Collective>, link: Link, rank: usize, size: usize) -> Self {
        Self {
            inner,
            link,
            rank,
            size,
            clock: Arc::new(MonotonicClock),
        }
    }

    /// Returns the sum of this rank's and that of the other ranks' lengths, from a table of one
    /// length per tensor and rank. An allgather sends the first and receives the second, a
    /// reducescatter the reverse.
    fn own_and_others(&self, bytes: &[usize]) -> (usize, usize) {
        let own: usize = bytes.iter().skip(self.rank).step_by(self.size).sum();
        (own, bytes.iter().sum::<usize>() - own)
    }

    /// Returns the bytes that this rank sends to others in an alltoall.
    fn sent(&self, bytes: &[usize]) -> usize {
        let rows = bytes.chunks(self.size).skip(self.rank).step_by(self.size);
        rows.map(|row| row.iter().sum::<usize>() - row[self.rank])
            .sum()
    }

    /// Returns the bytes that this rank receives from others in an alltoall.
    fn received(&self, bytes: &[usize]) -> usize {
        let column = |table: &[usize]| -> usize {
            let all: usize = table.iter().skip(self.rank).step_by(self.size).sum();
            all - table[self.rank * self.size + self.rank]
        };
        bytes.chunks(self.size * self.size).map(column).sum()
    }

    /// Runs `operation`, which sends or receives `bytes` over the link.
    fn shaped(
        &mut self,
        bytes: usize,
        operation: impl FnOnce(&mut dyn Collective) -> Result<Phases, Error>,
    ) -> Result<Phases, Error> {
        let began = self.clock.now();
        let mut phases = operation(&mut *self.inner)?;
        let moved = self.clock.now();
        let due = began + message_time(self.link, bytes);
        if moved < due {
            // The kernel's default slack of 50 µs would be a large part of a fast link's latency.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
            std::thread::sleep(due - moved);
        }
        // The message is in flight: this time is neither copying nor combining, whatever those
        // took.
        let ended = self.clock.now();
        phases.wait_ns += (ended - moved).as_nanos() as u64;
        // The delay by late peers and the transfer time may overlap.
        let over_ns = ended.0.saturating_sub(due.0);
        phases.late_ns = phases.late_ns.min(over_ns);
        Ok(phases)
    }
}

/// Returns the time of one message: α + bytes / β.
fn message_time(link: Link, bytes: usize) -> Duration {
    Duration::from_secs_f64(link.alpha_us * 1e-6 + bytes as f64 / (link.gb_per_s * 1e9))
}

impl Collective for ShapedCollective {
    fn activities(&self) -> &'static Activities {
        self.inner.activities()
    }

    fn set_hierarchy(&mut self, hierarchy: Hierarchy) {
        self.inner.set_hierarchy(hierarchy);
    }

    fn inter_node(&mut self) -> Option<&mut dyn InterNode> {
        self.inner.inter_node()
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let bytes = spans.iter().map(Span::bytes).sum();
        self.shaped(bytes, |inner| inner.allreduce(spans, reduction, absent))
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        let bytes = spans.iter().map(Span::bytes).sum();
        self.shaped(bytes, |inner| inner.broadcast(spans, root))
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let (own, others) = self.own_and_others(bytes);
        self.shaped(own.max(others), |inner| inner.allgather(spans, bytes))
    }

    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let busier = self.sent(bytes).max(self.received(bytes));
        self.shaped(busier, |inner| inner.alltoall(spans, bytes))
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let (own, others) = self.own_and_others(bytes);
        self.shaped(own.max(others), |inner| {
            inner.reducescatter(spans, bytes, reduction, absent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::local::LocalCollective;
    use crate::shm::Region;

    #[test]
    fn a_message_takes_its_latency_and_its_bytes_time() {
        let link = Link {
            alpha_us: 1000.0,
            gb_per_s: 2.5,
        };
        assert_eq!(message_time(link, 0), Duration::from_millis(1));
        assert_eq!(message_time(link, 25_000_000), Duration::from_millis(11));
    }

    /// Creates a collective that is never called.
    fn shaped(rank: usize, size: usize) -> ShapedCollective {
        let bytes = LocalCollective::required_bytes(size);
        let (_, file) = Region::create("ronde-test", bytes).expect("shared memory");
        let patience = Duration::from_secs(1);
        let inner = LocalCollective::over_file(file, rank, size, Duration::ZERO, patience)
            .expect("shared memory");
        let link = Link {
            alpha_us: 1.0,
            gb_per_s: 1.0,
        };
        ShapedCollective::new(Box::new(inner), link, rank, size)
    }

    #[test]
    fn a_rank_is_charged_what_it_sends_or_receives() {
        // Two tensors, three ranks: rank 1 has 2 and 20 bytes of 6 and 60.
        assert_eq!(
            shaped(1, 3).own_and_others(&[1, 2, 3, 10, 20, 30]),
            (22, 44)
        );
        let table = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, // a tensor: from rank 0, from rank 1, from rank 2
            10, 20, 30, 40, 50, 60, 70, 80, 90,
        ];
        let middle = shaped(1, 3);
        assert_eq!(middle.sent(&table), 4 + 6 + 40 + 60);
        assert_eq!(middle.received(&table), 2 + 8 + 20 + 80);
    }
}
