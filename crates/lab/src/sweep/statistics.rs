//! Paired comparison of points that were measured in the same blocks.
//!
//! A block is one repeat of the grid or one round of the confirmation; the state of the machine is
//! common to it: ln(step time) = point + block + residual, fitted by least squares. For points that
//! were measured in the same blocks, their difference is the mean of the differences within blocks;
//! the state of the machine cancels. Within a block the order is random, so drift during a block
//! counts as noise. One variance of a measurement is pooled from all residuals: three repeats of
//! forty points give eighty degrees of freedom, not two.
//!
//! If several differences are examined, the levels are divided by their number: intervals by
//! Bonferroni's rule ([`critical`]), tests by Holm's ([`rejected`]): Holm, "A simple sequentially
//! rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
//!
//! Measurements that deviate strongly from all others of their point are left out ([`strays`]).

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use ronde_job::percentile::percentile_of;

/// Maximum number of turns of a fit; a change in ln below the tolerance ends them earlier.
const TURNS: usize = 1000;
const CONVERGED: f64 = 1e-13;
/// Smaller differences in ln are rounding errors: measurements have few digits.
pub(super) const ROUNDING: f64 = 1e-9;
/// Measurements that deviate from the median residual by more robust standard deviations are
/// strays. By chance alone, fewer than one in a hundred sweeps has such a measurement.
const STRAY: f64 = 6.0;
/// The median of the absolute value of a standard normal.
const MEDIAN_OF_ABS: f64 = 0.6745;
/// At most one of this many observations may be a stray.
const ONE_OF: usize = 10;
/// Minimum number of measurements of a point with a stray: of two, either may be it.
const COUNT_LEAST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observation {
    pub(super) point: usize,
    /// Index of the block, from 0.
    pub(super) block: usize,
    /// Natural logarithm of the step time.
    pub(super) ln_ms: f64,
}

/// Measurements of all points, prepared for comparison.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// ln(step time) of each point at the mean state of the machine; `None` without observations.
    pub(super) means: Vec<Option<f64>>,
    /// State of the machine in each block relative to its mean; `None` without observations.
    states: Vec<Option<f64>>,
    /// For each point, the numbers of its observations by block.
    counts: Vec<BTreeMap<usize, f64>>,
    pub(super) freedom: usize,
    /// Variance of one observation; `None` without a degree of freedom.
    pub(super) variance: Option<f64>,
    /// Indices of the observations that were left out.
    pub(super) strays: Vec<usize>,
}

impl Fit {
    /// Fits `observations` of points 0 to `points` − 1, without the strays.
    pub(super) fn new(points: usize, observations: &[Observation]) -> Self {
        let strays = strays(points, observations);
        let indices = (0..observations.len()).filter(|index| !strays.contains(index));
        let kept: Vec<Observation> = indices.map(|index| observations[index]).collect();
        Self {
            strays,
            ..Self::of_all(points, &kept)
        }
    }

    pub(super) fn of_all(points: usize, observations: &[Observation]) -> Self {
        let [of_point, of_block] = groups(points, observations);
        let mut residuals: Vec<f64> = observations.iter().map(|one| one.ln_ms).collect();
        let [effects, blocks] = effects([&of_point, &of_block], &mut residuals, mean);
        let mut counts = vec![BTreeMap::new(); points];
        for one in observations {
            *counts[one.point].entry(one.block).or_default() += 1.0;
        }
        let level = mean(observations.iter().map(|one| blocks[one.block]).collect());
        let freedom = observations.len() - determined(points, blocks.len(), observations);
        let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
        // Without observations there is no effect.
        let known = |effects: Vec<f64>, groups: &[Vec<usize>], level: f64| {
            let effects = effects.into_iter().zip(groups);
            let effects = effects.map(|(of, group)| (!group.is_empty()).then_some(of + level));
            effects.collect()
        };
        Self {
            means: known(effects, &of_point, level),
            states: known(blocks, &of_block, -level),
            counts,
            freedom,
            variance: (freedom > 0).then(|| squares / freedom as f64),
            strays: Vec::new(),
        }
    }

    pub(super) fn count(&self, point: usize) -> usize {
        self.counts[point].values().sum::<f64>() as usize
    }

