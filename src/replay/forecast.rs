//! What steps are expected to take, with how sure that is: for settings, rules, networks and numbers of ranks.
//!
//! Jobs are drawn around the fit ([`Ensemble`]), each is moved to where the job is to run ([`Target`]) with what is unsure
//! about that drawn too, and scaled by what the same job, at home, misses the measured step by. So at home, under the setting
//! that was recorded, all agree with what was measured, and the farther away the less they agree.

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use super::network::{Algorithm, Measured, ProjectError, Target};
use super::{Ensemble, Fit, Rules, Setting, Simulator};

/// Jobs that are drawn.
const JOBS: usize = 24;
/// Of them, beyond each end of the interval: a tenth.
const BEYOND: usize = 2;
/// One seed for all: the same recording always yields the same numbers.
const SEED: u64 = 7;

/// Predicts steps.
#[derive(Clone, Debug)]
pub struct Forecast {
    jobs: Vec<Job>,
}

/// A predicted step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Mean over the jobs, µs.
    pub step_us: f64,
    /// 10th percentile.
    pub low_us: f64,
    /// 90th percentile.
    pub high_us: f64,
}

/// A ratio of two step times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Mean over the jobs.
    pub mean: f64,
    /// 10th percentile.
    pub low: f64,
    /// 90th percentile.
    pub high: f64,
}

#[derive(Clone, Debug)]
struct Job {
    simulator: Simulator,
    costs: super::Costs,
    stretch: f64,
    scale: f64,
}

impl Forecast {
    /// Of the job of `fit`, at `target`, with cycles by `rules`.
    ///
    /// # Errors
    /// [`ProjectError`] where the target needs a link that was neither measured nor named.
    pub fn new(fit: &Fit, target: &Target, rules: Rules) -> Result<Self, ProjectError> {
        let reference = fit.reference;
        let ensemble = Ensemble::new(fit.clone(), SEED, Arc::new(move |_| reference));
        let mut home = Simulator::new(&fit.workload, fit.rules);
        let jobs = (0..JOBS).map(|index| {
            let (costs, stretch) = ensemble.job(index);
            let at_home = home.stretched_step_us(&costs, &fit.reference, stretch);
            let scale = Some(fit.measured_us / at_home).filter(|scale| scale.is_finite() && *scale > 0.0);
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
                let score = Normal::standard().inverse_cdf(dice.random::<f64>().clamp(1e-9, 1.0 - 1e-9));
                (sd * score).exp()
            };
            let (alpha, beta, negotiation) =
                (factor(wider.alpha), factor(wider.beta), factor(wider.negotiation));
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
        })
    }

    /// What a step is expected to take under `setting`.
    pub fn predict(&mut self, setting: &Setting) -> Prediction {
        let [step_us, low_us, high_us] = summary(self.steps_us(setting));
        Prediction {
            step_us,
            low_us,
            high_us,
        }
    }

    /// How `setting` compares with `other`, as the ratio of step times: the jobs are the same for both, so that what they have in
    /// common does not blur it.
    pub fn ratio(&mut self, setting: &Setting, other: &Setting) -> Ratio {
        let (own, others) = (self.steps_us(setting), self.steps_us(other));
        let ratios = own.iter().zip(&others).map(|(own, other)| own / other);
        let [mean, low, high] = summary(ratios.collect());
        Ratio { mean, low, high }
    }

    /// What a step takes under `setting` in each of the jobs, always in the same order, µs.
    pub fn steps_us(&mut self, setting: &Setting) -> Vec<f64> {
        let jobs = self.jobs.iter_mut();
        jobs.map(|job| job.scale * job.step_us(setting)).collect()
    }
}

/// Mean, 10th and 90th percentile of a value of each job.
fn summary(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let mean = values.iter().map(|value| value / JOBS as f64).sum();
    [mean, values[BEYOND], values[JOBS - 1 - BEYOND]]
}

impl Job {
    fn step_us(&mut self, setting: &Setting) -> f64 {
        self.simulator
            .stretched_step_us(&self.costs, setting, self.stretch)
    }
}
