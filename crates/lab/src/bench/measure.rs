//! Repeated measurements of one job: a sweep calls them after each change of the settings.
//!
//! The ranks combine their step times every few steps, so all ranks make the same decision: to stop
//! early, because the step time is clearly above a bound, or because the time has elapsed.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::job::{Job, RunError, milliseconds};
use super::payload::{Extent, Runtime};
use ronde_job::percentile::percentile_of;

/// Maximum number of steps between two decisions.
const BATCH_STEPS_MOST: usize = 10;

/// Number of timed steps before the first decision: the first step after a change may be slow for
/// reasons other than the setting.
pub const STEPS_BEFORE_CUT: usize = 3;

/// Maximum number of timed steps of a measurement with a minimum duration, as a multiple of the
/// requested number.
const LENGTHENED_MOST: usize = 50;

/// Approximate time between two decisions, so that slow steps are checked more often than every ten
/// steps.
const BATCH_MS: f64 = 250.0;

/// Parameters of a measurement, equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Number of untimed steps, at least 1; the first one is checked in full.
    pub warmup_steps: usize,
    /// Number of timed steps; at least 1.
    pub steps: usize,
    /// Minimum duration of the timed steps, in ms: faster jobs run more steps, up to 50 times as
    /// many, since a dozen steps of half a millisecond are not a sufficient sample.
    pub at_least_ms: f64,
    /// The measurement ends early if three quarters of the steps took longer, in ms.
    pub stop_above_ms: Option<f64>,
}

/// Result of a measurement, equal on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesTimes {
    /// Time of each timed step on its slowest rank, in ms.
    pub step_ms: Vec<f64>,
    /// Reason for the end of the measurement.
    pub end: SeriesEnd,
}

/// Reason for the end of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesEnd {
    /// All steps were measured.
    Complete,
    /// The steps took too long: see [`Series::stop_above_ms`].
    Above,
    /// The time has elapsed.
    Time,
}

impl<R: Runtime> Job<'_, R> {
    /// Measures as `series` specifies; every rank calls it with the same value. `time` is the
    /// maximum duration: the shortest one of all ranks applies, and at least one batch of steps is
    /// timed. `alive` is called after each step.
    ///
    /// # Errors
    /// [`RunError`] when the runtime fails or a result is wrong.
    ///
    /// # Panics
    /// If the series has no warm-up or no timed step.
    pub fn measure(
        &mut self,
        series: &Series,
        time: Option<Duration>,
        mut alive: impl FnMut(),
    ) -> Result<SeriesTimes, RunError> {
        assert!(
            series.warmup_steps > 0 && series.steps > 0,
            "nothing to measure"
        );
        let began = Instant::now();
        for step in 0..series.warmup_steps {
            let extent = if step == 0 {
                Extent::Full
            } else {
                Extent::Sentinels
            };
            self.step(extent)?;
            alive();
        }
        let mut step_ms = Vec::with_capacity(series.steps);
        let mut end = SeriesEnd::Complete;
        while end == SeriesEnd::Complete {
            let count = batch_steps(&step_ms).min(steps_of(series, &step_ms) - step_ms.len());
            let mut own_ms = [0.0; BATCH_STEPS_MOST];
            for ms in &mut own_ms[..count] {
                *ms = milliseconds(self.step(Extent::Sentinels)?);
                alive();
            }
            let is_late = time.is_some_and(|time| began.elapsed() >= time);
            // The number of values is constant, so the runtime finds this tensor in its cache from
            // the second time on.
            let combined = self.slowest(
                "bench.series",
                own_ms
                    .into_iter()
                    .chain([f64::from(u8::from(is_late))])
                    .collect(),
            )?;
            step_ms.extend_from_slice(&combined[..count]);
            if step_ms.len() >= steps_of(series, &step_ms) {
                break;
            }
            if is_above(&step_ms, series.stop_above_ms) {
                end = SeriesEnd::Above;
            } else if combined[BATCH_STEPS_MOST] > 0.0 {
                end = SeriesEnd::Time;
            }
        }
        Ok(SeriesTimes { step_ms, end })
    }
}

/// Number of timed steps of the measurement, computed from values that all ranks have.
fn steps_of(series: &Series, step_ms: &[f64]) -> usize {
    // The mean, since its product with the number of steps is the elapsed time.
    let mean_ms = step_ms.iter().sum::<f64>() / step_ms.len() as f64;
    let needed = (series.at_least_ms / mean_ms).ceil();
    // Without steps the mean is NaN, and `needed` is 0 after the cast; if steps take no time, the
    // clamp limits the number.
    (needed as usize).clamp(series.steps, series.steps * LENGTHENED_MOST)
}

/// Number of steps until the next decision, computed from values that all ranks have.
fn batch_steps(step_ms: &[f64]) -> usize {
    let Some(ms) = percentile_of(step_ms.to_vec(), 0.5) else {
        return STEPS_BEFORE_CUT;
    };
    // A step time of 0 gives infinity, which the cast and the clamp convert to the maximum.
    ((BATCH_MS / ms) as usize).clamp(1, BATCH_STEPS_MOST)
}

fn is_above(step_ms: &[f64], bound_ms: Option<f64>) -> bool {
    let (Some(bound_ms), Some(quarter_ms)) = (bound_ms, percentile_of(step_ms.to_vec(), 0.25))
    else {
        return false;
    };
    step_ms.len() >= STEPS_BEFORE_CUT && quarter_ms > bound_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_last_a_quarter_of_a_second() {
        assert_eq!(batch_steps(&[]), 3);
        assert_eq!(batch_steps(&[50.0, 60.0, 40.0]), 5);
        assert_eq!(batch_steps(&[1.0; 3]), 10);
        assert_eq!(batch_steps(&[0.0; 3]), 10);
        assert_eq!(batch_steps(&[2000.0; 3]), 1);
    }

    #[test]
    fn short_steps_are_as_many_as_fill_the_time() {
        let steps = |at_least_ms, step_ms: &[f64]| {
            let series = Series {
                warmup_steps: 1,
                steps: 20,
                at_least_ms,
                stop_above_ms: None,
            };
            steps_of(&series, step_ms)
        };
        assert_eq!(steps(0.0, &[0.5]), 20);
        assert_eq!(steps(250.0, &[]), 20);
        assert_eq!(steps(250.0, &[1.5, 2.5]), 125);
        assert_eq!(steps(250.0, &[40.0; 20]), 20);
        assert_eq!(steps(250.0, &[0.1]), 1000);
        assert_eq!(steps(250.0, &[0.0]), 1000);
    }

    #[test]
    fn only_what_is_clearly_above_is_stopped() {
        assert!(is_above(&[11.0, 12.0, 13.0], Some(10.0)));
        assert!(!is_above(&[11.0, 12.0], Some(10.0)), "too early to tell");
        assert!(!is_above(&[11.0, 12.0, 13.0], None));
        // A quarter is below the bound at 9: three fast steps of nine are not an accident.
        assert!(!is_above(
            &[9.0, 9.0, 9.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0],
            Some(10.0)
        ));
        // One fast step of five may be an accident.
        assert!(is_above(&[9.0, 50.0, 50.0, 50.0, 50.0], Some(10.0)));
    }
}
