//! One window of steps under one setting: what is discarded, what is a stall, and where the
//! start-up ends.

use crate::center::{MAD_TO_SD, huber_center, median};

/// A step longer than this many running medians is a stall (a checkpoint, validation, the machine),
/// not a measurement.
pub(crate) const STALL_FACTOR: f64 = 5.0;
/// Steps of the running median, the latest ones.
const RUNNING_STEPS: usize = 100;
/// After this many stalls in a row they are the new level, and the window starts again with it.
const STALL_RUN_MAX: u32 = 5;
/// Steps that must agree with the end of the sample for the start-up to be over.
const SETTLED_STEPS: usize = 3;
/// Steps, each faster than the one before, that show by themselves that it is not: of equal ones
/// one run in 120 looks so.
const FALLING_STEPS: usize = 5;
/// A step's excess over the later level, in log step time, that is start-up and not noise: at least
/// this, at least three spreads.
const STARTUP_EXCESS_MIN: f64 = 0.10;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Too soon after a change of setting.
    Discarded,
    /// Longer than any step should be.
    Stalled,
    /// Measured.
    Counted,
}

/// A window under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Whether the next step is discarded.
    pub(crate) discards: bool,
    /// Log step time that is known of this setting from before.
    known: Option<f64>,
    /// ln(step time in ms) of the steps that count.
    pub(crate) log_times: Vec<f64>,
    stalls_in_a_row: u32,
}

impl Window {
    /// A window that may discard its first step, at a setting whose centre may be `known`.
    pub(crate) fn new(discards: bool, known: Option<f64>) -> Self {
        Self {
            discards,
            known,
            ..Self::default()
        }
    }

    /// Takes the ln of the next step's time in ms.
    pub(crate) fn push(&mut self, log_time: f64) -> Fate {
        if std::mem::take(&mut self.discards) {
            return Fate::Discarded;
        }
        let running = if self.steps() < 2 {
            self.known
        } else {
            let first = self.steps().saturating_sub(RUNNING_STEPS);
            Some(median(&self.log_times[first..]))
        };
        if running.is_some_and(|running| log_time > running + STALL_FACTOR.ln()) {
            self.stalls_in_a_row += 1;
            if self.stalls_in_a_row < STALL_RUN_MAX {
                return Fate::Stalled;
            }
            self.log_times.clear();
            self.known = None;
        }
        self.stalls_in_a_row = 0;
        self.log_times.push(log_time);
        Fate::Counted
    }

    /// Steps counted so far.
    pub(crate) fn steps(&self) -> usize {
        self.log_times.len()
    }

    /// The Huber centre so far, if a step counted.
    pub(crate) fn center(&self) -> Option<f64> {
        (!self.log_times.is_empty()).then(|| huber_center(&self.log_times))
    }

    /// How many leading steps are start-up: the fewest after which [`SETTLED_STEPS`] steps in a row
    /// have a median at the level of the last half of the window. All but the last while the steps
    /// still get faster and faster.
    pub(crate) fn startup_steps(&self, steps: usize) -> usize {
        let count = self.log_times.len();
        let latest = &self.log_times[count.saturating_sub(FALLING_STEPS)..];
        let is_falling = latest.len() == FALLING_STEPS && latest.is_sorted_by(|a, b| a > b);
        if is_falling && latest[0] - latest[FALLING_STEPS - 1] > STARTUP_EXCESS_MIN {
            return count - 1;
        }
        let tail = &self.log_times[count - count.min(steps.div_ceil(2).max(SETTLED_STEPS))..];
        let level = median(tail);
        let deviations: Vec<f64> = tail.iter().map(|l| (l - level).abs()).collect();
        let excess = STARTUP_EXCESS_MIN.max(3.0 * MAD_TO_SD * median(&deviations));
        // The first step of the settled run has to be settled itself, or a slow first step would
        // pass with two good ones.
        let settled = |run: &[f64]| run[0] - level <= excess && median(run) - level <= excess;
        let first = self.log_times.windows(SETTLED_STEPS).position(settled);
        first.unwrap_or(count).min(count.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(times: &[f64]) -> Window {
        Window {
            log_times: times.iter().map(|t| t.ln()).collect(),
            ..Window::default()
        }
    }

    #[test]
    fn discards_then_counts_and_leaves_stalls_out() {
        let mut window = Window::new(true, None);
        let fates: Vec<Fate> = [900.0, 10.0, 11.0, 10.0, 51.0, 10.0]
            .iter()
            .map(|t: &f64| window.push(t.ln()))
            .collect();
        use Fate::{Counted, Discarded, Stalled};
        assert_eq!(
            fates,
            [Discarded, Counted, Counted, Counted, Stalled, Counted]
        );
        assert_eq!(window.steps(), 4);
        let mut known = Window::new(false, Some(10f64.ln()));
        assert_eq!(known.push(60f64.ln()), Stalled);
    }

    #[test]
    fn five_stalls_are_a_new_level() {
        let mut window = filled(&[10.0; 6]);
        (0..4).for_each(|_| assert_eq!(window.push(100f64.ln()), Fate::Stalled));
        assert_eq!(window.push(100f64.ln()), Fate::Counted);
        assert_eq!(window.log_times, [100f64.ln()]);
    }

    #[test]
    fn startup_ends_where_the_level_is_reached() {
        let mut times = vec![400.0, 200.0, 150.0];
        times.extend([
            100.0, 102.0, 99.0, 101.0, 100.0, 98.0, 103.0, 100.0, 101.0, 99.0,
        ]);
        assert_eq!(filled(&times).startup_steps(10), 3);
        assert_eq!(filled(&times[3..]).startup_steps(10), 0);
        // One spike in the middle is no start-up.
        times[6] = 150.0;
        assert_eq!(filled(&times[3..]).startup_steps(10), 0);
        let falling = [100.0, 80.0, 65.0, 52.0, 42.0];
        assert_eq!(filled(&falling).startup_steps(5), 4);
        assert_eq!(
            filled(&falling.map(|t| 100.0 + t / 20.0)).startup_steps(5),
            0,
            "by 3 %"
        );
    }
}
