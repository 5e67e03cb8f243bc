//! Converts times of the rank's clock to microseconds since the zero of the process's files, on
//! rank 0's clock.

use std::time::SystemTime;

use crate::clock::{Alignment, Clock, Nanos};

/// Conversion of times to those of the files. The zero is the same point in time for all files of a
/// process and does not change after the first alignment; a later alignment changes the conversion
/// of later times only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Zero on this rank's clock.
    start: Nanos,
    /// Zero on the wall clock, nanoseconds since 1970.
    pub(super) start_epoch_ns: u64,
    /// Zero on rank 0's clock, nanoseconds.
    pub(super) zero_ns: i64,
    /// `None` before the first measurement: this rank's clock is used as rank 0's.
    pub(super) alignment: Option<Alignment>,
}

impl Line {
    /// Creates a conversion whose zero is the present.
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let start = clock.now();
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start,
            start_epoch_ns: u64::try_from(wall.as_nanos()).unwrap_or(0),
            zero_ns: signed(start),
            alignment: None,
        }
    }

    /// Forgets rank 0's clock, as another process may be rank 0 now.
    pub(super) fn restart(&mut self) {
        self.alignment = None;
        self.zero_ns = signed(self.start);
    }

    /// Applies a measurement of the offset between this rank's clock and rank 0's.
    pub(super) fn align(&mut self, alignment: &Alignment) {
        let first = self.alignment.replace(*alignment).is_none();
        if first {
            self.zero_ns = self.reference_ns(self.start);
        }
    }

    /// Converts a time of this rank's clock to rank 0's, nanoseconds.
    pub(super) fn reference_ns(&self, at: Nanos) -> i64 {
        signed(
            self.alignment
                .map_or(at, |alignment| alignment.to_reference(at)),
        )
    }

    /// Converts a time of this rank's clock to microseconds since the zero.
    pub(super) fn micros(&self, at: Nanos) -> u64 {
        self.since_zero_us(self.reference_ns(at))
    }

    /// Converts a time of rank 0's clock, in microseconds, to microseconds since the zero.
    pub(super) fn reference_micros(&self, at_us: u64) -> u64 {
        self.since_zero_us(i64::try_from(at_us.saturating_mul(1_000)).unwrap_or(i64::MAX))
    }

    /// Converts a time of this rank's clock to microseconds since 1970.
    pub(super) fn epoch_us(&self, at: Nanos) -> u64 {
        let since = i128::from(at.0) - i128::from(self.start.0);
        let epoch_ns = (i128::from(self.start_epoch_ns) + since).max(0);
        u64::try_from(epoch_ns / 1_000).unwrap_or(u64::MAX)
    }

    fn since_zero_us(&self, reference_ns: i64) -> u64 {
        reference_ns.saturating_sub(self.zero_ns).max(0) as u64 / 1_000
    }
}

fn signed(at: Nanos) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u64);

    impl Clock for Fixed {
        fn now(&self) -> Nanos {
            Nanos(self.0)
        }
    }

    #[test]
    fn times_are_on_rank_0s_clock_since_the_zero() {
        let mut line = Line::new(&Fixed(5_000_000_000));
        assert_eq!(line.micros(Nanos(5_000_250_999)), 250);
        assert_eq!(line.micros(Nanos(1)), 0); // before the zero
        // Rank 0's clock shows 2 s less and runs 1 ms a second faster.
        let alignment = Alignment {
            at: Nanos(5_000_000_000),
            offset_ns: -2_000_000_000,
            error_ns: 10,
            drift_ppb: 1_000_000,
            drift_error_ppb: 5,
        };
        line.align(&alignment);
        assert_eq!(line.zero_ns, 3_000_000_000);
        assert_eq!(line.micros(Nanos(6_000_000_000)), 1_001_000);
        assert_eq!(line.reference_micros(3_000_700), 700); // from rank 0
        // Measured again a second later: the offset equals the prediction from the drift, so
        // nothing changes.
        line.align(&Alignment {
            at: Nanos(6_000_000_000),
            offset_ns: -1_999_000_000,
            ..alignment
        });
        assert_eq!(line.zero_ns, 3_000_000_000);
        assert_eq!(line.micros(Nanos(6_000_000_000)), 1_001_000);
        let wall_us = line.start_epoch_ns / 1_000;
        assert!((499_999..=500_000).contains(&(line.epoch_us(Nanos(5_500_000_000)) - wall_us)));
    }
}
