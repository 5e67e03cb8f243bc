//! Ensemble of jobs that may be the traced one: workloads and costs drawn around a fit.
//!
//! The mean of their predictions is the mean of the tuner's prior, their differences are its
//! covariance (`results/tuner/README.md` has the evidence).
//!
//! A single model would stop the search early at a wrong answer; the spread of an ensemble shows
//! where predictions are uncertain. The costs are drawn within the uncertainty of the fit plus a
//! systematic share that no trace shows. Costs that the reference setting does not exercise are
//! drawn with a much larger spread. Effects that a trace does not show at all are drawn too:
//! polling, communication that slows the computation, copies of large buffers, and the algorithm of
//! an allreduce (ring or tree). Each draw is weighted by the step times measured so far, and the
//! draws with the largest weights are kept.

use super::{Costs, Fit, Setting, Simulator};

mod draw;

/// Number of jobs that are drawn, and number of those that are kept.
const DRAWS: usize = 512;
const KEPT: usize = 24;
/// Standard deviation between a correct model and measured step times, in ln: of differences
/// between settings, and of the level.
const DIFFERENCE_SD: f64 = 0.02;
const LEVEL_SD: f64 = 0.10;
/// Maximum slow-down relative to the reference, in ln: the exact height of a cliff contains no
/// useful information.
const SLOWER_MOST: f64 = 1.5;

/// Jobs drawn around a fit.
#[derive(Clone, Debug)]
pub struct Ensemble {
    fit: Fit,
    seed: u64,
}

/// Step time measured at a setting.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredSetting {
    /// The setting.
    pub setting: Setting,
    /// Natural logarithm of the step time in milliseconds.
    pub log_time: f64,
    /// Variance of `log_time`.
    pub variance: f64,
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
    weight: f64,
}

impl Ensemble {
    /// Creates an ensemble around `fit`, drawn with `seed`.
    pub fn new(fit: Fit, seed: u64) -> Self {
        Self { fit, seed }
    }

    /// Returns the costs of job number `index`, and the factor of its ready times.
    pub(super) fn job(&self, index: usize) -> (Costs, f64) {
        let Member { costs, stretch, .. } = self.draw(index);
        (costs, stretch)
    }

    /// Draws jobs, weighted by the measurements; keeps those with the largest weights, which sum to
    /// 1.
    fn members(&self, simulator: &mut Simulator, measured: &[MeasuredSetting]) -> Vec<Member> {
        let mut members: Vec<Member> = (0..DRAWS).map(|index| self.draw(index)).collect();
        for member in &mut members {
            member.weight = self.log_likelihood(member, simulator, measured);
        }
        let top = members
            .iter()
            .map(|member| member.weight)
            .fold(f64::NEG_INFINITY, f64::max);
        for member in &mut members {
            member.weight = (member.weight - top).exp();
        }
        // A stable sort: among equals, the earlier draw comes first.
        members.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        members.truncate(KEPT);
        let sum: f64 = members.iter().map(|member| member.weight).sum();
        members.iter_mut().for_each(|member| member.weight /= sum);
        members
    }

    /// Returns the expected slow-downs at `settings`, given the step times `measured`. The first of
    /// these is the reference (the fit's own if `measured` is empty), at which the mean and every
    /// feature are zero. `None` if a prediction is not finite.
    pub fn slowdowns(
        &self,
        settings: &[Setting],
        measured: &[MeasuredSetting],
    ) -> Option<Slowdowns> {
        let mut simulator = Simulator::new(&self.fit.workload, self.fit.rules);
        let members = self.members(&mut simulator, measured);
        let reference = measured
            .first()
            .map_or(self.fit.reference, |first| first.setting);
        let mut slower = vec![Vec::with_capacity(members.len()); settings.len()];
        for member in &members {
            let mut log_step = |setting: &Setting| {
                simulator
                    .stretched_step_us(&member.costs, setting, member.stretch)
                    .ln()
            };
            let level = log_step(&reference);
            for (slower, setting) in slower.iter_mut().zip(settings) {
                slower.push((log_step(setting) - level).min(SLOWER_MOST));
            }
        }
        let squares: f64 = members.iter().map(|member| square(member.weight)).sum();
        let unbiased = 1.0 / (1.0 - squares).max(1.0 / KEPT as f64);
        let mut expected = Slowdowns::default();
        for slower in slower {
            let mean: f64 = slower
                .iter()
                .zip(&members)
                .map(|(slower, member)| slower * member.weight)
                .sum();
            let feature = |(slower, member): (&f64, &Member)| {
                (slower - mean) * (member.weight * unbiased).sqrt()
            };
            expected
                .features
                .push(slower.iter().zip(&members).map(feature).collect());
            expected.mean.push(mean);
        }
        expected
            .mean
            .iter()
            .all(|mean| mean.is_finite())
            .then_some(expected)
    }

    fn log_likelihood(
        &self,
        member: &Member,
        simulator: &mut Simulator,
        measured: &[MeasuredSetting],
    ) -> f64 {
        let Some(reference) = measured.first() else {
            return 0.0;
        };
        let mut log_step = |setting: &Setting| {
            // The tuner uses milliseconds.
            (simulator.stretched_step_us(&member.costs, setting, member.stretch) / 1e3).ln()
        };
        let level = log_step(&reference.setting);
        let mut sum = square((level - reference.log_time) / LEVEL_SD);
        for estimate in &measured[1..] {
            let difference = (log_step(&estimate.setting) - level).min(SLOWER_MOST);
            let seen = (estimate.log_time - reference.log_time).min(SLOWER_MOST);
            let variance = estimate.variance + reference.variance + DIFFERENCE_SD * DIFFERENCE_SD;
            sum += (square(difference - seen) / variance).min(square(LIMIT));
        }
        if sum.is_finite() {
            -0.5 * sum
        } else {
            f64::NEG_INFINITY
        }
    }
}

/// A measurement is limited to this many standard deviations, since the measurement itself may be
/// wrong.
const LIMIT: f64 = 5.0;

fn square(x: f64) -> f64 {
    x * x
}

#[cfg(test)]
mod tests;
