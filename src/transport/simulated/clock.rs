//! Simulated clocks: one for the whole simulated world, or one with offset and drift for each rank
//! if the world has several hosts.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::SmallRng;

use super::World;
use crate::clock::{Clock, Nanos};

/// Relation of a rank's clock to the world's: `own = world · (1 + drift) + offset`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skew {
    offset_ns: u64,
    drift_ppb: i64,
}

const BILLION: i128 = 1_000_000_000;

/// Largest offset: clocks count from a host's boot, here up to an hour ago.
const OFFSET_NS_MAX: u64 = 3_600_000_000_000;

/// Largest drift: 50 ppm, as of quartz clocks.
const DRIFT_PPB_MAX: i64 = 50_000;

impl Skew {
    /// Draws offset and drift.
    pub(super) fn draw(random: &mut SmallRng) -> Self {
        Self {
            offset_ns: random.random_range(0..OFFSET_NS_MAX),
            drift_ppb: random.random_range(-DRIFT_PPB_MAX..=DRIFT_PPB_MAX),
        }
    }

    fn own(&self, world: Nanos) -> Nanos {
        let world = i128::from(world.0);
        let drifted = (world * i128::from(self.drift_ppb)).div_euclid(BILLION);
        Nanos((world + drifted) as u64 + self.offset_ns)
    }

    /// Returns the world's time at which the rank's clock reaches `own`.
    fn world(&self, own: Nanos) -> Nanos {
        let since = i128::from(own.0.saturating_sub(self.offset_ns));
        let slope = BILLION + i128::from(self.drift_ppb);
        Nanos(((since * BILLION + slope - 1) / slope) as u64)
    }
}

/// Clock of a rank.
pub(crate) struct SimulatedClock {
    world: Arc<World>,
    skew: Skew,
}

impl SimulatedClock {
    /// Makes the clock of job rank `rank`.
    pub(crate) fn new(world: &Arc<World>, rank: usize) -> Self {
        Self {
            world: Arc::clone(world),
            skew: world.skew(rank),
        }
    }

    /// Returns the clock's reading when the world's time is `world`.
    pub(crate) fn at(&self, world: Nanos) -> Nanos {
        self.skew.own(world)
    }

    /// Returns the world's time at which the clock shows `own`.
    pub(crate) fn world_time(&self, own: Nanos) -> Nanos {
        self.skew.world(own)
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Nanos {
        self.at(self.world.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_shows_more_and_its_times_convert_back() {
        let skew = Skew {
            offset_ns: 7,
            drift_ppb: 50_000,
        };
        assert_eq!(skew.own(Nanos(1_000_000)), Nanos(1_000_057));
        assert_eq!(skew.world(Nanos(1_000_057)), Nanos(1_000_000));
        let losing = Skew {
            drift_ppb: -50_000,
            ..skew
        };
        for own in 1_000_000..1_000_100 {
            let reached = losing.world(Nanos(own));
            assert!(
                losing.own(reached) >= Nanos(own) && losing.own(Nanos(reached.0 - 2)) < Nanos(own)
            );
        }
    }
}
