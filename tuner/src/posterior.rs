//! What a finished search's measurements say of the whole surface: the tuner's own surrogate, fitted after the fact.
//!
//! A log tells step times (or scores) of settings, rarely how far they are to be trusted. So the noise of a measurement is estimated
//! with everything else: over a grid of noise levels, each level weighed by its prior and by how well the processes under it
//! explain what was measured, repeated settings among it. What comes out is a mixture over noise levels and hyper-parameters.
//!
//! ```
//! use ronde_tuner::{Parameter, Posterior, Seen, Space};
//! let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)])?;
//! // A bowl with its bottom at 0.7, seen with an error of a few percent.
//! let seen = (0..20).map(|i| {
//!     let x = f64::from(i) / 19.0;
//!     let error = [0.02, -0.03, 0.01, 0.0][i as usize % 4];
//!     Ok(Seen { point: space.point(&[x])?, log_time: (x - 0.7) * (x - 0.7) + error, variance: 0.0 })
//! });
//! let seen = seen.collect::<Result<Vec<_>, ronde_tuner::Error>>()?;
//! let posterior = Posterior::fit(space.clone(), &seen).expect("twenty numbers can be fitted");
//! let [bottom, end] = [0.7, 0.0].map(|x| space.point(&[x]).map(|point| posterior.at(&[point])[0]));
//! assert!(bottom?.mean.abs() < 0.02 && (end?.mean - 0.49).abs() < 0.05);
//! assert!((0.01..0.04).contains(&posterior.noise().sd));
//! # Ok::<(), ronde_tuner::Error>(())
//! ```

mod groups;
mod noise;

use statrs::distribution::{ContinuousCDF, Normal};

use rand::RngExt;

use crate::design::generator;
use crate::draws::{Scores, draws};
use crate::gp::{Gp, Observations, Scene};
use crate::hypothesis::Hypothesis;
use crate::kernel::Kernel;
use crate::lanes::{Columns, Pairs};
use crate::refine::Objective;
use crate::space::{Coordinates, Point, Space};
use crate::surrogate::shares;

use groups::Groups;
pub use noise::NoiseEstimate;

/// Seed of the draws of the hyper-parameters: that of a [`TunerConfig`](crate::TunerConfig).
const SEED: u64 = 7;
/// Draws that are weighed at each noise level, of few groups and of many, each of which costs more.
const DRAWS: [usize; 2] = [192, 64];
/// Up to how many groups the first of them holds.
const GROUPS_FEW: usize = 48;
/// Processes that stand for all draws.
const PARTS: usize = 32;
/// How much worse than the best a measurement may count, in log step time: beyond a cliff only its place matters, and its height
/// would teach the surrogate a signal that the rest of the surface does not have.
const BADNESS_MAX: f64 = 1.5;

/// A measurement: a line of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The setting.
    pub point: Point,
    /// ln(step time), up to a constant that all share: the logarithm of a score with its sign turned will do.
    pub log_time: f64,
    /// Variance of `log_time` as far as it is known, 0 if it is not. What is estimated comes on top.
    pub variance: f64,
}

/// What is expected of a setting, in the unit of [`Seen::log_time`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Posterior mean.
    pub mean: f64,
    /// Posterior standard deviation of the surface; another measurement scatters about it with the noise besides.
    pub sd: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Posterior {
    space: Space,
    kernel: Kernel,
    /// What is subtracted from all observations.
    level: f64,
    /// The observations, by noise level.
    observations: Vec<Observations>,
    parts: Vec<Part>,
    noise: NoiseEstimate,
}

/// A process: its noise level and its hyper-parameters. All weigh the same.
#[derive(Clone, Debug)]
struct Part {
    noise: usize,
    scores: Scores,
}

