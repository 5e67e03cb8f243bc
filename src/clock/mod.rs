//! Clock: trait that provides the time, so that tests can replace the machine's clock.
//!
//! Ranks on one host read the same clock. On several hosts, times that ranks exchange are on rank
//! 0's clock: `alignment` estimates the offset of a rank's clock, `reference` holds the estimate
//! for all process sets of a rank, and the cycle (`cycle/clocks`) runs the measurements. A rank
//! schedules its own work on its own clock.

use std::ops::{Add, Sub};
use std::time::Duration;

mod alignment;
mod reference;

pub(crate) use alignment::Alignment;
pub(crate) use alignment::{Estimator, ROUNDS, Round, Schedule};
pub(crate) use reference::Reference;

/// A point in time: nanoseconds on a rank's monotonic clock, comparable among ranks of one boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Whole microseconds, the unit of timelines.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Time since `earlier`, zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Nanos> for Nanos {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Source of the time: the machine's clock in a job, a number that the scheduler sets in the
/// simulator.
pub trait Clock: Send + Sync {
    /// Current time.
    fn now(&self) -> Nanos;
}

/// `CLOCK_MONOTONIC`: the same zero for every process of one boot, so ranks on one host need no
/// alignment.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}
