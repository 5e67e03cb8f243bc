//! The posterior of many settings at once: mean and covariance, from which whole surfaces are drawn.

use super::Gp;
use crate::lanes::{LANES, Pairs, dot, row_start, subtract};

/// A pivot below this is a setting that others determine.
const PIVOT_MIN: f64 = 1e-12;

/// The candidates' joint posterior.
pub(crate) struct Joint {
    /// One mean per candidate.
    pub(crate) mean: Vec<f64>,
    /// L with L Lᵀ the covariance, as a lower triangle by rows. A row of zeros below its diagonal is a setting that is known.
    lower: Vec<f64>,
}

impl Joint {
    /// The surface that standard normal `scores`, one per candidate, stand for.
    pub(crate) fn surface(&self, scores: &[f64]) -> Vec<f64> {
        let row = |i: usize| dot(&self.lower[row_start(i)..=row_start(i) + i], &scores[..=i]);
        self.mean
            .iter()
            .enumerate()
            .map(|(i, mean)| mean + row(i))
            .collect()
    }
}

impl Gp<'_> {
    /// The posterior of all candidates together; `pairs` are theirs. Of a hypothesis without a model.
    pub(crate) fn joint(&self, pairs: &Pairs) -> Joint {
        let (scene, hypothesis) = (self.scene, self.scene.hypothesis(self.hypothesis));
        let (n, candidates) = (self.white.len(), scene.candidates);
        let mut mean = hypothesis.candidate_mean.clone();
        // v(x), one row per observation and one column per candidate.
        let mut v: Vec<Vec<f64>> = Vec::with_capacity(n);
        for i in 0..n {
            let mut row = Vec::with_capacity(candidates.blocks() * LANES);
            for block in 0..candidates.blocks() {
                let from = &scene.observations.x[i];
                let mut lanes =
                    scene
                        .kernel
                        .covariances(&self.hyper, from, candidates.block(block));
                hypothesis.add_candidates(&mut lanes, candidates, i, block);
                row.extend_from_slice(&lanes);
            }
            row.truncate(candidates.len());
            for (j, earlier) in v.iter().enumerate() {
                subtract(&mut row, self.lower[j * self.stride + i], earlier);
            }
            for (value, mean) in row.iter_mut().zip(&mut mean) {
                *value *= self.reciprocal[i];
                *mean += *value * self.white[i];
            }
            v.push(row);
        }
        Joint {
            mean,
            lower: factor(self.covariance(&v, pairs), candidates.len()),
        }
    }

    /// k(x, x') + c₀² − v(x)·v(x') of all pairs of candidates.
    fn covariance(&self, v: &[Vec<f64>], pairs: &Pairs) -> Vec<f64> {
        let count = self.scene.candidates.len();
        let level = self.scene.hypothesis(self.hypothesis).level;
        let mut covariance = Vec::with_capacity(pairs.blocks() * LANES);
        for block in 0..pairs.blocks() {
            let lanes = self
                .scene
                .kernel
                .covariances_apart(&self.hyper, pairs.block(block));
            covariance.extend(lanes.map(|lane| lane + level));
        }
        covariance.truncate(row_start(count));
        for i in 0..count {
            let row = &mut covariance[row_start(i)..=row_start(i) + i];
            for known in v {
                subtract(row, known[i], &known[..=i]);
            }
        }
        covariance
    }
}

/// The Cholesky factor of a covariance that may be singular, in its place.
fn factor(mut lower: Vec<f64>, count: usize) -> Vec<f64> {
    for i in 0..count {
        let (before, rest) = lower.split_at_mut(row_start(i));
        let row = &mut rest[..=i];
        for j in 0..i {
            let other = &before[row_start(j)..=row_start(j) + j];
            row[j] = if other[j] > 0.0 {
                (row[j] - dot(&other[..j], &row[..j])) / other[j]
            } else {
                0.0
            };
        }
        let pivot = row[i] - dot(&row[..i], &row[..i]);
        row[i] = if pivot > PIVOT_MIN { pivot.sqrt() } else { 0.0 };
    }
    lower
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gp::Scene;
    use crate::gp::tests::{at, kernel, observations};
    use crate::hypothesis::Hypothesis;
    use crate::kernel::Hyperparameters;
    use crate::lanes::Columns;

    #[test]
    fn factors_by_hand() {
        // [[4, 2], [2, 5]] = L Lᵀ with L = [[2, 0], [1, 2]].
        assert_eq!(factor(vec![4.0, 2.0, 5.0], 2), [2.0, 1.0, 2.0]);
        // Two names of one setting.
        assert_eq!(factor(vec![4.0, 4.0, 4.0], 2), [2.0, 2.0, 0.0]);
    }

    #[test]
    fn the_joint_posterior_agrees_with_that_of_each_setting() {
        let kernel = kernel();
        let observations = observations(&[[0.0, 0.3, 0.01], [0.4, -0.2, 0.02], [0.4, -0.1, 0.02]]);
        let places = [0.0, 0.2, 0.4, 0.4, 1.0].map(at);
        let candidates = Columns::new(&kernel, &places);
        let hypothesis = Hypothesis::cold(3, places.len());
        let scene = Scene::new(&kernel, &observations, &candidates, vec![hypothesis]);
        let hyper = Hyperparameters {
            signal: 0.2,
            scales: [0.5; 8],
            nugget: 0.01,
        };
        let gp = Gp::new(&scene, 0, hyper).conditioned(3).unwrap();
        let (joint, each) = (gp.joint(&Pairs::new(&kernel, &places)), gp.predict(0));
        for i in 0..places.len() {
            let row = &joint.lower[row_start(i)..=row_start(i) + i];
            assert!((joint.mean[i] - each.mean[i]).abs() < 1e-12);
            assert!((dot(row, row) - each.variance[i]).abs() < 1e-9, "{i}");
        }
        // The same place twice is one value, whatever the scores.
        let surface = joint.surface(&[0.3, -1.0, 2.0, 5.0, -3.0]);
        assert!((surface[2] - surface[3]).abs() < 1e-6);
        assert_eq!(joint.surface(&[0.0; 5]), joint.mean);
    }
}
