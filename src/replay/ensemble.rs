//! Jobs that might be the one that was traced: workloads and costs drawn around a fit. Their mean is the tuner's prior,
//! what they differ in its covariance (`facts/tuner.md` §8).
//!
//! A single model stops early on a wrong answer; a spread of them knows where it does not know. Drawn are the costs,
//! within what the trace left open and a share that no trace tells; what the reference setting does not exercise, far
//! wider; and effects that a trace does not show at all: polling, communication that slows the computation, copies of
//! large buffers, whether an allreduce is a ring or a tree. Each draw is weighed by the step times measured so far, and
//! the weightiest are kept.

use std::fmt;
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use ronde_tuner::{Belief, Estimate, Model, Point};
use statrs::distribution::{ContinuousCDF, Normal};

use super::fit::{Fit, GUESS_SD, KNEES, SLOWDOWNS, uncached_guess};
use super::linear::Linear;
use super::{Collective, Copying, Costs, Negotiation, Setting, Simulator};

/// Jobs that are drawn, and that are kept.
const DRAWS: usize = 512;
const KEPT: usize = 24;
/// What a trace may be off in a cost as a whole, in ln: rank 0's view of it.
const SYSTEMATIC_SD: f64 = 0.15;
/// The same of ready times, and of what comes before the first.
const READY_SD: f64 = 0.05;
/// Polling slows the computation by up to this share; communication beside it costs a share of its time, normal.
const POLLING_MOST: f64 = 0.08;
const CONTENTION_SD: f64 = 0.06;
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

    /// Job number `index`: the same for the same seed, whatever was drawn before.
    fn draw(&self, index: usize) -> Member {
        let seed = self
            .seed
            .wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let Fit { spread, place, .. } = &self.fit;
        let tree = dice.coin();
        let latency = dice.factor(SYSTEMATIC_SD);
        let per_byte = dice.factor(SYSTEMATIC_SD);
        let drawn = |linear: &Linear, dice: &mut Dice| {
            let [alpha, beta] = linear.draw([dice.normal(), dice.normal()]);
            Collective {
                alpha_us: alpha * latency,
                us_per_byte: beta * per_byte,
            }
        };
        let flat: Vec<Collective> = spread
            .flat
            .iter()
            .map(|linear| drawn(linear, &mut dice))
            .collect();
        let mut local = *place;
        local.local.alpha_us *= dice.factor(GUESS_SD);
        local.local.us_per_byte *= dice.factor(GUESS_SD);
        local.hierarchical_us *= dice.factor(GUESS_SD);
        let hierarchical = spread.hierarchical.iter().zip(&flat);
        let hierarchical = hierarchical
            .map(|(seen, &flat)| match seen {
                Some(linear) => drawn(linear, &mut dice),
                None => local.hierarchical(flat, tree),
            })
            .collect();
        let negotiation = |linear: &Linear, dice: &mut Dice| {
            let [base_us, per_tensor_us] = linear.draw([dice.normal(), dice.normal()]);
            let factor = dice.factor(SYSTEMATIC_SD);
            Negotiation {
                base_us: base_us * factor,
                per_tensor_us: per_tensor_us * factor,
            }
        };
        let cached = negotiation(&spread.cached, &mut dice);
        let uncached = match &spread.uncached {
            Some(linear) => negotiation(linear, &mut dice),
            None => {
                let guess = uncached_guess(cached);
                Negotiation {
                    base_us: guess.base_us * dice.factor(GUESS_SD),
                    per_tensor_us: guess.per_tensor_us * dice.factor(GUESS_SD),
                }
            }
        };
        let costs = Costs {
            cached,
            uncached,
            flat,
            hierarchical,
            copying: self.copying(&mut dice),
            polling: POLLING_MOST * dice.uniform(),
            contention: CONTENTION_SD * dice.normal().abs(),
        };
        Member {
            costs,
            stretch: dice.factor(READY_SD),
            weight: 1.0,
        }
    }

    /// The shape is one of those that fit nearly as well as the best.
    fn copying(&self, dice: &mut Dice) -> Copying {
        let spread = &self.fit.spread;
        let overlaps = spread.overlaps.unwrap_or_else(|| dice.coin());
        let best = spread
            .copying
            .iter()
            .map(|(_, fitted)| fitted.loss)
            .fold(f64::INFINITY, f64::min);
        let likelihood = |fitted: &Linear| (best - fitted.loss).exp();
        let sum: f64 = spread.copying.iter().map(|(_, fitted)| likelihood(fitted)).sum();
        let mut left = dice.uniform() * sum;
        let chosen = spread.copying.iter().find(|(_, fitted)| {
            left -= likelihood(fitted);
            left <= 0.0
        });
        let Some((shape, fitted)) = chosen.or(spread.copying.last()) else {
            return Copying::default();
        };
        let [per_tensor_us, us_per_byte] = fitted.draw([dice.normal(), dice.normal()]);
        let factor = dice.factor(SYSTEMATIC_SD);
        let mut copying = Copying {
            per_tensor_us: per_tensor_us * factor,
            us_per_byte: us_per_byte * factor,
            overlaps,
            ..*shape
        };
        if dice.uniform() < 0.5 {
            // What the sizes seen do not show may still come with others.
            copying.slowdown = *dice.of(&SLOWDOWNS);
            copying.knee_bytes = *dice.of(&KNEES);
        }
        copying
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

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    fn coin(&mut self) -> bool {
        self.0.random::<bool>()
    }

    fn normal(&mut self) -> f64 {
        Normal::standard().inverse_cdf(self.uniform().clamp(1e-9, 1.0 - 1e-9))
    }

    /// Log-normal about 1.
    fn factor(&mut self, sd: f64) -> f64 {
        (sd * self.normal()).exp()
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.0.random_range(0..choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use ronde_tuner::{Parameter, Space};

    use super::super::fit::{Spread, fit};
    use super::super::{Place, Rules, Trace, TracedBatch, TracedCycle, TracedStep, TracedTensor};
    use super::*;
    use crate::fusion::Item;

    const MIB: f64 = 1048576.0;

    fn to_setting(point: &Point) -> Setting {
        Setting {
            fusion_threshold_bytes: (point.value(0) * MIB) as u64,
            cycle_us: 1e3 * point.value(1),
            hierarchical: point.flag(2),
            cache: true,
        }
    }

    fn space() -> Space {
        let fusion = Parameter::log("fusion_mb", 0.0625, 256.0, 16).with_zero();
        let cycle = Parameter::log("cycle_ms", 0.1, 100.0, 13);
        Space::new(vec![fusion, cycle, Parameter::boolean("hierarchical")]).unwrap()
    }

    /// 100 tensors of 100 kB over 20 ms, seen without fusion: 400 µs and 1 GB/s a message.
    fn unfused() -> Trace {
        let mut step = TracedStep::default();
        let mut free = 0.0;
        for index in 0..100u64 {
            let ready_us = 10_000.0 + 200.0 * index as f64;
            let item = Item {
                class: 0,
                bytes: 100_000,
                group: None,
            };
            step.tensors.push(TracedTensor {
                key: index,
                item,
                pending_us: ready_us,
                ready_us,
            });
            let began_us = ready_us.max(free);
            let batch = TracedBatch {
                class: 0,
                bytes: 100_000,
                tensors: 1,
                collective_us: 500.0,
                copy_us: 0.0,
            };
            let (negotiate_us, moving_us) = (20.0, 500.0);
            step.cycles.push(TracedCycle {
                began_us,
                negotiate_us,
                tensors: 1,
                cached: 1,
                moving_us,
                batches: vec![batch],
            });
            free = began_us + negotiate_us + moving_us;
        }
        step.step_us = free;
        let setting = Setting {
            fusion_threshold_bytes: 0,
            cycle_us: 100.0,
            hierarchical: false,
            cache: true,
        };
        Trace {
            setting,
            steps: vec![step; 5],
        }
    }

    fn ensemble(traces: &[Trace]) -> Ensemble {
        Ensemble::new(
            fit(traces, Rules::RONDE, Place::new(16, 4)).unwrap(),
            7,
            Arc::new(to_setting),
        )
    }

    fn estimate(point: Point, ms: f64) -> Estimate {
        Estimate {
            point,
            log_time: ms.ln(),
            variance: 1e-5,
            steps: 10,
        }
    }

    #[test]
    fn the_reference_is_certain_and_a_measurement_moves_what_resembles_it() {
        let ensemble = ensemble(&[unfused()]);
        let space = space();
        let start = space.point(&[0.0, 0.1, 0.0]).unwrap();
        let fused = space.point(&[16.0, 0.1, 0.0]).unwrap();
        let alike = space.point(&[64.0, 0.1, 0.0]).unwrap();
        let points = [start, fused, alike];
        let level = ensemble.fit.measured_us / 1e3;
        let before = ensemble.belief(&points, &[estimate(start, level)]).unwrap();
        assert_eq!(before.mean[0], 0.0);
        assert!(before.features[0].iter().all(|feature| *feature == 0.0));
        assert!(before.mean[1] < -0.05, "{before:?}"); // one size seen: how much fusion saves is not known
        let sd = |belief: &Belief, i: usize| belief.features[i].iter().map(|f| f * f).sum::<f64>().sqrt();
        assert!(sd(&before, 1) > 0.05, "{}", sd(&before, 1));
        // It was found to save much: so will what resembles it, and that is surer now.
        let seen = [estimate(start, level), estimate(fused, level * 0.62)];
        let after = ensemble.belief(&points, &seen).unwrap();
        assert!((after.mean[2] - 0.62f64.ln()).abs() < (before.mean[2] - 0.62f64.ln()).abs());
        assert!(sd(&after, 2) < sd(&before, 2));
    }

    #[test]
    fn equal_seeds_draw_equal_jobs_and_others_others() {
        let one = ensemble(&[unfused()]);
        let mut other = one.clone();
        assert_eq!(one.job(3), other.job(3));
        assert_ne!(one.job(3), one.job(4));
        other.seed = 8;
        assert_ne!(one.job(3), other.job(3));
    }

    #[test]
    fn a_fit_of_nothing_but_priors_still_draws_finite_costs() {
        let mut fitted = fit(&[unfused()], Rules::RONDE, Place::one_host(2)).unwrap();
        fitted.spread = Spread::default();
        let ensemble = Ensemble::new(fitted, 1, Arc::new(to_setting));
        let point = space().point(&[1.0, 1.0, 1.0]).unwrap();
        let belief = ensemble.belief(&[point], &[estimate(point, 1.0)]).unwrap();
        assert_eq!(belief.mean, [0.0]);
    }
}
