//! Health of a host: how long it gets no new processes after failures.

use std::time::Duration;

/// Shortest and longest time for which a host that failed gets no new processes.
///
/// The time doubles with each failure, up to the longest. A host that has not failed for longer than
/// that since its last cool-down begins again with the shortest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooldown {
    least: Duration,
    most: Duration,
}

/// A range that cannot be one of cool-down times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CooldownError {
    /// The shortest time is 0.
    #[error("the cool-down range begins at 0 s; it must be at least 1 s")]
    Zero,
    /// The longest time exceeds the limit.
    #[error("the cool-down range ends at {0} s; it must be at most 3600 s")]
    Long(u64),
    /// The longest time is below the shortest one.
    #[error("the cool-down range ends at {most} s, before it begins at {least} s")]
    Order {
        /// Shortest time in seconds.
        least: u64,
        /// Longest time in seconds.
        most: u64,
    },
}

impl Cooldown {
    /// Range of cool-down times in seconds, 1 to 3600.
    ///
    /// # Errors
    /// Times outside of that range, or in the wrong order.
    pub fn new(least: u64, most: u64) -> Result<Self, CooldownError> {
        match (least, most) {
            (0, _) => Err(CooldownError::Zero),
            (_, 3601..) => Err(CooldownError::Long(most)),
            _ if least > most => Err(CooldownError::Order { least, most }),
            _ => Ok(Self {
                least: Duration::from_secs(least),
                most: Duration::from_secs(most),
            }),
        }
    }
}

/// Failures of one host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    failures: u32,
    state: State,
}

/// Whether a host gets new processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Usable,
    CoolingDown {
        until: Duration,
    },
    Barred,
}

impl Health {
    /// Records a failure at time `now`. Failures during a cool-down have the same cause, and do
    /// not count.
    pub(crate) fn fail(&mut self, now: Duration, cooldown: Option<Cooldown>) {
        if self.state(now) != State::Usable {
            return;
        }
        let Some(Cooldown { least, most }) = cooldown else {
            self.state = State::Barred;
            return;
        };
        if let State::CoolingDown { until } = self.state
            && now > until + most
        {
            self.failures = 0;
        }
        let time = least.saturating_mul(2u32.saturating_pow(self.failures));
        self.state = State::CoolingDown {
            until: now + time.min(most),
        };
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn state(&self, now: Duration) -> State {
        match self.state {
            State::CoolingDown { until } if until <= now => State::Usable,
            state => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_time_doubles_up_to_the_longest_and_begins_anew_after_a_long_time_without_failures() {
        let cooldown = Cooldown::new(10, 35).ok();
        let mut health = Health::default();
        let mut now = seconds(100);
        for expected in [10, 20, 35, 35] {
            health.fail(now, cooldown);
            health.fail(now + seconds(1), cooldown); // the same cause
            let until = now + seconds(expected);
            assert_eq!(health.state(now), State::CoolingDown { until });
            assert_eq!(health.state(until), State::Usable);
            now = until;
        }
        // As long as the longest cool-down is not long enough.
        for (without_failures, expected) in [(35, 35), (36, 10), (1, 20)] {
            now += seconds(without_failures);
            health.fail(now, cooldown);
            now += seconds(expected);
            assert_eq!(
                health.state(now - seconds(1)),
                State::CoolingDown { until: now }
            );
        }
    }

    #[test]
    fn without_a_range_a_host_that_fails_is_barred() {
        let mut health = Health::default();
        assert_eq!(health.state(seconds(0)), State::Usable);
        health.fail(seconds(0), None);
        assert_eq!(health.state(seconds(100_000)), State::Barred);
    }

    #[test]
    fn ranges_out_of_order_or_out_of_bounds_are_errors() {
        let of = |least, most| Cooldown::new(least, most).unwrap_err().to_string();
        assert_eq!(
            of(0, 5),
            "the cool-down range begins at 0 s; it must be at least 1 s"
        );
        assert_eq!(
            of(1, 4000),
            "the cool-down range ends at 4000 s; it must be at most 3600 s"
        );
        assert_eq!(
            of(20, 10),
            "the cool-down range ends at 10 s, before it begins at 20 s"
        );
    }
}
