//! Jobs that might be the one that was traced: workloads and costs drawn around a fit. Their mean is the tuner's prior,
//! what they differ in its covariance (`results/tuner/README.md` has the evidence).
//!
//! A single model stops early on a wrong answer; a spread of them knows where it does not know. Drawn are the costs,
//! within what the trace left open and a share that no trace tells; what the reference setting does not exercise, far
//! wider; and effects that a trace does not show at all: polling, communication that slows the computation, copies of
//! large buffers, whether an allreduce is a ring or a tree. Each draw is weighed by the step times measured so far, and
//! the weightiest are kept.

use std::fmt;
use std::sync::Arc;

use ronde_tuner::{Belief, Estimate, Model, Point};

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

type ToSetting = Arc<dyn Fn(&Point) -> Setting + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub struct Ensemble {
    fit: Fit,
    seed: u64,
    to_setting: ToSetting,
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ensemble")
            .field("fit", &self.fit)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
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
    /// Jobs around `fit`, drawn with `seed`; `to_setting` tells what a point of the tuner's space stands for.
    pub fn new(fit: Fit, seed: u64, to_setting: ToSetting) -> Self {
        Self {
            fit,
            seed,
            to_setting,
        }
    }

    /// The costs of job number `index`, and by what factor its ready times are later.
    pub(super) fn job(&self, index: usize) -> (Costs, f64) {
        let Member { costs, stretch, .. } = self.draw(index);
        (costs, stretch)
    }

    /// Draws, weighed by what was measured; the weightiest, with weights that sum to 1.
    fn members(&self, simulator: &mut Simulator, measured: &[Estimate]) -> Vec<Member> {
        let settings: Vec<Setting> = measured
            .iter()
            .map(|estimate| (self.to_setting)(&estimate.point))
            .collect();
        let mut members: Vec<Member> = (0..DRAWS).map(|index| self.draw(index)).collect();
        for member in &mut members {
            member.weight = self.log_likelihood(member, simulator, measured, &settings);
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

    fn log_likelihood(
        &self,
        member: &Member,
        simulator: &mut Simulator,
        measured: &[Estimate],
        settings: &[Setting],
    ) -> f64 {
        let Some(reference) = measured.first() else {
            return 0.0;
        };
        let mut log_step = |setting: &Setting| {
            // The tuner's times are milliseconds.
            (simulator.stretched_step_us(&member.costs, setting, member.stretch) / 1e3).ln()
        };
        let level = log_step(&settings[0]);
        let mut sum = square((level - reference.log_time) / LEVEL_SD);
        for (estimate, setting) in measured.iter().zip(settings).skip(1) {
            let difference = (log_step(setting) - level).min(SLOWER_MOST);
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

impl Model for Ensemble {
    fn belief(&self, points: &[Point], measured: &[Estimate]) -> Option<Belief> {
        let mut simulator = Simulator::new(&self.fit.workload, self.fit.rules);
        let members = self.members(&mut simulator, measured);
        let reference = measured
            .first()
            .map_or(self.fit.reference, |first| (self.to_setting)(&first.point));
        let settings: Vec<Setting> = points.iter().map(|point| (self.to_setting)(point)).collect();
        let mut slower = vec![Vec::with_capacity(members.len()); points.len()];
        for member in &members {
            let mut log_step = |setting: &Setting| {
                simulator
                    .stretched_step_us(&member.costs, setting, member.stretch)
                    .ln()
            };
            let level = log_step(&reference);
            for (slower, setting) in slower.iter_mut().zip(&settings) {
                slower.push((log_step(setting) - level).min(SLOWER_MOST));
            }
        }
        let squares: f64 = members.iter().map(|member| square(member.weight)).sum();
        let unbiased = 1.0 / (1.0 - squares).max(1.0 / KEPT as f64);
        let mut belief = Belief::default();
        for slower in slower {
            let mean: f64 = slower
                .iter()
                .zip(&members)
                .map(|(slower, member)| slower * member.weight)
                .sum();
            let feature =
                |(slower, member): (&f64, &Member)| (slower - mean) * (member.weight * unbiased).sqrt();
            belief
                .features
                .push(slower.iter().zip(&members).map(feature).collect());
            belief.mean.push(mean);
        }
        belief.mean.iter().all(|mean| mean.is_finite()).then_some(belief)
    }
}

#[cfg(test)]
mod tests;
