//! Forecast of step times with intervals, for settings, rules, networks and numbers of ranks.
//!
//! Jobs are drawn around the fit ([`Ensemble`]). Each is projected to the target ([`Target`]), with
//! the uncertainty of the projection drawn too, and scaled by the ratio of the measured step time
//! to the simulated one of the same job on the measured topology. So under the recorded setting on
//! the measured topology all jobs agree with the measurement; their spread grows with the distance
//! from it.
//!
//! The measurement has an error too: it is common to all predictions ([`Fit::level_error`]), so
//! every interval includes it, and ratios of two predictions do not.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use super::network::{Algorithm, Measured, ProjectError, Target};
use super::{Ensemble, Fit, Rules, Setting, Simulator};
use crate::percentile::percentile_of;

/// Number of drawn jobs, and number of equally likely levels of each.
const JOBS: usize = 24;
const LEVELS: usize = 24;
/// One in this many values lies beyond each end of the interval: a tenth.
const BEYOND: usize = 10;
/// Error for each factor of e in the number of ranks, as a share, and its maximum.
const ERROR_PER_RANKS: f64 = 0.055;
const RANKS_ERROR_MOST: f64 = 0.2;
/// Fixed seed: the same recording always gives the same numbers.
const SEED: u64 = 7;

/// Predicts step times.
#[derive(Clone, Debug)]
pub struct Forecast {
    jobs: Vec<Job>,
    /// Factors with mean 1.
    levels: [f64; LEVELS],
}

/// Predicted step time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Mean over the jobs, µs.
    pub step_us: f64,
    /// 10th percentile over the jobs and over the error of the recorded step time, µs.
    pub low_us: f64,
    /// 90th percentile over the jobs and over the error of the recorded step time, µs.
    pub high_us: f64,
}

/// Ratio of two step times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median over the jobs; the mean may lie outside of both percentiles if a few jobs gain much.
    pub median: f64,
    /// 10th percentile.
    pub low: f64,
    /// 90th percentile.
    pub high: f64,
}

impl Ratio {
    /// Compares step times of the same jobs ([`Forecast::steps_us`]): `own` and `others`.
    pub fn of(own: &[f64], others: &[f64]) -> Self {
        let ratios = own.iter().zip(others).map(|(own, other)| own / other);
        let ratios: Vec<f64> = ratios.collect();
        let median = percentile_of(ratios.clone(), 0.5).unwrap_or(f64::NAN);
        let [low, high] = interval(ratios);
        Self { median, low, high }
    }
}

#[derive(Clone, Debug)]
struct Job {
    simulator: Simulator,
    costs: super::Costs,
    stretch: f64,
    scale: f64,
}

impl Forecast {
    /// Creates a forecast for the job of `fit`, at `target`, with cycles by `rules`.
    ///
    /// # Errors
    /// [`ProjectError`] if the target needs a link that was neither measured nor named.
    pub fn new(fit: &Fit, target: &Target, rules: Rules) -> Result<Self, ProjectError> {
        let ensemble = Ensemble::new(fit.clone(), SEED);
        let mut home = Simulator::new(&fit.workload, fit.rules);
        let jobs = (0..JOBS).map(|index| {
            let (costs, stretch) = ensemble.job(index);
            let at_home = home.stretched_step_us(&costs, &fit.reference, stretch);
            let scale =
                Some(fit.measured_us / at_home).filter(|scale| scale.is_finite() && *scale > 0.0);
            let mut dice = Xoshiro256PlusPlus::seed_from_u64(SEED ^ (index as u64) << 32);
            let measured = Measured {
                place: fit.place,
                algorithm: if dice.random() {
                    Algorithm::Ring
                } else {
                    Algorithm::Tree
                },
                launch: dice.random(),
            };
            let there = target.project(&measured, &fit.workload, &costs)?;
            let wider = target.widening(&fit.place);
            let mut factor = |sd: f64| {
                let score =
                    Normal::standard().inverse_cdf(dice.random::<f64>().clamp(1e-9, 1.0 - 1e-9));
                (sd * score).exp()
            };
            let (alpha, beta, negotiation) = (
                factor(wider.alpha),
                factor(wider.beta),
                factor(wider.negotiation),
            );
            let mut costs = there.costs;
            for collective in costs.flat.iter_mut().chain(&mut costs.hierarchical) {
                collective.alpha_us *= alpha;
                collective.us_per_byte *= beta;
            }
            costs.cached.base_us *= negotiation;
            costs.uncached.base_us *= negotiation;
            Ok(Job {
                simulator: Simulator::new(&there.workload, rules),
                costs,
                stretch,
                scale: scale.unwrap_or(1.0),
            })
        });
        Ok(Self {
            jobs: jobs.collect::<Result<_, _>>()?,
            levels: levels(fit.level_error().hypot(ranks_error(fit, target))),
        })
    }

    /// Predicts the step time under `setting`.
    pub fn predict(&mut self, setting: &Setting) -> Prediction {
        let steps_us = self.steps_us(setting);
        let all = steps_us
            .iter()
            .flat_map(|step_us| self.levels.map(|level| step_us * level));
        let [low_us, high_us] = interval(all.collect());
        Prediction {
            step_us: mean(&steps_us),
            low_us,
            high_us,
        }
    }

    /// Predicts the ratio of the step times of `setting` and `other`. The jobs are the same for
    /// both, so their common errors cancel.
    pub fn ratio(&mut self, setting: &Setting, other: &Setting) -> Ratio {
        Ratio::of(&self.steps_us(setting), &self.steps_us(other))
    }

