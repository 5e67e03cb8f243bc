//! A collective made as slow as a network: every message takes its latency and its bytes' time, at least.
//!
//! It sleeps rather than spins, so that compute overlaps with it as with a real network card, and moves the data
//! for real. Used by `ronde bench --link`, whose output says "shaped".

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::{Collective, Phases, Reduction};
use crate::clock::{Clock, MonotonicClock};
use crate::error::Error;
use crate::knobs::Link;
use crate::tensor::Span;

/// Another collective behind a link.
pub struct ShapedCollective {
    inner: Box<dyn Collective>,
    link: Link,
    clock: Arc<dyn Clock>,
}

impl ShapedCollective {
    /// Slows `inner` down to `link`.
    pub fn new(inner: Box<dyn Collective>, link: Link) -> Self {
        Self {
            inner,
            link,
            clock: Arc::new(MonotonicClock),
        }
    }

    fn shaped(
        &mut self,
        spans: &[Span],
        operation: impl FnOnce(&mut dyn Collective) -> Result<Phases, Error>,
    ) -> Result<Phases, Error> {
        let began = self.clock.now();
        let mut phases = operation(&mut *self.inner)?;
        let moved = self.clock.now();
        let due = began + message_time(self.link, spans.iter().map(Span::bytes).sum());
        if moved < due {
            // The kernel's default slack of 50 µs would be a large part of a fast link's latency.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
            std::thread::sleep(due - moved);
        }
        phases.wait_ns += (self.clock.now() - moved).as_nanos() as u64;
        Ok(phases)
    }
}

/// Time of one message: α + bytes / β.
fn message_time(link: Link, bytes: usize) -> Duration {
    Duration::from_secs_f64(link.alpha_us * 1e-6 + bytes as f64 / (link.gb_per_s * 1e9))
}

impl Collective for ShapedCollective {
    fn allreduce_activity(&self) -> &'static str {
        self.inner.allreduce_activity()
    }

    fn broadcast_activity(&self) -> &'static str {
        self.inner.broadcast_activity()
    }

    fn allreduce(&mut self, spans: &[Span], reduction: &Reduction) -> Result<Phases, Error> {
        self.shaped(spans, |inner| inner.allreduce(spans, reduction))
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        self.shaped(spans, |inner| inner.broadcast(spans, root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_its_latency_and_its_bytes_time() {
        let link = Link {
            alpha_us: 1000.0,
            gb_per_s: 2.5,
        };
        assert_eq!(message_time(link, 0), Duration::from_millis(1));
        assert_eq!(message_time(link, 25_000_000), Duration::from_millis(11));
    }
}
