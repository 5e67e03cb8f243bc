//! Clock alignment: estimates the offset of a rank's clock from rank 0's, from round trips of
//! messages.
//!
//! A *round* has three readings: this rank reads its clock (`sent`), rank 0 reads its own clock
//! later (`stamp`), and this rank reads its clock again when it has received the stamp
//! (`received`). Whatever the delays of the messages, the stamp was taken between the two readings.
//! So rank 0's clock was ahead by `stamp − (sent + received) / 2`, within half the round trip
//! (Cristian, *Probabilistic clock synchronization*, 1989). The round with the shortest round trip
//! is the most precise one.
//!
//! One measurement does not give the drift of the clocks; two do, within the error of both:
//!
//! ```text
//! offset │                      ┬ error of the later measurement
//!        │            ________--┴
//!        │ ┬ ___------            drift: slopes of all lines through both bars
//!        │ ┴ error of the earlier measurement
//!        └─────────────────────────── this rank's clock
//! ```
//!
//! Each earlier measurement bounds the slope to the newest one. The drift lies in the intersection
//! of these bounds. If the intersection is empty, the drift has changed or a clock was set. Then
//! only the measurements that agree with the newest one count, from there backwards.

use std::collections::VecDeque;
use std::time::Duration;

use super::Nanos;

/// Rounds of one measurement. Even on a busy host about one in eight is not delayed. Eight rounds
/// take about a millisecond if a message takes 50 µs, which is negligible every half minute.
pub(crate) const ROUNDS: usize = 8;

/// Time from the first measurement to the second. The drift is unknown until then: 100 ppm cause an
/// error of 0.1 ms in one second.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between measurements; the interval doubles until then. A drift error of 1 ppm adds
/// 30 µs in this time, about as much as the error of one round trip.
const INTERVAL: Duration = Duration::from_secs(30);

/// Measurements that the drift is computed from. They cover eight minutes, in which the temperature
/// of a machine, and so the drift, changes little.
const HISTORY: usize = 16;

/// Largest drift between two clocks, parts per billion. Linux adjusts one clock by at most 500 ppm.
const DRIFT_MAX_PPB: i64 = 1_000_000;

/// Largest change of the drift until the next measurement, parts per billion. The frequency of
/// quartz depends on its temperature.
const WANDER_PPB: u64 = 1_000;

/// Relation of a rank's clock to rank 0's: `reference = own + offset + drift · (own − at)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// Reading of this rank's clock when `offset_ns` was measured.
    pub at: Nanos,
    /// Nanoseconds to add to this rank's clock.
    pub offset_ns: i64,
    /// Bound on the error of `offset_ns`, nanoseconds: half the round trip of the best measurement.
    pub error_ns: u64,
    /// Growth of the offset, nanoseconds per second (parts per billion); 0 while its sign is
    /// unknown.
    pub drift_ppb: i64,
    /// Bound on the error of `drift_ppb`.
    pub drift_error_ppb: u64,
}

impl Alignment {
    /// Converts a time of this rank's clock to rank 0's; zero for times before rank 0's clock
    /// began.
    pub fn to_reference(self, own: Nanos) -> Nanos {
        let since = i128::from(own.0) - i128::from(self.at.0);
        nanos(i128::from(own.0) + i128::from(self.offset_ns) + part(since, self.drift_ppb))
    }

    /// Converts a time of rank 0's clock to this rank's.
    pub fn to_own(self, reference: Nanos) -> Nanos {
        let own = i128::from(reference.0) - i128::from(self.offset_ns);
        if self.drift_ppb == 0 {
            return nanos(own);
        }
        let since = own - i128::from(self.at.0); // on rank 0's clock
        nanos(i128::from(self.at.0) + since * BILLION / (BILLION + i128::from(self.drift_ppb)))
    }

    /// Bound on the error of a time that was converted from this rank's `own`, if the drift has
    /// stayed as measured.
    pub fn error_at(&self, own: Nanos) -> Duration {
        let since = u128::from(own.0.abs_diff(self.at.0));
        let drifted = (since * u128::from(self.drift_error_ppb)).div_ceil(BILLION as u128);
        Duration::from_nanos(
            self.error_ns
                .saturating_add(u64::try_from(drifted).unwrap_or(u64::MAX)),
        )
    }
}

const BILLION: i128 = 1_000_000_000;

