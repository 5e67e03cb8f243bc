//! A Gaussian process with a noise variance per observation, for one draw of the hyper-parameters under one hypothesis.
//!
//! With K the prior covariance of the observed settings plus diag(noise_i + τ²) = L Lᵀ, a = L⁻¹ (y − m) and v(x) = L⁻¹ k(X, x):
//! mean(x) = m(x) + v(x)·a, cov(x, x') = k(x, x') − v(x)·v(x'), and the log marginal likelihood is −½ a·a − Σ ln L_ii − n/2 ln 2π
//! (Rasmussen and Williams, algorithm 2.1). The matrices are small (one row per setting tried), so a textbook Cholesky does; it
//! goes row by row, so that a draw can be judged by the first observations alone.

use crate::hypothesis::Hypothesis;
use crate::kernel::{Hyperparameters, Kernel};
use crate::lanes::{Columns, LANES, Lanes, dot};
use crate::space::Coordinates;

/// Added to the diagonal, in squared log step time: far below any noise, enough to keep equal rows apart.
const JITTER: f64 = 1e-10;

/// What was observed: a setting, its value, and the variance of that value's noise, per row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    /// Settings, n rows.
    pub(crate) x: Vec<Coordinates>,
    /// Log step time relative to the reference setting, n rows.
    pub(crate) y: Vec<f64>,
    /// Noise variance of `y`, n rows.
    pub(crate) variance: Vec<f64>,
}

/// Everything that the processes of one proposal have in common.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) observations: &'a Observations,
    /// The observed settings.
    pub(crate) observed: Columns,
    /// The settings that can be chosen.
    pub(crate) candidates: &'a Columns,
    /// Hypotheses, the cold one last.
    pub(crate) hypotheses: Vec<Hypothesis>,
}

impl Scene<'_> {
    pub(crate) fn hypothesis(&self, index: usize) -> &Hypothesis {
        &self.hypotheses[index]
    }
}

/// Posterior at the candidates and, for each, its covariance with one observed setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prediction {
    pub(crate) mean: Vec<f64>,
    pub(crate) variance: Vec<f64>,
    pub(crate) covariance: Vec<f64>,
}

/// The posterior under one draw.
#[derive(Clone)]
pub(crate) struct Gp<'a> {
    scene: &'a Scene<'a>,
    /// Index of the hypothesis.
    pub(crate) hypothesis: usize,
    hyper: Hyperparameters,
    /// L, row by row: row i starts at i (i + 1) / 2.
    lower: Vec<f64>,
    /// a = L⁻¹ (y − m), one for each row of L.
    white: Vec<f64>,
    /// Log marginal likelihood of the first row, and of all, without the constants −½ ln 2π.
    pub(crate) log_likelihood_first: f64,
    pub(crate) log_likelihood: f64,
}

impl<'a> Gp<'a> {
    /// A process that has seen no observation yet.
    pub(crate) fn new(scene: &'a Scene<'a>, hypothesis: usize, hyper: Hyperparameters) -> Self {
        Self {
            scene,
            hypothesis,
            hyper,
            lower: Vec::new(),
            white: Vec::new(),
            log_likelihood_first: 0.0,
            log_likelihood: 0.0,
        }
    }

    /// Conditions the process on the first `rows` observations; `None` if their matrix is not positive definite or something is
    /// not finite.
    pub(crate) fn conditioned(mut self, rows: usize) -> Option<Self> {
        let (scene, hypothesis) = (self.scene, self.scene.hypothesis(self.hypothesis));
        let observations = scene.observations;
        self.lower.reserve(rows * (rows + 1) / 2 - self.lower.len());
        for i in self.white.len()..rows {
            let row = self.lower.len();
            for block in 0..=i / LANES {
                let covariances = self.observed_covariances(i, block);
                let inside = (i + 1 - block * LANES).min(LANES);
                self.lower.extend_from_slice(&covariances[..inside]);
            }
            for j in 0..i {
                let start = j * (j + 1) / 2;
                let (earlier, current) = self.lower.split_at_mut(row);
                let rest = dot(&current[..j], &earlier[start..start + j]);
                current[j] = (current[j] - rest) / earlier[start + j];
            }
            let (before, variance) = (&self.lower[row..row + i], self.lower[row + i]);
            let pivot = variance + self.noise(i) - dot(before, before);
            if !(pivot > 0.0 && pivot.is_finite()) {
                return None;
            }
            let pivot = pivot.sqrt();
            let residual = observations.y[i] - hypothesis.observed_mean[i];
            let white = (residual - dot(before, &self.white)) / pivot;
            self.lower[row + i] = pivot;
            self.white.push(white);
            self.log_likelihood -= 0.5 * white * white + pivot.ln();
            if i == 0 {
                self.log_likelihood_first = self.log_likelihood;
            }
        }
        self.log_likelihood.is_finite().then_some(self)
    }