    /// Returns the step time under `setting` in each of the jobs, always in the same order, µs,
    /// without the common error.
    pub fn steps_us(&mut self, setting: &Setting) -> Vec<f64> {
        let jobs = self.jobs.iter_mut();
        jobs.map(|job| job.scale * job.step_us(setting)).collect()
    }
}

/// Error common to all predictions for another number of ranks: a standard deviation as a share.
/// Collective, negotiation and the delay of the last rank are projected; computation may change
/// with the number of ranks too. The value comes from one pair of runs (`docs/REPLAY.md`).
fn ranks_error(fit: &Fit, target: &Target) -> f64 {
    let (here, there) = (
        f64::from(fit.place.ranks.max(1)),
        f64::from(target.topology.ranks.max(1)),
    );
    (ERROR_PER_RANKS * (there / here).ln().abs()).min(RANKS_ERROR_MOST)
}

/// Equally likely factors, normal about 1 with this standard deviation.
fn levels(error: f64) -> [f64; LEVELS] {
    let normal = Normal::standard();
    std::array::from_fn(|index| {
        let share = (index as f64 + 0.5) / LEVELS as f64;
        1.0 + error * normal.inverse_cdf(share)
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().map(|value| value / values.len() as f64).sum()
}

/// 10th and 90th percentile.
fn interval(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_unstable_by(f64::total_cmp);
    let beyond = values.len() / BEYOND;
    [values[beyond], values[values.len() - 1 - beyond]]
}

impl Job {
    fn step_us(&mut self, setting: &Setting) -> f64 {
        self.simulator
            .stretched_step_us(&self.costs, setting, self.stretch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::Topology;
    use super::super::profile::Profile;
    use super::*;

    /// Two tensors of 1 MB, ready together after 10 ms; a message takes 1 ms + 1 ms per MB, a cycle
    /// 100 µs.
    const PROFILE: &str = r#"{"ronde_profile": 1, "np": 2, "step_ms": 20.0, "fusion_threshold_bytes": 0, "tensors": [
        {"name": "a", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "b", "dtype": "float32", "elements": 250000, "ready_us": 10000}],
        "costs": {"alpha_us": 1000, "us_per_mib": 1048.576, "negotiate_cached": 100}}"#;

    #[test]
    fn intervals_for_other_numbers_of_ranks_contain_the_measured_pair() {
        let text = PROFILE.replace("\"np\": 2", "\"np\": 4");
        let (fit, _) = Profile::parse(text.as_bytes()).unwrap().fit().unwrap();
        let target = |ranks| Target {
            topology: Topology::new(ranks, ranks),
            ..Target::same(&fit.place)
        };
        // Real runs on 4 and 12 ranks: 1,978 ms predicted, 1,858 ms measured.
        let mut forecast = Forecast::new(&fit, &target(12), fit.rules).unwrap();
        let at_12 = forecast.predict(&fit.reference);
        assert!(
            at_12.low_us < at_12.step_us * 1_858.0 / 1_978.0,
            "{at_12:?}"
        );
        // Proportional to the logarithm, in both directions, and bounded.
        let error = |ranks| ranks_error(&fit, &target(ranks));
        assert_eq!(error(4), 0.0);
        assert!((error(12) - 0.055 * 3f64.ln()).abs() < 1e-12);
        assert!((error(16) - error(1)).abs() < 1e-12);
        assert_eq!(error(100_000), RANKS_ERROR_MOST);
    }

    #[test]
    fn at_the_recorded_setting_a_prediction_is_as_sure_as_the_recording() {
        let (mut fit, _) = Profile::parse(PROFILE.as_bytes()).unwrap().fit().unwrap();
        fit.measured_error = 0.04;
        let mut forecast = Forecast::new(&fit, &Target::same(&fit.place), fit.rules).unwrap();
        let now = forecast.predict(&fit.reference);
        // Φ⁻¹(2.5 / 24) = −1.2576: 20 ms · (1 ∓ 1.2576 · 0.04).
        assert!((now.step_us - 20_000.0).abs() < 1e-6, "{now:?}");
        assert!(
            (now.low_us - 18_994.0).abs() < 1.0 && (now.high_us - 21_006.0).abs() < 1.0,
            "{now:?}"
        );

        // On another network this adds to the spread of the jobs; a ratio is not affected.
        let fused = Setting {
            fusion_threshold_bytes: 1 << 26,
            ..fit.reference
        };
        let (then, ratio) = (
            forecast.predict(&fused),
            forecast.ratio(&fused, &fit.reference),
        );
        fit.measured_error = 0.0;
        let mut exact = Forecast::new(&fit, &Target::same(&fit.place), fit.rules).unwrap();
        let (sure, same) = (exact.predict(&fused), exact.ratio(&fused, &fit.reference));
        assert!(
            (then.step_us / sure.step_us - 1.0).abs() < 1e-9 && sure.step_us < 19_500.0,
            "{sure:?}"
        );
        assert!(
            then.low_us < sure.low_us && then.high_us > sure.high_us,
            "{then:?} {sure:?}"
        );
        assert_eq!(ratio, same);
        assert!(ratio.low < ratio.high && ratio.high < 1.0, "{ratio:?}");
        let point = exact.predict(&fit.reference);
        assert!(
            (point.high_us / point.low_us - 1.0).abs() < 1e-9,
            "{point:?}"
        );
    }
}
