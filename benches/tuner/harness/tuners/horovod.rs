//! Horovod's algorithm, reimplemented (`parameter_manager.cc` and `optim/bayesian_optimization.cc`
//! in `horovod/common`, commit 2626dc8): Bayesian optimisation of fusion threshold and cycle time
//! in raw units, anew for every combination of the booleans; the single best score wins.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use super::super::job::Job;
use super::super::sampling::median;
use super::super::truth::Setting;
use super::Tuner;
use super::minimize::minimize;

/// First points and bounds: fusion threshold in MiB, cycle time in ms.
const FIRST: [[f64; 2]; 4] = [[4.0, 5.0], [32.0, 50.0], [16.0, 25.0], [8.0, 10.0]];
const LOWEST: [f64; 2] = [0.0, 1.0];
const HIGHEST: [f64; 2] = [64.0, 100.0];
/// Samples of one run of the optimiser, and before the first.
const SAMPLES: usize = 21;
const WARMUP_SAMPLES: usize = 3;
/// A sample is five times ten steps, and one that closes it.
const PARTS: usize = 5;
const PART_STEPS: usize = 10;
/// Number of scores from which on they are standardised.
const STANDARDISED: usize = 3;
/// Variance of the noise, and the least improvement.
const NOISE: f64 = 0.64;
const MARGIN: f64 = 0.01;
/// Random starts of the search for the largest expected improvement.
const STARTS: usize = 25;

/// Horovod's tuner, with or without the chain of booleans.
#[derive(Debug)]
pub(crate) struct Horovod {
    booleans: bool,
}

impl Horovod {
    /// Tunes fusion threshold and cycle time; the booleans are fixed at their defaults.
    pub(crate) fn numbers() -> Self {
        Self { booleans: false }
    }

    /// Tunes all parameters of the jobs here: also hierarchical allreduce, hierarchical allgather
    /// and the cache.
    pub(crate) fn chain() -> Self {
        Self { booleans: true }
    }

    /// Combinations of the booleans in their order, off before on, the first changes fastest.
    fn combinations(&self) -> Vec<[bool; 3]> {
        if !self.booleans {
            return vec![[false, false, true]];
        }
        (0..8)
            .map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0])
            .collect()
    }
}

impl Tuner for Horovod {
    fn name(&self) -> String {
        if self.booleans {
            "horovod"
        } else {
            "horovod2d"
        }
        .into()
    }

    fn tune(&self, job: &mut Job<'_>, seed: u64) -> Setting {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let combinations = self.combinations();
        let setting = |[fusion_mb, cycle_ms]: [f64; 2], booleans: [bool; 3]| Setting {
            hierarchical: booleans[0],
            allgather: booleans[1],
            cache: booleans[2],
            ..Setting::of(fusion_mb, cycle_ms)
        };
        for _ in 0..WARMUP_SAMPLES {
            score(job, &setting(FIRST[0], combinations[0]));
        }
        let mut best = (0.0, setting(FIRST[0], combinations[0]));
        for booleans in combinations {
            let (mut points, mut scores) = (Vec::new(), Vec::new());
            while points.len() < SAMPLES {
                let point = match FIRST.get(points.len()) {
                    Some(first) => *first,
                    None => propose(&points, &scores, &mut rng),
                };
                let setting = setting(point, booleans);
                let score = score(job, &setting);
                points.push(point);
                scores.push(score);
                if score > best.0 {
                    best = (score, setting);
                    job.incumbent(&setting);
                }
            }
        }
        best.1
    }
}

/// Score: steps per time, the median of five.
fn score(job: &mut Job<'_>, setting: &Setting) -> f64 {
    let parts = (0..PARTS)
        .map(|_| PART_STEPS as f64 * 1e6 / job.run_us(setting, PART_STEPS).iter().sum::<f64>());
    let score = median(&parts.collect::<Vec<f64>>());
    job.step_us(setting);
    score
}

/// Returns the point of the largest expected improvement of 25 descents.
fn propose(points: &[[f64; 2]], scores: &[f64], rng: &mut Xoshiro256PlusPlus) -> [f64; 2] {
    let process = Process::fit(points, &standardised(scores));
    let top = points
        .iter()
        .map(|point| process.posterior(*point).0)
        .fold(f64::NEG_INFINITY, f64::max);
    let badness = |point: [f64; 2]| {
        let inside = (0..2).all(|axis| (LOWEST[axis]..=HIGHEST[axis]).contains(&point[axis]));
        if inside {
            -improvement(process.posterior(point), top)
        } else {
            f64::MAX
        }
    };
    let mut best = ([0.0; 2], f64::INFINITY);
    for _ in 0..STARTS {
        let start =
            [0, 1].map(|axis| LOWEST[axis] + rng.random::<f64>() * (HIGHEST[axis] - LOWEST[axis]));
        let (point, badness) = minimize(start, badness);
        if badness < best.1 {
            best = (point, badness);
        }
    }
    if best.1.is_finite() && best.1 < f64::MAX {
        return best.0;
    }
    // Nothing but NaN: the best point so far.
    let top = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    points[top.unwrap_or(0)]
}

