//! Clock alignment: estimates the offset of a rank's clock from rank 0's, from round trips of messages.
//!
//! A *round*: this rank reads its clock (`sent`), rank 0 reads its own some time after that (`stamp`), and this rank
//! reads its clock again when it knows the stamp (`received`). Whatever the delays of the messages,
//! the stamp was taken between the two readings; so rank 0's clock was ahead by
//! `stamp − (sent + received) / 2`, within half the round trip (Cristian, *Probabilistic clock
//! synchronization*, 1989). Of several rounds the quickest is the most precise.
//!
//! One measurement does not give the drift of the clocks; two do, within the error of both:
//!
//! ```text
//! offset │                      ┬ within error of the later one
//!        │            ________--┴
//!        │ ┬ ___------            the slopes of all lines through both bars
//!        │ ┴ within error of the earlier one
//!        └─────────────────────────── this rank's clock
//! ```
//!
//! Each of the earlier measurements bounds the slope to the newest; it lies where all these bounds overlap. If they do
//! not, the drift has changed or a clock was set: then only what fits the newest counts, from there backwards.

use std::collections::VecDeque;
use std::time::Duration;

use super::Nanos;

/// Rounds of one measurement. One in eight meets with nothing in its way even on a busy host, and eight take about a
/// millisecond where a message takes 50 µs: nothing, every half minute.
pub(crate) const ROUNDS: usize = 8;

/// From the first measurement to the second. Until then the drift is unknown, and 100 ppm make 0.1 ms of a second.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// Between measurements in the long run; the interval doubles until then. 1 ppm makes 30 µs of it, about what a round
/// trip leaves open anyway.
const INTERVAL: Duration = Duration::from_secs(30);

/// Measurements that the drift is taken from: eight minutes, in which a machine's temperature, and with it the drift, does
/// not change much.
const HISTORY: usize = 16;

/// What a clock may drift, parts per thousand million: Linux steers a clock by at most 500 ppm, and two are compared.
const DRIFT_MAX_PPB: i64 = 1_000_000;

/// By how much a drift may change until it is measured again: quartz does so with the temperature of its room.
const WANDER_PPB: u64 = 1_000;

/// How a rank's clock relates to that of rank 0: `reference = own + offset + drift · (own − at)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// This rank's clock when `offset_ns` was measured.
    pub at: Nanos,
    /// To be added to this rank's clock, nanoseconds.
    pub offset_ns: i64,
    /// Half the round trip of the best measurement, nanoseconds: `offset_ns` is not further off than this.
    pub error_ns: u64,
    /// How much the offset grows, nanoseconds a second (parts per thousand million); 0 while it may be either way.
    pub drift_ppb: i64,
    /// `drift_ppb` is not further off than this.
    pub drift_error_ppb: u64,
}

impl Alignment {
    /// What rank 0's clock shows when this rank's shows `own`; zero for times before rank 0's clock began.
    pub fn to_reference(self, own: Nanos) -> Nanos {
        let since = i128::from(own.0) - i128::from(self.at.0);
        nanos(i128::from(own.0) + i128::from(self.offset_ns) + part(since, self.drift_ppb))
    }

    /// What this rank's clock shows when rank 0's shows `reference`.
    pub fn to_own(self, reference: Nanos) -> Nanos {
        let own = i128::from(reference.0) - i128::from(self.offset_ns);
        if self.drift_ppb == 0 {
            return nanos(own);
        }
        let since = own - i128::from(self.at.0); // as the reference counts
        nanos(i128::from(self.at.0) + since * BILLION / (BILLION + i128::from(self.drift_ppb)))
    }

    /// How far off a time on rank 0's clock may be that was converted from this rank's `own`, if the drift has stayed as
    /// it was measured.
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

/// `ppb` thousand-millionths of `time`. No division where there is no drift: a cycle converts many times.
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

/// One round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// This rank's clock before rank 0 read its own.
    pub(crate) sent: Nanos,
    /// Rank 0's clock.
    pub(crate) stamp: Nanos,
    /// This rank's clock after that.
    pub(crate) received: Nanos,
}

/// What the best of some rounds says.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    at: Nanos,
    offset_ns: i64,
    error_ns: u64,
}

impl Measurement {
    /// That of a round; `None` if this rank's clock went back meanwhile.
    fn of(round: &Round) -> Option<Self> {
        let half_ns = round.received.0.checked_sub(round.sent.0)?.div_ceil(2);
        let at = Nanos(round.received.0 - half_ns);
        let offset_ns = i128::from(round.stamp.0) - i128::from(at.0);
        // The stamp was up to half a round trip away from `at`, and the offset then another by as much drift.
        let drifted_ns = (half_ns / (BILLION as u64 / DRIFT_MAX_PPB as u64)).saturating_add(1);
        Some(Self {
            at,
            offset_ns: i64::try_from(offset_ns).ok()?,
            error_ns: half_ns.saturating_add(drifted_ns),
        })
    }

    /// The least and the largest drift from `earlier` to this one that both allow, ppb.
    fn slopes(&self, earlier: &Self) -> (i64, i64) {
        let time = i128::from(self.at.0.saturating_sub(earlier.at.0)).max(1);
        let grown = i128::from(self.offset_ns) - i128::from(earlier.offset_ns);
        let open = i128::from(self.error_ns) + i128::from(earlier.error_ns);
        let ppb = |change: i128| (change * BILLION).div_euclid(time);
        let clamp = |ppb: i128| ppb.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        (clamp(ppb(grown - open)), clamp(ppb(grown + open) + 1))
    }
}

/// Makes an [`Alignment`] of measurements that come one after another.
#[derive(Debug, Default)]
pub(crate) struct Estimator {
    /// Oldest first; at most [`HISTORY`].
    measurements: VecDeque<Measurement>,
}

impl Estimator {
    /// Takes in a measurement's rounds; `None` if none of them says anything.
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

/// When rank 0 has the clocks compared: in the first cycle, soon again, then every [`INTERVAL`], if there is a cycle.
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

    /// The clocks were compared at `now`.
    pub(crate) fn done(&mut self, now: Nanos) {
        self.next = now + self.interval;
        self.interval = (2 * self.interval).min(INTERVAL);
    }
}

#[cfg(test)]
mod tests;
