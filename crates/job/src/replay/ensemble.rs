//! Jobs that might be the one that was traced: workloads and costs drawn around a fit. Their mean is the tuner's prior,
//! what they differ in its covariance (`results/tuner/README.md` has the evidence).
//!
//! A single model stops early on a wrong answer; a spread of them knows where it does not know. Drawn are the costs,
//! within what the trace left open and a share that no trace tells; what the reference setting does not exercise, far
//! wider; and effects that a trace does not show at all: polling, communication that slows the computation, copies of
//! large buffers, whether an allreduce is a ring or a tree. Each draw is weighed by the step times measured so far, and
//! the weightiest are kept.

use super::{Costs, Fit, Setting, Simulator};

mod draw;

/// Jobs that are drawn, and that are kept.
const DRAWS: usize = 512;
const KEPT: usize = 24;
/// How far a right model may be from a measured step time, in ln: differences between settings, and the level.
const DIFFERENCE_SD: f64 = 0.02;
const LEVEL_SD: f64 = 0.10;
/// Nothing is believed to be slower than the reference by more than this, in ln: a cliff's height teaches nothing.
const SLOWER_MOST: f64 = 1.5;

/// Jobs drawn around a fit.
#[derive(Clone, Debug)]
pub struct Ensemble {
    fit: Fit,
    seed: u64,
}

/// A step time measured at a setting.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredSetting {
    /// The setting.
    pub setting: Setting,
    /// Natural logarithm of the step time in milliseconds.
    pub log_time: f64,
    /// Variance of `log_time`.
    pub variance: f64,
}

/// How much slower than a reference settings are expected to be: the first two moments of a Gaussian process.
#[derive(Clone, Debug, Default)]
pub struct Slowdowns {
    /// Expected ln(step time / step time of the reference), one for each setting.
    pub mean: Vec<f64>,
    /// For each setting a vector; the covariance of two settings is the dot product of theirs.
    pub features: Vec<Vec<f64>>,
}

/// One job that might be.
#[derive(Clone, Debug)]
struct Member {
    costs: Costs,
    /// All ready times are this many times as late.
    stretch: f64,
    weight: f64,
}

impl Ensemble {
    /// Jobs around `fit`, drawn with `seed`.
    pub fn new(fit: Fit, seed: u64) -> Self {
        Self { fit, seed }
    }

    /// The costs of job number `index`, and by what factor its ready times are later.
    pub(super) fn job(&self, index: usize) -> (Costs, f64) {
        let Member { costs, stretch, .. } = self.draw(index);
        (costs, stretch)
    }

    /// Draws, weighed by what was measured; the weightiest, with weights that sum to 1.
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
        // A stable sort: of equals the earlier draw.
        members.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        members.truncate(KEPT);
        let sum: f64 = members.iter().map(|member| member.weight).sum();
        members.iter_mut().for_each(|member| member.weight /= sum);
        members
    }

    /// What is expected at `settings` after what was `measured`. The first of that is the reference (the fit's own if there is
    /// none), at which the mean and every feature are zero. `None` if a prediction is not finite.
    pub fn slowdowns(&self, settings: &[Setting], measured: &[MeasuredSetting]) -> Option<Slowdowns> {
        let mut simulator = Simulator::new(&self.fit.workload, self.fit.rules);
        let members = self.members(&mut simulator, measured);
        let reference = measured.first().map_or(self.fit.reference, |first| first.setting);
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
            let feature =
                |(slower, member): (&f64, &Member)| (slower - mean) * (member.weight * unbiased).sqrt();
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
            // The tuner's times are milliseconds.
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

/// One measurement weighs no more than this many standard deviations: it may be what is wrong.
const LIMIT: f64 = 5.0;

fn square(x: f64) -> f64 {
    x * x
}

#[cfg(test)]
mod tests;