fn improvement((mean, deviation): (f64, f64), top: f64) -> f64 {
    let deviation = deviation + 1e-8;
    let gain = mean - top - MARGIN;
    let z = gain / deviation;
    let normal = Normal::standard();
    gain * normal.cdf(z) + deviation * normal.pdf(z)
}

fn standardised(scores: &[f64]) -> Vec<f64> {
    if scores.len() < STANDARDISED {
        return scores.to_vec();
    }
    let count = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let deviation = (scores
        .iter()
        .map(|score| (score - mean).powi(2))
        .sum::<f64>()
        / count)
        .sqrt();
    let deviation = if deviation > 0.0 { deviation } else { 1.0 };
    scores
        .iter()
        .map(|score| (score - mean) / deviation)
        .collect()
}

/// A Gaussian process with a squared-exponential kernel in raw units.
struct Process<'a> {
    points: &'a [[f64; 2]],
    length: f64,
    signal: f64,
    lower: Vec<Vec<f64>>,
    /// (K + noise)⁻¹ y.
    weights: Vec<f64>,
}

impl<'a> Process<'a> {
    /// Fits length and signal by maximum likelihood, from (1, 1).
    fn fit(points: &'a [[f64; 2]], scores: &[f64]) -> Self {
        let unlikelihood = |[length, signal]: [f64; 2]| {
            let lower = factor(points, length, signal);
            let half = forward(&lower, scores);
            let fit: f64 = half.iter().map(|v| v * v).sum::<f64>() / 2.0;
            let volume: f64 = (0..scores.len()).map(|i| lower[i][i].ln()).sum();
            fit + volume
        };
        let ([length, signal], _) = minimize([1.0, 1.0], unlikelihood);
        let lower = factor(points, length, signal);
        let weights = backward(&lower, forward(&lower, scores));
        Self {
            points,
            length,
            signal,
            lower,
            weights,
        }
    }

    /// Returns mean and standard deviation without the noise.
    fn posterior(&self, at: [f64; 2]) -> (f64, f64) {
        let near: Vec<f64> = self
            .points
            .iter()
            .map(|point| kernel(*point, at, self.length, self.signal))
            .collect();
        let mean = near.iter().zip(&self.weights).map(|(k, w)| k * w).sum();
        let known: f64 = forward(&self.lower, &near).iter().map(|v| v * v).sum();
        (mean, (self.signal * self.signal - known).max(0.0).sqrt())
    }
}

fn kernel(a: [f64; 2], b: [f64; 2], length: f64, signal: f64) -> f64 {
    let squared = (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2);
    signal * signal * (-0.5 * squared / (length * length)).exp()
}

/// Cholesky factor of kernel matrix plus noise.
fn factor(points: &[[f64; 2]], length: f64, signal: f64) -> Vec<Vec<f64>> {
    let mut lower: Vec<Vec<f64>> = Vec::with_capacity(points.len());
    for (row, point) in points.iter().enumerate() {
        let mut line = Vec::with_capacity(row + 1);
        for column in 0..=row {
            let other: &[f64] = if column == row { &line } else { &lower[column] };
            let known: f64 = line[..column].iter().zip(other).map(|(a, b)| a * b).sum();
            let value = kernel(*point, points[column], length, signal) - known;
            line.push(if column == row {
                (value + NOISE).sqrt()
            } else {
                value / lower[column][column]
            });
        }
        lower.push(line);
    }
    lower
}

fn forward(lower: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solution: Vec<f64> = Vec::with_capacity(right.len());
    for (line, value) in lower.iter().zip(right) {
        let known: f64 = line.iter().zip(&solution).map(|(a, b)| a * b).sum();
        solution.push((value - known) / line[solution.len()]);
    }
    solution
}

fn backward(lower: &[Vec<f64>], mut right: Vec<f64>) -> Vec<f64> {
    for row in (0..right.len()).rev() {
        right[row] /= lower[row][row];
        for column in 0..row {
            right[column] -= lower[row][column] * right[row];
        }
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{Truth, surfaces};

    #[test]
    fn a_posterior_by_hand() {
        // One point, score 1, signal² s, noise 0.64: the mean there is s / (s + 0.64), the variance
        // s - s² / (s + 0.64).
        let points = [[4.0, 5.0]];
        let process = Process::fit(&points, &[1.0]);
        let signal = process.signal.powi(2);
        let (mean, deviation) = process.posterior(points[0]);
        assert!((mean - signal / (signal + NOISE)).abs() < 1e-12);
        assert!((deviation.powi(2) - (signal - signal * signal / (signal + NOISE))).abs() < 1e-9);
        // The likelihood of y = 1 is largest if signal² + noise = y².
        assert!((signal - 0.36).abs() < 1e-3, "{signal}");
        let (far, wide) = process.posterior([64.0, 100.0]);
        assert!(far.abs() < 1e-9 && (wide - process.signal).abs() < 1e-9);
    }

    #[test]
    fn costs_the_documented_number_of_steps() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        let surface = &surfaces[6];
        let mut job = Job::new(surface, 1, None);
        let setting = Horovod::numbers().tune(&mut job, 1);
        assert_eq!(job.steps(), 1224);
        assert!(setting.fusion_mb() <= 64.0 && setting.cycle_ms >= 1.0 && setting.cache);
        assert_eq!(
            Horovod::chain().combinations().len() * SAMPLES * 51 + 153,
            8721
        );
    }
}