    /// The variance of observation `i` beside that of the surface.
    fn noise(&self, i: usize) -> f64 {
        self.scene.observations.variance[i] + self.hyper.nugget * self.hyper.nugget + JITTER
    }

    /// The prior covariances of observed setting `i` with a block of observed ones.
    #[inline]
    fn observed_covariances(&self, i: usize, block: usize) -> Lanes {
        let observed = &self.scene.observed;
        let from = &self.scene.observations.x[i];
        let mut covariances = self
            .scene
            .kernel
            .covariances(&self.hyper, from, observed.block(block));
        let hypothesis = self.scene.hypothesis(self.hypothesis);
        hypothesis.add_observed(&mut covariances, observed, i, block);
        covariances
    }

    /// The prior covariances of observed setting `i` with all observed ones.
    fn observed_row(&self, i: usize) -> Vec<f64> {
        let blocks = 0..self.scene.observed.blocks();
        let mut row: Vec<f64> = blocks
            .flat_map(|block| self.observed_covariances(i, block))
            .collect();
        row.truncate(self.white.len());
        row
    }

    /// L⁻¹ b.
    fn solve(&self, mut b: Vec<f64>) -> Vec<f64> {
        for i in 0..b.len() {
            let row = &self.lower[i * (i + 1) / 2..];
            b[i] = (b[i] - dot(&row[..i], &b[..i])) / row[i];
        }
        b
    }

    /// The posterior mean at the observed settings: y − (noise + τ²) K⁻¹ (y − m).
    pub(crate) fn observed_means(&self) -> Vec<f64> {
        let mut alpha = self.white.clone();
        for i in (0..alpha.len()).rev() {
            let (before, rest) = alpha.split_at_mut(i);
            let row = &self.lower[i * (i + 1) / 2..];
            rest[0] /= row[i];
            for (value, factor) in before.iter_mut().zip(row) {
                *value -= factor * rest[0];
            }
        }
        let y = self.scene.observations.y.iter();
        let means = y.zip(alpha).enumerate();
        means.map(|(i, (y, alpha))| y - self.noise(i) * alpha).collect()
    }

    /// The posterior variances at two observed settings, and their covariance.
    pub(crate) fn observed_covariance(&self, a: usize, b: usize) -> [f64; 3] {
        let (row_a, row_b) = (self.observed_row(a), self.observed_row(b));
        let prior = [row_a[a], row_b[b], row_a[b]];
        let (a, b) = (self.solve(row_a), self.solve(row_b));
        [
            prior[0] - dot(&a, &a),
            prior[1] - dot(&b, &b),
            prior[2] - dot(&a, &b),
        ]
    }