    pub(super) fn measured(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.means.len()).filter(|&point| self.means[point].is_some())
    }

    /// Returns `point` minus `other` in ln, and the variance of this difference in units of the
    /// variance of one observation; `None` if either has no observations.
    ///
    /// The value is that of the additive model: if both points were measured in the same blocks,
    /// the mean of their differences within blocks. The variance is the variance of this mean over
    /// the common blocks, which is an upper bound of the model's. Without a common block, it is the
    /// sum of the variances of the differences to a third point.
    pub(super) fn difference(&self, point: usize, other: usize) -> Option<(f64, f64)> {
        let value = self.means[point]? - self.means[other]?;
        let through = || {
            // The point with the most measurements; among equals, the first.
            let hub = self.measured().rev().max_by_key(|&hub| self.count(hub))?;
            Some(self.paired(point, hub)? + self.paired(hub, other)?)
        };
        let apart = || 1.0 / self.count(point) as f64 + 1.0 / self.count(other) as f64;
        let variance = self.paired(point, other).or_else(through);
        Some((value, variance.unwrap_or_else(apart)))
    }

    /// Variance of the mean difference within common blocks, weighted by numbers of measurements.
    fn paired(&self, point: usize, other: usize) -> Option<f64> {
        let others = &self.counts[other];
        let weight =
            |(block, count): (&usize, &f64)| Some((1.0 / count + 1.0 / others.get(block)?).recip());
        let weights: f64 = self.counts[point].iter().filter_map(weight).sum();
        (weights > 0.0).then(|| 1.0 / weights)
    }

    /// Returns the difference between the slowest and the fastest of several blocks, ln.
    pub(super) fn drift(&self) -> Option<f64> {
        let states = || self.states.iter().flatten().copied();
        let (least, most) = (states().reduce(f64::min)?, states().reduce(f64::max)?);
        (states().count() > 1).then_some(most - least)
    }

    /// Returns the expected value of an observation, ln; `None` if its block has no other.
    pub(super) fn expected(&self, observation: &Observation) -> Option<f64> {
        let state = self.states.get(observation.block).copied().flatten()?;
        Some(self.means[observation.point]? + state)
    }
}

/// Returns the indices of the observations of each point and of each block.
fn groups(points: usize, observations: &[Observation]) -> [Vec<Vec<usize>>; 2] {
    let blocks = observations.iter().map(|one| one.block + 1).max();
    let mut groups = [points, blocks.unwrap_or(0)].map(|count| vec![Vec::new(); count]);
    for (index, observation) in observations.iter().enumerate() {
        groups[0][observation.point].push(index);
        groups[1][observation.block].push(index);
    }
    groups
}

/// Returns the additive effect of each group of several factors on `values`, and leaves the
/// residuals in `values`.
///
/// The effects are fitted in turns until they converge. With means as centers the result is the
/// least-squares fit. With medians it is Tukey's median polish ("Exploratory Data Analysis", 1977),
/// which is robust against a few outliers; it depends on the order of the factors, and is
/// independent of constant effects of the first one.
pub(super) fn effects<const N: usize>(
    factors: [&[Vec<usize>]; N],
    values: &mut [f64],
    center: fn(Vec<f64>) -> f64,
) -> [Vec<f64>; N] {
    let mut effects = factors.map(|groups| vec![0.0; groups.len()]);
    for _ in 0..TURNS {
        let mut moved: f64 = 0.0;
        for (effects, groups) in effects.iter_mut().zip(factors) {
            for (effect, members) in effects.iter_mut().zip(groups) {
                let by = center(members.iter().map(|&index| values[index]).collect());
                members.iter().for_each(|&index| values[index] -= by);
                *effect += by;
                moved = moved.max(by.abs());
            }
        }
        if moved < CONVERGED {
            break;
        }
    }
    effects
}

/// Indices of equal values together, in ascending order of the values.
pub(crate) fn by_value(values: &[f64]) -> Vec<Vec<usize>> {
    let mut indices: Vec<usize> = (0..values.len()).collect();
    indices.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let groups = indices.chunk_by(|&a, &b| values[a] == values[b]);
    groups.map(<[usize]>::to_vec).collect()
}

pub(crate) fn mean(values: Vec<f64>) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Number of effects of points and blocks that the observations determine: both, less one for each
/// set of points and blocks that no observation connects with the others.
fn determined(points: usize, blocks: usize, observations: &[Observation]) -> usize {
    let mut set: Vec<usize> = (0..points + blocks).collect();
    let mut effects = 0;
    for observation in observations {
        let [a, b] = [observation.point, points + observation.block].map(|node| set[node]);
        if a != b {
            let others = set.iter_mut().filter(|other| **other == b);
            others.for_each(|other| *other = a);
            effects += 1;
        }
    }
    effects
}

