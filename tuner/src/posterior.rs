//! Posterior of the whole surface after a finished search: the tuner's own surrogate, fitted after
//! the fact.
//!
//! A log states step times (or scores) of settings, but rarely their errors. So the noise of a
//! measurement is estimated together with the surface, over a grid of noise levels. Each level is
//! weighted by its prior and by the likelihood of the measurements under it, repeated settings
//! included. The result is a mixture over noise levels and hyper-parameters.
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

use crate::random::generator;
use crate::space::{Coordinates, Point, Space};
use crate::surrogate::gp::{Prediction, dot};
use crate::surrogate::kernel::{Hyperparameters, Kernel};
use crate::surrogate::{cold_prior, shares, weighed};
use crate::tuner::sample::Seen;

use groups::{Groups, Values};
pub use noise::NoiseEstimate;

/// Seed of the draws of the hyper-parameters: that of a [`TunerConfig`](crate::TunerConfig).
const SEED: u64 = 7;
/// Processes that stand for all draws.
const PARTS: usize = 32;
/// How much worse than the best a measurement may count, in log step time: beyond a cliff only its
/// place matters, and its height would teach the surrogate a signal that the rest of the surface
/// does not have.
const BADNESS_MAX: f64 = 1.5;

/// Expectation of a setting, in the unit of [`Seen::log_time`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Posterior mean.
    pub mean: f64,
    /// Posterior standard deviation of the surface; another measurement scatters about it with the
    /// noise besides.
    pub sd: f64,
}

/// Posterior of the log step time of all settings, after a search.
#[derive(Clone, Debug)]
pub struct Posterior {
    space: Space,
    kernel: Kernel,
    /// Offset that is subtracted from all observations.
    level: f64,
    /// Coordinates of the groups, and their values by noise level.
    places: Vec<Coordinates>,
    values: Vec<Values>,
    parts: Vec<Part>,
    noise: NoiseEstimate,
}

/// A process: index of its noise level, and its hyper-parameters. All have the same weight.
type Part = (usize, Hyperparameters);

impl Posterior {
    /// Fits the surrogate. Measurements that are not finite are left out; many are first merged
    /// with their neighbours.
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
        let drawn = kernel.draws(SEED);
        let drawn = weighed(&drawn, groups.len());
        let places = groups.places();
        let prior = cold_prior(&kernel, &places, (0..places.len()).collect(), 0.0);
        let mut values = Vec::new();
        let mut weighed: Vec<(usize, f64, Hyperparameters)> = Vec::new();
        for (index, level) in levels.iter().enumerate() {
            let (of_groups, scatter) = groups.observations(level.sd * level.sd);
            for hyper in drawn {
                if let Some(gp) = prior.conditioned(&of_groups.y, &of_groups.variance, *hyper) {
                    weighed.push((index, gp.log_likelihood + scatter + level.log_prior, *hyper));
                }
            }
            values.push(of_groups);
        }
        let shares = shares(&weighed.iter().map(|w| w.1).collect::<Vec<_>>());
        // A setting that was tried once is off the smooth surface by the nugget, too.
        let rough = groups.len() as f64 / seen.len() as f64;
        let mut scattered: Vec<(f64, f64)> = levels.iter().map(|_| (0.0, 0.0)).collect();
        for ((level, _, hyper), share) in weighed.iter().zip(&shares) {
            let variance = levels[*level].sd.powi(2) + rough * hyper.nugget * hyper.nugget;
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
        let parts = resampled(&shares).into_iter();
        let parts = parts.map(|index| (weighed[index].0, weighed[index].2));
        Some(Self {
            parts: parts.collect(),
            space,
            level,
            values,
            noise,
            places,
            kernel,
        })
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Noise of one measurement, as a fraction of it, beside the part that was known: what no
    /// smooth surface explains.
    pub fn noise(&self) -> NoiseEstimate {
        self.noise
    }

    /// Expectations at `points`, one by one.
    pub fn at(&self, points: &[Point]) -> Vec<Expectation> {
        let mut moments = vec![(0.0, 0.0); points.len()];
        let mut count = 0.0;
        self.with_predictions(points, |prediction, _| {
            count += 1.0;
            let first = self.places.len();
            let values = prediction.mean[first..].iter();
            let values = values.zip(&prediction.variance[first..]);
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

    /// `count` surfaces drawn from the posterior, each with a value for every one of `points`: any
    /// property of a surface (its best setting, the effect of a knob) can be computed of each. The
    /// same `seed` gives the same draws.
    pub fn draws(&self, points: &[Point], count: usize, seed: u64) -> Vec<Vec<f64>> {
        let normal = Normal::standard();
        let mut surfaces = Vec::with_capacity(count);
        self.with_predictions(points, |prediction, part| {
            let first = self.places.len();
            let lower = prediction.factor(first);
            // In turn: each process gets as many as any other, or one more.
            for index in (part..count).step_by(PARTS) {
                let mut rng = generator(seed, index as u64);
                let score = |_| normal.inverse_cdf(rng.random::<f64>().clamp(1e-12, 1.0 - 1e-12));
                let scores: Vec<f64> = points.iter().map(score).collect();
                let value = |(row, mean): (&Vec<f64>, &f64)| self.level + mean + dot(row, &scores);
                let values = lower.iter().zip(&prediction.mean[first..]).map(value);
                surfaces.push(values.collect());
            }
        });
        surfaces
    }

    /// Calls `look` with each process's prediction at the groups and then at `points`.
    fn with_predictions(&self, points: &[Point], mut look: impl FnMut(&Prediction, usize)) {
        let coordinates = points.iter().map(|point| self.space.coordinates(point));
        let x: Vec<Coordinates> = self.places.iter().copied().chain(coordinates).collect();
        let prior = cold_prior(&self.kernel, &x, (0..self.places.len()).collect(), 0.0);
        for (index, (level, hyper)) in self.parts.iter().enumerate() {
            let Values { y, variance } = &self.values[*level];
            // It could be conditioned when it was weighed.
            if let Some(gp) = prior.conditioned(y, variance, *hyper) {
                look(&gp.predict(), index);
            }
        }
    }
}

/// [`PARTS`] indices, each as often as its share asks for: systematic resampling (J. Carpenter, P.
/// Clifford and P. Fearnhead, Improved Particle Filter for Nonlinear Problems, 1999).
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
