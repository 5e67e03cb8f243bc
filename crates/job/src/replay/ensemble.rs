//! Ensemble of jobs that may be the traced one: workloads and costs drawn around a fit.
//!
//! The mean of their predictions is the mean of the tuner's prior, their differences are its
//! covariance (`results/tuner/surfaces.md` has the evidence).
//!
//! A single model would stop the search early at a wrong answer; the spread of an ensemble shows
//! where predictions are uncertain. The costs are drawn within the uncertainty of the fit plus a
//! systematic share that no trace shows. Costs that the reference setting does not exercise are
//! drawn with a much larger spread. Effects that a trace does not show at all are drawn too:
//! polling, communication that slows the computation, copies of large buffers, and the algorithm of
//! an allreduce (ring or tree). Measured step times do not weight the draws: the tuner's Gaussian
//! process is conditioned on them, and they would count twice.
//!
//! Effects that no draw has are covered by discrepancy features: the error of ln(step time) is
//! linear in the exposed share of the step, in ln(batches per step) and in ln(bytes per batch),
//! with coefficients that are normal with mean 0.

use super::{Costs, Fit, Setting, Simulator};

mod draw;

/// Number of drawn jobs.
const JOBS: usize = 24;
/// Maximum slow-down relative to the reference, in ln: the exact height of a cliff contains no
/// useful information.
const SLOWER_MOST: f64 = 1.5;

/// Prior standard deviations of the coefficients of the discrepancy, in ln(step time): of the
/// exposed share, of ln(batches per step), and of ln(bytes per batch).
const DISCREPANCY_SD: [f64; 3] = [0.2, 0.02, 0.02];

/// Jobs drawn around a fit.
#[derive(Clone, Debug)]
pub struct Ensemble {
    fit: Fit,
    seed: u64,
}

/// Expected slow-down of settings relative to a reference: the first two moments of a Gaussian
/// process.
#[derive(Clone, Debug, Default)]
pub struct Slowdowns {
    /// Expected ln(step time / step time of the reference) of each setting.
    pub mean: Vec<f64>,
    /// Feature vector of each setting; the covariance of two settings is the dot product of their
    /// vectors.
    pub features: Vec<Vec<f64>>,
}

/// One drawn job.
#[derive(Clone, Debug)]
struct Member {
    costs: Costs,
    /// Factor of all ready times.
    stretch: f64,
}

impl Ensemble {
    /// Creates an ensemble around `fit`, drawn with `seed`.
    pub fn new(fit: Fit, seed: u64) -> Self {
        Self { fit, seed }
    }

    /// Returns the costs of job number `index`, and the factor of its ready times.
    pub(super) fn job(&self, index: usize) -> (Costs, f64) {
        let Member { costs, stretch } = self.draw(index);
        (costs, stretch)
    }

    /// Returns the expected slow-downs at `settings` relative to `reference`, at which the mean and
    /// every feature are zero. `None` if a prediction is not finite.
    pub fn slowdowns(&self, settings: &[Setting], reference: &Setting) -> Option<Slowdowns> {
        let mut simulator = Simulator::new(&self.fit.workload, self.fit.rules);
        let members: Vec<Member> = (0..JOBS).map(|index| self.draw(index)).collect();
        let mut forecast = |setting: &Setting| -> (Vec<f64>, [f64; 3]) {
            let mut quantities = [0.0; 3];
            let logs = members.iter().map(|member| {
                let Member { costs, stretch } = member;
                let seen = simulator.observed_step(costs, setting, *stretch);
                for (sum, quantity) in quantities.iter_mut().zip(seen.quantities()) {
                    *sum += quantity / JOBS as f64;
                }
                seen.step_us.ln()
            });
            (logs.collect(), quantities)
        };
        let (level, zero) = forecast(reference);
        let mut expected = Slowdowns::default();
        for setting in settings {
            let (mut slower, quantities) = forecast(setting);
            for (slower, level) in slower.iter_mut().zip(&level) {
                *slower = (*slower - level).min(SLOWER_MOST);
            }
            let mean = slower.iter().sum::<f64>() / JOBS as f64;
            let ensemble = slower
                .iter()
                .map(|slower| (slower - mean) / ((JOBS - 1) as f64).sqrt());
            let discrepancy = quantities.iter().zip(&zero).zip(DISCREPANCY_SD);
            let discrepancy = discrepancy.map(|((quantity, zero), sd)| sd * (quantity - zero));
            expected
                .features
                .push(ensemble.chain(discrepancy).collect());
            expected.mean.push(mean);
        }
        let is_finite = expected.mean.iter().all(|mean| mean.is_finite());
        is_finite.then_some(expected)
    }
}

#[cfg(test)]
mod tests;