/// Indices of the observations that deviate from the median polish by more than chance explains:
/// another program ran on the machine. At most a tenth of the observations, and at least two of
/// each point remain.
fn strays(points: usize, observations: &[Observation]) -> Vec<usize> {
    let [of_point, of_block] = groups(points, observations);
    let mut residuals: Vec<f64> = observations.iter().map(|one| one.ln_ms).collect();
    let median = |values| percentile_of(values, 0.5).unwrap_or(0.0);
    effects([&of_block, &of_point], &mut residuals, median);
    let distance = |index: &usize| residuals[*index].abs();
    let indices = || 0..observations.len();
    let distances = indices().map(|index| distance(&index));
    let scale = percentile_of(distances.filter(|it| *it > ROUNDING).collect(), 0.5);
    let limit = scale.map_or(f64::INFINITY, |median| STRAY * median / MEDIAN_OF_ABS);
    let mut far: Vec<usize> = indices().filter(|index| distance(index) > limit).collect();
    far.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
    let mut counts: Vec<usize> = of_point.iter().map(Vec::len).collect();
    far.retain(|&index| {
        let count = &mut counts[observations[index].point];
        let identified = *count >= COUNT_LEAST;
        *count -= usize::from(identified);
        identified
    });
    far.truncate(observations.len() / ONE_OF);
    far
}

/// Standard errors on each side of `count` differences, so that all their intervals hold
/// simultaneously with probability `level`.
pub(crate) fn critical(count: usize, freedom: usize, level: f64) -> f64 {
    quantile(1.0 - (1.0 - level) / (2.0 * count.max(1) as f64), freedom)
}

/// For each difference, in standard errors, whether it is above 0. With probability `level`, no
/// difference that is 0 or below is selected.
pub(super) fn rejected(t: &[f64], freedom: usize, level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..t.len()).collect();
    order.sort_by(|&a, &b| t[b].total_cmp(&t[a]));
    let mut rejected = vec![false; t.len()];
    for (rank, &index) in order.iter().enumerate() {
        let left = (t.len() - rank) as f64;
        if t[index] <= quantile(1.0 - (1.0 - level) / left, freedom) {
            break;
        }
        rejected[index] = true;
    }
    rejected
}

fn quantile(probability: f64, freedom: usize) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom.max(1) as f64);
    student.map_or(f64::INFINITY, |student| student.inverse_cdf(probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fit of blocks, one a line, with measurements `point=ln`, and the differences of all points.
    fn answer(input: &str) -> String {
        let mut observations = Vec::new();
        for (block, line) in input.lines().enumerate() {
            for cell in line.split_whitespace() {
                let (point, ln_ms) = cell.split_once('=').unwrap();
                let (point, ln_ms) = (point.parse().unwrap(), ln_ms.parse().unwrap());
                observations.push(Observation {
                    point,
                    block,
                    ln_ms,
                });
            }
        }
        let points = observations.iter().map(|one| one.point + 1).max();
        let points = points.unwrap_or(0);
        let fit = Fit::new(points, &observations);
        let numbers = ronde_cases::rounded(&(fit.variance, fit.drift(), &fit.means, &fit.strays));
        let mut answer = format!(
            "freedom {}; variance, drift, means, strays {numbers}\n",
            fit.freedom
        );
        for &stray in &fit.strays {
            let expected = ronde_cases::rounded(&fit.expected(&observations[stray]));
            answer += &format!("expected of {stray}: {expected}\n");
        }
        for (point, other) in (0..points).flat_map(|other| (0..other).map(move |one| (other, one)))
        {
            let difference = ronde_cases::rounded(&fit.difference(point, other));
            answer += &format!("{point} − {other}: {difference}\n");
        }
        answer
    }

    #[test]
    fn fits_by_hand() {
        ronde_cases::check("fits.txt", answer);
    }

    #[test]
    fn critical_values_are_those_of_students_table() {
        // t at 0.975 and 10 degrees of freedom; at 0.995 (five differences) and 20.
        assert!((critical(1, 10, 0.95) - 2.228).abs() < 0.001);
        assert!((critical(5, 20, 0.95) - 2.845).abs() < 0.001);
        assert!(critical(4000, 1, 0.95).is_finite());
    }

    #[test]
    fn each_rejection_makes_the_next_test_easier() {
        // One-sided quantiles of 60 degrees of freedom: 2.178 for three, 2.000 for two, 1.671 for
        // one.
        for (t, expected) in [
            ([1.8, 2.2, 2.1], [true, true, true]),
            ([1.8, 2.1, 2.1], [false, false, false]),
            ([1.8, 2.2, 1.9], [false, true, false]),
        ] {
            assert_eq!(rejected(&t, 60, 0.95), expected);
        }
        assert_eq!(rejected(&[f64::INFINITY, -3.0], 1, 0.95), [true, false]);
    }
}