impl Posterior {
    /// Fits the surrogate. Measurements that are not finite are left out; many are first merged with their neighbours.
    ///
    /// None if nothing is left, or nothing can be fitted to it.
    pub fn fit(space: Space, seen: &[Seen]) -> Option<Self> {
        let usable = |seen: &&Seen| seen.log_time.is_finite() && seen.variance.is_finite();
        let mut seen: Vec<Seen> = seen.iter().filter(usable).copied().collect();
        let best = seen.iter().map(|seen| seen.log_time).reduce(f64::min)?;
        seen.iter_mut()
            .for_each(|seen| seen.log_time = seen.log_time.min(best + BADNESS_MAX));
        let level = crate::median(&seen.iter().map(|seen| seen.log_time).collect::<Vec<_>>());
        let groups = Groups::new(&space, &seen, level);

        let kernel = Kernel::new(&space);
        let levels = noise::levels(groups.noise_is_known());
        let mut drawn = draws(&kernel, SEED);
        drawn.truncate(DRAWS[usize::from(groups.len() > GROUPS_FEW)]);
        let mut observations = Vec::new();
        // Every draw at every level: to drop the less likely early, as a proposal does, would favour levels that tell draws apart.
        let mut weighed: Vec<(usize, f64, &Scores)> = Vec::new();
        for (index, level) in levels.iter().enumerate() {
            let (of_groups, scatter) = groups.observations(level.sd * level.sd);
            let none = Columns::new(&kernel, &[]);
            let hypothesis = Hypothesis::cold(of_groups.x.len(), 0);
            let scene = Scene::new(&kernel, &of_groups, &none, vec![hypothesis]);
            let objective = Objective {
                scene: &scene,
                hypothesis: 0,
            };
            for scores in &drawn {
                if let Some(gp) = objective.gp(scores) {
                    weighed.push((index, gp.log_likelihood + scatter + level.log_prior, scores));
                }
            }
            observations.push(of_groups);
        }
        let shares = shares(&weighed.iter().map(|w| w.1).collect::<Vec<_>>());
        // A setting that was tried once is off the smooth surface by the nugget, too.
        let rough = groups.len() as f64 / seen.len() as f64;
        let mut scattered: Vec<(f64, f64)> = levels.iter().map(|_| (0.0, 0.0)).collect();
        for ((level, _, scores), share) in weighed.iter().zip(&shares) {
            let nugget = scores.hyperparameters(&kernel, 1.0).nugget;
            let variance = levels[*level].sd.powi(2) + rough * nugget * nugget;
            scattered[*level].0 += share * variance;
            scattered[*level].1 += share;
        }
        for ((variance, share), level) in scattered.iter_mut().zip(&levels) {
            *variance = if *share > 0.0 {
                (*variance / *share).sqrt()
            } else {
                level.sd
            };
        }
        scattered.sort_by(|a, b| a.0.total_cmp(&b.0));
        let noise = NoiseEstimate::new(&scattered)?;
        let parts = resampled(&shares).into_iter().map(|index| Part {
            noise: weighed[index].0,
            scores: weighed[index].2.clone(),
        });
        Some(Self {
            parts: parts.collect(),
            space,
            kernel,
            level,
            observations,
            noise,
        })
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Noise of one measurement, as a fraction of it, beside the part that was known: what no smooth surface explains.
    pub fn noise(&self) -> NoiseEstimate {
        self.noise
    }

    /// What is expected at `points`, one by one.
    pub fn at(&self, points: &[Point]) -> Vec<Expectation> {
        let mut moments = vec![(0.0, 0.0); points.len()];
        let mut count = 0.0;
        self.with_processes(points, |gp, _| {
            let prediction = gp.predict(0);
            count += 1.0;
            let values = prediction.mean.iter().zip(&prediction.variance);
            for (sums, (mean, variance)) in moments.iter_mut().zip(values) {
                sums.0 += mean;
                sums.1 += mean * mean + variance;
            }
        });
        let expectation = |(first, second): (f64, f64)| {
            let mean = first / count;
            Expectation {
                mean: self.level + mean,
                sd: (second / count - mean * mean).max(0.0).sqrt(),
            }
        };
        moments.into_iter().map(expectation).collect()
    }

    /// `count` surfaces drawn from the posterior, each with a value for every one of `points`: whatever can be asked of a surface
    /// (which setting is the best, what a knob changes) can be asked of each of them. The same `seed` gives the same draws.
    pub fn draws(&self, points: &[Point], count: usize, seed: u64) -> Vec<Vec<f64>> {
        let coordinates: Vec<Coordinates> =
            points.iter().map(|p| self.space.coordinates(p)).collect();
        let pairs = Pairs::new(&self.kernel, &coordinates);
        let normal = Normal::standard();
        let mut surfaces = Vec::with_capacity(count);
        self.with_processes(points, |gp, part| {
            let joint = gp.joint(&pairs);
            // Dealt out in turn: each process gets as many as any other, or one more.
            for index in (part..count).step_by(PARTS) {
                let mut rng = generator(seed, index as u64);
                let score = |_| normal.inverse_cdf(rng.random::<f64>().clamp(1e-12, 1.0 - 1e-12));
                let scores: Vec<f64> = points.iter().map(score).collect();
                let mut surface = joint.surface(&scores);
                surface.iter_mut().for_each(|value| *value += self.level);
                surfaces.push(surface);
            }
        });
        surfaces
    }

    /// Calls `look` with each process, conditioned on everything and with `points` as its candidates.
    fn with_processes(&self, points: &[Point], mut look: impl FnMut(&Gp, usize)) {
        let coordinates: Vec<Coordinates> =
            points.iter().map(|p| self.space.coordinates(p)).collect();
        let candidates = Columns::new(&self.kernel, &coordinates);
        for (level, observations) in self.observations.iter().enumerate() {
            let parts = || {
                self.parts
                    .iter()
                    .enumerate()
                    .filter(|(_, part)| part.noise == level)
            };
            if parts().next().is_none() {
                continue;
            }
            let hypothesis = Hypothesis::cold(observations.x.len(), points.len());
            let scene = Scene::new(&self.kernel, observations, &candidates, vec![hypothesis]);
            let objective = Objective {
                scene: &scene,
                hypothesis: 0,
            };
            for (index, part) in parts() {
                // It could be conditioned when it was weighed.
                if let Some(gp) = objective.gp(&part.scores) {
                    look(&gp, index);
                }
            }
        }
    }
}

/// [`PARTS`] indices, each as often as its share asks for: systematic resampling (J. Carpenter, P. Clifford and P. Fearnhead, Improved
/// Particle Filter for Nonlinear Problems, 1999).
fn resampled(shares: &[f64]) -> Vec<usize> {
    let mut chosen = Vec::with_capacity(PARTS);
    let mut sum = 0.0;
    for (index, share) in shares.iter().enumerate() {
        sum += share;
        while chosen.len() < PARTS && (chosen.len() as f64 + 0.5) / PARTS as f64 <= sum {
            chosen.push(index);
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
