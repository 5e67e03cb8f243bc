//! A Gaussian process with a noise variance per observation, for one draw of the hyper-parameters under one hypothesis.
//!
//! With K the prior covariance of the observed settings plus diag(noise_i + τ²) = L Lᵀ, a = L⁻¹ (y − m) and v(x) = L⁻¹ k(X, x):
//! mean(x) = m(x) + v(x)·a, cov(x, x') = k(x, x') − v(x)·v(x'), and the log marginal likelihood is −½ a·a − Σ ln L_ii − n/2 ln 2π
//! (Rasmussen and Williams, algorithm 2.1). The matrices are small (one row per setting tried), so a textbook Cholesky does; it
//! goes row by row, so that a draw can be judged by the first observations alone.

mod joint;

use crate::hypothesis::Hypothesis;
use crate::kernel::{Hyperparameters, Kernel};
use crate::lanes::{Columns, LANES, Pairs, dot, row_start, subtract};
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
    /// The observed settings, and their pairs.
    pub(crate) observed: Columns,
    pub(crate) pairs: Pairs,
    /// The settings that can be chosen.
    pub(crate) candidates: &'a Columns,
    /// Hypotheses, the cold one last.
    pub(crate) hypotheses: Vec<Hypothesis>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(
        kernel: &'a Kernel,
        observations: &'a Observations,
        candidates: &'a Columns,
        hypotheses: Vec<Hypothesis>,
    ) -> Self {
        Self {
            kernel,
            observations,
            observed: Columns::new(kernel, &observations.x),
            pairs: Pairs::new(kernel, &observations.x),
            candidates,
            hypotheses,
        }
    }

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
    /// L below its diagonal, column by column, `stride` apart, so that inner loops run down a column.
    lower: Vec<f64>,
    stride: usize,
    /// 1 / L_ii.
    reciprocal: Vec<f64>,
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
            stride: 0,
            reciprocal: Vec::new(),
            white: Vec::new(),
            log_likelihood_first: 0.0,
            log_likelihood: 0.0,
        }
    }

    /// Conditions the process on the first `rows` observations; `None` if their matrix is not positive definite or something is
    /// not finite.
    pub(crate) fn conditioned(mut self, rows: usize) -> Option<Self> {
        let (observations, hypothesis) = (
            self.scene.observations,
            self.scene.hypothesis(self.hypothesis),
        );
        let done = self.white.len();
        let mut prior = self.prior(done, rows);
        self.restride(rows);
        for i in done..rows {
            let start = row_start(i) - row_start(done);
            let row = &mut prior[start..=start + i];
            for j in 0..i {
                row[j] *= self.reciprocal[j];
                let (value, column) = (row[j], &self.lower[j * rows..(j + 1) * rows]);
                subtract(&mut row[j + 1..i], value, &column[j + 1..i]);
            }
            let (before, variance) = (&row[..i], row[i]);
            let pivot = variance + self.noise(i) - dot(before, before);
            if !(pivot > 0.0 && pivot.is_finite()) {
                return None;
            }
            let pivot = pivot.sqrt();
            let residual = observations.y[i] - hypothesis.observed_mean[i];
            let white = (residual - dot(before, &self.white)) / pivot;
            for (j, value) in before.iter().enumerate() {
                self.lower[j * rows + i] = *value;
            }
            self.reciprocal.push(1.0 / pivot);
            self.white.push(white);
            self.log_likelihood -= 0.5 * white * white + pivot.ln();
            if i == 0 {
                self.log_likelihood_first = self.log_likelihood;
            }
        }
        self.log_likelihood.is_finite().then_some(self)
    }

    /// Makes room for columns of `rows` rows.
    fn restride(&mut self, rows: usize) {
        let mut lower = vec![0.0; rows * rows];
        for (new, old) in lower
            .chunks_exact_mut(rows.max(1))
            .zip(self.lower.chunks_exact(self.stride.max(1)))
        {
            new[..self.stride].copy_from_slice(old);
        }
        (self.lower, self.stride) = (lower, rows);
    }

    /// The variance of observation `i` beside that of the surface.
    fn noise(&self, i: usize) -> f64 {
        self.scene.observations.variance[i] + self.hyper.nugget * self.hyper.nugget + JITTER
    }

    /// Rows `from..to` of the lower triangle of prior covariances of the observed settings.
    fn prior(&self, from: usize, to: usize) -> Vec<f64> {
        let (from, to) = (row_start(from), row_start(to));
        let mut prior = Vec::with_capacity(to - from);
        for block in from / LANES..to.div_ceil(LANES) {
            let apart = self.scene.pairs.block(block);
            let covariances = self.scene.kernel.covariances_apart(&self.hyper, apart);
            let first = block * LANES;
            let inside = from.saturating_sub(first)..LANES.min(to - first);
            prior.extend_from_slice(&covariances[inside]);
        }
        let hypothesis = self.scene.hypothesis(self.hypothesis);
        hypothesis.add_observed(&mut prior, from);
        prior
    }

    /// The prior covariances of observed setting `i` with all observed ones.
    fn observed_row(&self, i: usize) -> Vec<f64> {
        let (scene, n) = (self.scene, self.white.len());
        let from = &scene.observations.x[i];
        let blocks = 0..scene.observed.blocks();
        let block = |block| {
            scene
                .kernel
                .covariances(&self.hyper, from, scene.observed.block(block))
        };
        let mut row: Vec<f64> = blocks.flat_map(block).collect();
        row.truncate(n);
        let hypothesis = scene.hypothesis(self.hypothesis);
        for (j, value) in row.iter_mut().enumerate() {
            let place = row_start(i.max(j)) + i.min(j);
            hypothesis.add_observed(std::slice::from_mut(value), place);
        }
        row
    }

    /// L⁻¹ b.
    fn solve(&self, mut b: Vec<f64>) -> Vec<f64> {
        for i in 0..b.len() {
            b[i] *= self.reciprocal[i];
            let (value, column) = (b[i], &self.lower[i * self.stride..(i + 1) * self.stride]);
            subtract(&mut b[i + 1..], value, &column[i + 1..]);
        }
        b
    }

    /// The posterior mean at the observed settings: y − (noise + τ²) K⁻¹ (y − m).
    pub(crate) fn observed_means(&self) -> Vec<f64> {
        let mut alpha = self.white.clone();
        for i in (0..alpha.len()).rev() {
            let column = &self.lower[i * self.stride..(i + 1) * self.stride];
            let rest = dot(&column[i + 1..], &alpha[i + 1..]);
            alpha[i] = (alpha[i] - rest) * self.reciprocal[i];
        }
        let y = self.scene.observations.y.iter();
        let means = y.zip(alpha).enumerate();
        means
            .map(|(i, (y, alpha))| y - self.noise(i) * alpha)
            .collect()
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
        // L below its diagonal, row by row.
        let rows: Vec<f64> = (0..n)
            .flat_map(|i| (0..i).map(move |j| self.lower[j * self.stride + i]))
            .collect();
        // v of a block of candidates, one row per observation.
        let mut v = vec![[0.0; LANES]; n];
        for block in 0..candidates.blocks() {
            let mut mean = [0.0; LANES];
            let mut variance = hypothesis.candidate_variance(block);
            let mut covariance = [0.0; LANES];
            for i in 0..n {
                let from = &scene.observations.x[i];
                let mut current =
                    scene
                        .kernel
                        .covariances(&self.hyper, from, candidates.block(block));
                hypothesis.add_candidates(&mut current, candidates, i, block);
                if i == reference {
                    // What the two have in common before anything is measured.
                    for lane in 0..LANES {
                        covariance[lane] += current[lane];
                    }
                }
                let row = &rows[row_start(i) - i..][..i];
                for (factor, earlier) in row.iter().zip(&v) {
                    for lane in 0..LANES {
                        current[lane] -= factor * earlier[lane];
                    }
                }
                for lane in 0..LANES {
                    current[lane] *= self.reciprocal[i];
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
        let candidates = Columns::new(&kernel, &points);
        look(&Scene::new(
            &kernel,
            &observations,
            &candidates,
            vec![hypothesis],
        ))
    }

    #[test]
    fn one_observation_by_hand() {
        // k = 1, noise 0.25 + 0.5² = 0.5: mean at the point 2 / 1.5, variance 1 − 1 / 1.5.
        with_scene(
            &[[0.0, 2.0, 0.25]],
            &[0.0, 1.0],
            level(0.0, 1, 2),
            |scene| {
                let gp = Gp::new(scene, 0, hyper(1.0, 1.0, 0.5))
                    .conditioned(1)
                    .unwrap();
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
            },
        );
    }

    #[test]
    fn two_observations_by_hand() {
        // Matrix [[1.1, ρ], [ρ, 1.3]] with ρ = 0.523994, determinant 1.155430; y = (1, −1).
        // α = K⁻¹ y = (1.3 + ρ, −ρ − 1.1) / det = (1.578629, −1.405532).
        let rows = [[0.0, 1.0, 0.1], [1.0, -1.0, 0.3]];
        with_scene(&rows, &[0.0, 1.0], level(0.0, 2, 2), |scene| {
            let gp = Gp::new(scene, 0, hyper(1.0, 1.0, 1e-9))
                .conditioned(2)
                .unwrap();
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
            let gp = Gp::new(scene, 0, hyper(1e-6, 1.0, 1e-6))
                .conditioned(1)
                .unwrap();
            let p = gp.predict(0);
            assert!(
                (p.mean[0] - 0.3).abs() < 1e-6 && p.mean[1].abs() < 1e-6,
                "{p:?}"
            );
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