/// Returns `ppb` billionths of `time`. A drift of 0 skips the division: a cycle converts many
/// times.
fn part(time: i128, ppb: i64) -> i128 {
    if ppb == 0 {
        0
    } else {
        time * i128::from(ppb) / BILLION
    }
}

fn nanos(time: i128) -> Nanos {
    Nanos(u64::try_from(time.max(0)).unwrap_or(u64::MAX))
}

/// Readings of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// This rank's clock before rank 0 read its own.
    pub(crate) sent: Nanos,
    /// Rank 0's clock.
    pub(crate) stamp: Nanos,
    /// This rank's clock after that.
    pub(crate) received: Nanos,
}

/// Result of the best of several rounds.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    at: Nanos,
    offset_ns: i64,
    error_ns: u64,
}

impl Measurement {
    /// Measurement of one round; `None` if this rank's clock went back during the round.
    fn of(round: &Round) -> Option<Self> {
        let half_ns = round.received.0.checked_sub(round.sent.0)?.div_ceil(2);
        let at = Nanos(round.received.0 - half_ns);
        let offset_ns = i128::from(round.stamp.0) - i128::from(at.0);
        // The stamp was up to half a round trip away from `at`; meanwhile the offset may have
        // drifted.
        let drifted_ns = (half_ns / (BILLION as u64 / DRIFT_MAX_PPB as u64)).saturating_add(1);
        Some(Self {
            at,
            offset_ns: i64::try_from(offset_ns).ok()?,
            error_ns: half_ns.saturating_add(drifted_ns),
        })
    }

    /// Smallest and largest drift from `earlier` to this measurement that both allow, parts per
    /// billion.
    fn slopes(&self, earlier: &Self) -> (i64, i64) {
        let time = i128::from(self.at.0.saturating_sub(earlier.at.0)).max(1);
        let grown = i128::from(self.offset_ns) - i128::from(earlier.offset_ns);
        let open = i128::from(self.error_ns) + i128::from(earlier.error_ns);
        let ppb = |change: i128| (change * BILLION).div_euclid(time);
        let clamp = |ppb: i128| ppb.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        (clamp(ppb(grown - open)), clamp(ppb(grown + open) + 1))
    }
}

/// Computes an [`Alignment`] from successive measurements.
#[derive(Debug, Default)]
pub(crate) struct Estimator {
    /// Oldest first; at most [`HISTORY`].
    measurements: VecDeque<Measurement>,
}

impl Estimator {
    /// Adds the rounds of one measurement; `None` if no round is usable.
    pub(crate) fn measured(&mut self, rounds: &[Round]) -> Option<Alignment> {
        let measurements = rounds.iter().filter_map(Measurement::of);
        let newest = measurements.min_by_key(|measurement| measurement.error_ns)?;
        let (mut low, mut high) = (-DRIFT_MAX_PPB, DRIFT_MAX_PPB);
        let mut fitting = 0;
        for earlier in self.measurements.iter().rev() {
            let (least, most) = newest.slopes(earlier);
            if low.max(least) > high.min(most) {
                break;
            }
            (low, high) = (low.max(least), high.min(most));
            fitting += 1;
        }
        let outdated = self.measurements.len() - fitting;
        self.measurements.drain(..outdated);
        if self.measurements.len() == HISTORY {
            self.measurements.pop_front();
        }
        self.measurements.push_back(newest);
        let is_known = low > 0 || high < 0;
        let (drift_ppb, off) = if is_known {
            (low + (high - low) / 2, (high - low + 1) / 2)
        } else {
            (0, low.abs().max(high.abs()))
        };
        Some(Alignment {
            at: newest.at,
            offset_ns: newest.offset_ns,
            error_ns: newest.error_ns,
            drift_ppb,
            drift_error_ppb: off.unsigned_abs() + WANDER_PPB,
        })
    }
}

/// Times at which rank 0 starts a measurement: in the first cycle, soon again, then every
/// [`INTERVAL`] if there is a cycle.
#[derive(Debug)]
pub(crate) struct Schedule {
    next: Nanos,
    interval: Duration,
}

impl Schedule {
    pub(crate) fn new() -> Self {
        Self {
            next: Nanos(0),
            interval: FIRST_INTERVAL,
        }
    }

    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Records that a measurement ended at `now`.
    pub(crate) fn done(&mut self, now: Nanos) {
        self.next = now + self.interval;
        self.interval = (2 * self.interval).min(INTERVAL);
    }
}

#[cfg(test)]
mod tests;