    /// The posterior at the candidates, and its covariance with the surface at the observed setting `reference`.
    pub(crate) fn predict(&self, reference: usize) -> Prediction {
        let (scene, hypothesis) = (self.scene, self.scene.hypothesis(self.hypothesis));
        let (n, candidates) = (self.white.len(), scene.candidates);
        let at_reference = self.solve(self.observed_row(reference));
        let mut prediction = Prediction {
            mean: hypothesis.candidate_mean.clone(),
            ..Prediction::default()
        };
        // v of a block of candidates, one row per observation.
        let mut v = vec![[0.0; LANES]; n];
        for block in 0..candidates.blocks() {
            let mut mean = [0.0; LANES];
            let mut variance = hypothesis.candidate_variance(block);
            let mut covariance = [0.0; LANES];
            for i in 0..n {
                let from = &scene.observations.x[i];
                let mut current = scene
                    .kernel
                    .covariances(&self.hyper, from, candidates.block(block));
                hypothesis.add_candidates(&mut current, candidates, i, block);
                if i == reference {
                    // What the two have in common before anything is measured.
                    for lane in 0..LANES {
                        covariance[lane] += current[lane];
                    }
                }
                let row = &self.lower[i * (i + 1) / 2..];
                for (factor, earlier) in row[..i].iter().zip(&v) {
                    for lane in 0..LANES {
                        current[lane] -= factor * earlier[lane];
                    }
                }
                let scale = 1.0 / row[i];
                for lane in 0..LANES {
                    current[lane] *= scale;
                    mean[lane] += current[lane] * self.white[i];
                    variance[lane] -= current[lane] * current[lane];
                    covariance[lane] -= current[lane] * at_reference[i];
                }
                v[i] = current;
            }
            let start = block * LANES;
            let inside = (candidates.len() - start).min(LANES);
            let signal = self.hyper.signal * self.hyper.signal;
            for lane in 0..inside {
                prediction.mean[start + lane] += mean[lane];
                prediction.variance.push((variance[lane] + signal).max(0.0));
                prediction.covariance.push(covariance[lane]);
            }
        }
        prediction
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::Belief;
    use crate::{Parameter, Space};

    pub(crate) fn at(x: f64) -> Coordinates {
        let mut c = Coordinates::default();
        c[0] = x;
        c
    }

    pub(crate) fn kernel() -> Kernel {
        Kernel::new(&Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap())
    }

    fn hyper(signal: f64, length: f64, nugget: f64) -> Hyperparameters {
        Hyperparameters {
            signal,
            scales: [length; 8],
            nugget,
        }
    }

    /// A hypothesis without a model, with the level's variance given.
    fn level(level: f64, observed: usize, candidates: usize) -> Hypothesis {
        let mut hypothesis = Hypothesis::cold(observed, candidates);
        hypothesis.level = level;
        hypothesis
    }

    /// Observations as (x, y, variance).
    pub(crate) fn observations(rows: &[[f64; 3]]) -> Observations {
        Observations {
            x: rows.iter().map(|row| at(row[0])).collect(),
            y: rows.iter().map(|row| row[1]).collect(),
            variance: rows.iter().map(|row| row[2]).collect(),
        }
    }

    fn with_scene<R>(
        rows: &[[f64; 3]],
        candidates: &[f64],
        hypothesis: Hypothesis,
        look: impl FnOnce(&Scene) -> R,
    ) -> R {
        let (kernel, observations) = (kernel(), observations(rows));
        let points: Vec<Coordinates> = candidates.iter().map(|&x| at(x)).collect();
        look(&Scene {
            kernel: &kernel,
            observed: Columns::new(&kernel, &observations.x),
            observations: &observations,
            candidates: &Columns::new(&kernel, &points),
            hypotheses: vec![hypothesis],
        })
    }

    #[test]
    fn one_observation_by_hand() {
        // k = 1, noise 0.25 + 0.5² = 0.5: mean at the point 2 / 1.5, variance 1 − 1 / 1.5.
        with_scene(&[[0.0, 2.0, 0.25]], &[0.0, 1.0], level(0.0, 1, 2), |scene| {
            let gp = Gp::new(scene, 0, hyper(1.0, 1.0, 0.5)).conditioned(1).unwrap();
            let p = gp.predict(0);
            assert!((p.mean[0] - 4.0 / 3.0).abs() < 1e-8);
            assert!((p.variance[0] - 1.0 / 3.0).abs() < 1e-8);
            assert!((p.covariance[0] - 1.0 / 3.0).abs() < 1e-8);
            // At r = 1 the correlation is ρ = 0.523994: mean ρ 4/3, variance 1 − ρ² / 1.5, covariance ρ − ρ / 1.5.
            assert!((p.mean[1] - 0.698_659).abs() < 1e-5);
            assert!((p.variance[1] - 0.816_954).abs() < 1e-5);
            assert!((p.covariance[1] - 0.174_665).abs() < 1e-5);
            // −½ 4 / 1.5 − ½ ln 1.5.
            assert!((gp.log_likelihood - (-4.0 / 3.0 - 0.202_733)).abs() < 1e-5);
            assert!((gp.observed_means()[0] - 4.0 / 3.0).abs() < 1e-8);
        });
    }

    #[test]
    fn two_observations_by_hand() {
        // Matrix [[1.1, ρ], [ρ, 1.3]] with ρ = 0.523994, determinant 1.155430; y = (1, −1).
        // α = K⁻¹ y = (1.3 + ρ, −ρ − 1.1) / det = (1.578629, −1.405532).
        let rows = [[0.0, 1.0, 0.1], [1.0, -1.0, 0.3]];
        with_scene(&rows, &[0.0, 1.0], level(0.0, 2, 2), |scene| {
            let gp = Gp::new(scene, 0, hyper(1.0, 1.0, 1e-9)).conditioned(2).unwrap();
            let p = gp.predict(1);
            assert!((p.mean[0] - 0.842_139).abs() < 1e-5, "{}", p.mean[0]);
            assert!((p.mean[1] + 0.578_340).abs() < 1e-5, "{}", p.mean[1]);
            // Variance at 0: 1 − (1.3 − 2ρ² + 1.1ρ²) / det.
            let (rho, det) = (0.523_994_1, 1.155_430_2);
            let variance = 1.0 - (1.3 - 2.0 * rho * rho + 1.1 * rho * rho) / det;
            assert!((p.variance[0] - variance).abs() < 1e-5);
            // k(X,0) = (1, ρ), k(X,1) = (ρ, 1): quadratic form (1.3ρ − ρ − ρ³ + 1.1ρ) / det.
            let covariance = rho - (1.3 * rho - rho - rho * rho * rho + 1.1 * rho) / det;
            assert!((p.covariance[0] - covariance).abs() < 1e-5);
            assert!((p.covariance[1] - p.variance[1]).abs() < 1e-12);
            let [first, second, both] = gp.observed_covariance(0, 1);
            for (seen, expected) in [
                (first, p.variance[0]),
                (second, p.variance[1]),
                (both, p.covariance[0]),
            ] {
                assert!((seen - expected).abs() < 1e-12, "{seen} {expected}");
            }
            for (seen, expected) in gp.observed_means().iter().zip(&p.mean) {
                assert!((seen - expected).abs() < 1e-9, "{seen} {expected}");
            }
        });
    }

    #[test]
    fn a_model_moves_mean_and_covariance_by_hand() {
        // Mean (0.2 at x = 0, 0 at x = 1), one feature (0.5, 0); no signal to speak of. One observation at x = 0 of 0.4, variance 0.25:
        // k = 0.25 there, the residual 0.2 is half believed. At x = 1 the feature says nothing.
        let belief = Belief {
            mean: vec![0.2, 0.0, 0.2],
            features: vec![vec![0.5], vec![0.0], vec![0.5]],
        };
        let hypothesis = Hypothesis::with_model(&belief, 2, 0.0, 1.0);
        with_scene(&[[0.0, 0.4, 0.25]], &[0.0, 1.0], hypothesis, |scene| {
            let gp = Gp::new(scene, 0, hyper(1e-6, 1.0, 1e-6)).conditioned(1).unwrap();
            let p = gp.predict(0);
            assert!((p.mean[0] - 0.3).abs() < 1e-6 && p.mean[1].abs() < 1e-6, "{p:?}");
            assert!(
                (p.variance[0] - 0.125).abs() < 1e-6 && p.variance[1] < 1e-6,
                "{p:?}"
            );
        });
    }

    #[test]
    fn rows_can_be_added_later_and_places_in_a_block_do_not_matter() {
        let rows: Vec<[f64; 3]> = (0..40)
            .map(|i| [f64::from(i * 7 % 40) / 40.0, f64::from(i % 5) * 0.1, 1e-3])
            .collect();
        let x: Vec<f64> = (0..37).map(|i| f64::from(i) / 36.0).collect();
        let all = with_scene(&rows, &x, level(0.04, 40, 37), |scene| {
            let gp = |rows| Gp::new(scene, 0, hyper(0.2, 0.4, 0.005)).conditioned(rows);
            let (whole, grown) = (gp(40).unwrap(), gp(16).unwrap().conditioned(33).unwrap());
            let grown = grown.conditioned(40).unwrap();
            assert_eq!((&whole.lower, &whole.white), (&grown.lower, &grown.white));
            assert_eq!(whole.log_likelihood, grown.log_likelihood);
            whole.predict(3)
        });
        for (i, &x) in x.iter().enumerate() {
            let one = with_scene(&rows, &[x], level(0.04, 40, 1), |scene| {
                Gp::new(scene, 0, hyper(0.2, 0.4, 0.005))
                    .conditioned(40)
                    .unwrap()
                    .predict(3)
            });
            assert_eq!(
                (one.mean[0], one.variance[0], one.covariance[0]),
                (all.mean[i], all.variance[i], all.covariance[i])
            );
            assert!(all.variance[i] > 0.0);
        }
    }

    #[test]
    fn singular_or_nan_is_refused() {
        let refused = |rows: &[[f64; 3]], nugget| {
            with_scene(rows, &[0.0], level(0.0, 2, 1), |scene| {
                Gp::new(scene, 0, hyper(1.0, 1.0, nugget))
                    .conditioned(2)
                    .is_none()
            })
        };
        assert!(refused(&[[0.0, 0.0, -0.5], [0.0, 1.0, -0.5]], 0.0));
        assert!(refused(&[[0.0, 0.0, 0.1], [0.0, f64::NAN, 0.1]], 0.0));
        assert!(!refused(&[[0.0, 0.0, 0.1], [0.0, 1.0, 0.1]], 0.0));
    }
}
