//! Measurements at a setting: step times one by one, or observations that the caller has summed up.

use crate::center::{huber_center, median};
use crate::{Error, Point};

/// The least standard deviation that is believed of a value, as a fraction of it: a formula has
/// none at all.
const SPREAD_MIN: f64 = 1e-6;
/// Maximum: a value that may be wrong by a factor of e carries hardly any information.
const SPREAD_MAX: f64 = 1.0;

/// A measurement that the caller has summed up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The mean, median or other centre, in the caller's unit; lower is better, > 0.
    pub value: f64,
    /// Standard deviation of a single one of the measurements behind it, in the same unit; 0 if it
    /// is not known.
    pub spread: f64,
    /// Number of measurements behind it, ≥ 1.
    pub steps: u32,
}

impl Observation {
    /// Whether the tuner can use it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |field, value, expected| Error::Observation {
            field,
            value,
            expected,
        };
        if !(self.value.is_finite() && self.value > 0.0) {
            let expected = "a finite number > 0; leave a failed measurement out, and tell a large \
                value for a bad setting";
            return Err(wrong("value", self.value, expected));
        }
        if !(self.spread.is_finite() && self.spread >= 0.0) {
            let expected = "a finite number >= 0; 0 if it is not known";
            return Err(wrong("spread", self.spread, expected));
        }
        if self.steps == 0 {
            let expected = "at least 1; leave out what was not measured";
            return Err(wrong("steps", 0.0, expected));
        }
        Ok(())
    }

    /// ln(value), and the variance of that; `noise` is the relative standard deviation of a single
    /// measurement where the caller does not know it.
    fn log(&self, noise: f64) -> (f64, f64) {
        let spread = if self.spread > 0.0 {
            (self.spread / self.value).clamp(SPREAD_MIN, SPREAD_MAX)
        } else {
            noise
        };
        (self.value.ln(), spread * spread / f64::from(self.steps))
    }
}

/// A setting with the step time that was seen there: of a sample, of another run, or of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The setting.
    pub point: Point,
    /// Centre of ln(step time), up to a constant that all settings of the run share: the negative
    /// logarithm of a score will do.
    pub log_time: f64,
    /// Variance of that centre, 0 if it is not known.
    pub variance: f64,
}

/// Measurements at one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The setting.
    pub point: Point,
    /// ln(step time in ms), in the order of the steps; visits are appended to one another.
    pub log_times: Vec<f64>,
    /// Observations that the caller summed up.
    pub told: Vec<Observation>,
    /// Number of step times before each visit, each after another setting was in force.
    pub(crate) visits: Vec<usize>,
}

impl Sample {
    /// A setting at which nothing is measured yet.
    pub fn new(point: Point) -> Self {
        Self {
            point,
            log_times: Vec::new(),
            told: Vec::new(),
            visits: Vec::new(),
        }
    }

    /// Centre and number of steps of each visit.
    pub(crate) fn visit_centers(&self) -> Vec<(f64, usize)> {
        let ends = self.visits.iter().skip(1).copied();
        let ends = ends.chain([self.log_times.len()]);
        let visits = self.visits.iter().zip(ends);
        let visits = visits.map(|(&start, end)| &self.log_times[start..end]);
        visits
            .map(|steps| (huber_center(steps), steps.len()))
            .collect()
    }

    /// Measurements behind it.
    pub fn steps(&self) -> usize {
        self.log_times.len()
            + self
                .told
                .iter()
                .map(|told| told.steps as usize)
                .sum::<usize>()
    }

    /// The observations whose spread only their repetition can tell, as logarithms; each that rests
    /// on several measurements is moved as far from their median as a single one would lie.
    pub(crate) fn log_values_of_unknown_spread(&self) -> Vec<f64> {
        let unknown = || self.told.iter().filter(|told| told.spread == 0.0);
        let logs: Vec<f64> = unknown().map(|told| told.value.ln()).collect();
        let center = median(&logs);
        unknown()
            .map(|told| center + (told.value.ln() - center) * f64::from(told.steps).sqrt())
            .collect()
    }

    /// Centre and variance of the visits' centres and variances, and of what was told.
    pub(crate) fn pooled(
        &self,
        visits: impl Iterator<Item = (f64, f64)>,
        noise: f64,
    ) -> (f64, f64) {
        let (mut sum, mut precision) = (0.0, 0.0);
        for (center, variance) in self.told.iter().map(|told| told.log(noise)).chain(visits) {
            sum += center / variance;
            precision += 1.0 / variance;
        }
        (sum / precision, 1.0 / precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(told: &[(f64, f64, u32)]) -> Sample {
        let told = told.iter().map(|&(value, spread, steps)| Observation {
            value,
            spread,
            steps,
        });
        Sample {
            told: told.collect(),
            ..Sample::new(Point::new(&[0.0]))
        }
    }

    #[test]
    fn centres_are_weighed_by_hand() {
        // ln 1 = 0 with variance 0.1² / 1 and ln e = 1 with (0.1 e / e)² / 3: the second counts
        // three times.
        let e = std::f64::consts::E;
        let (center, variance) =
            sample(&[(1.0, 0.1, 1), (e, 0.1 * e, 3)]).pooled([].into_iter(), 9.0);
        assert!((center - 0.75).abs() < 1e-12 && (variance - 0.01 / 4.0).abs() < 1e-12);
        // Unknown spread: the noise given, 0.2² / 4; with step times of variance 0.01 at 2 both
        // count the same.
        let (center, variance) = sample(&[(1.0, 0.0, 4)]).pooled([(2.0, 0.01)].into_iter(), 0.2);
        assert!((center - 1.0).abs() < 1e-12 && (variance - 0.005).abs() < 1e-12);
    }

    #[test]
    fn visits_have_centres_of_their_own() {
        let mut sample = Sample::new(Point::new(&[0.0]));
        sample.log_times = vec![1.0, 1.0, 1.0, 2.0, 2.0];
        sample.visits = vec![0, 3];
        assert_eq!(sample.visit_centers(), [(1.0, 3), (2.0, 2)]);
    }

    #[test]
    fn repetition_tells_the_spread() {
        let e = std::f64::consts::E;
        let logs = sample(&[(1.0, 0.0, 1), (e, 0.0, 1), (e * e, 0.0, 4), (5.0, 0.1, 1)])
            .log_values_of_unknown_spread();
        // Median 1; the third rests on four measurements, a single one would lie twice as far away.
        assert!((logs[0] - 0.0).abs() < 1e-12 && (logs[2] - 3.0).abs() < 1e-12 && logs.len() == 3);
    }

    #[test]
    fn unusable_observations_are_named() {
        let message = |value, spread, steps| {
            Observation {
                value,
                spread,
                steps,
            }
            .check()
            .unwrap_err()
            .to_string()
        };
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                message(value, 0.0, 1)
                    .starts_with(&format!("an observation cannot have value = {value}"))
            );
        }
        assert!(message(1.0, -1.0, 1).contains("spread = -1"));
        assert!(message(1.0, f64::NAN, 1).contains("spread = NaN"));
        assert!(message(1.0, 0.0, 0).contains("steps = 0, expected at least 1"));
        let usable = Observation {
            value: 3.0,
            spread: 0.0,
            steps: 1,
        };
        assert_eq!(usable.check(), Ok(()));
    }
}
