//! A Gaussian process with a noise variance per observation, for one draw of the hyper-parameters.
//!
//! With K the kernel matrix of the observed settings plus diag(noise_i + τ²) = L Lᵀ, a = L⁻¹ y and v(x) = L⁻¹ k(X, x):
//! mean(x) = v(x)·a, cov(x, x') = k(x, x') − v(x)·v(x'), and the log marginal likelihood is −½ a·a − Σ ln L_ii − n/2 ln 2π
//! (Rasmussen and Williams, algorithm 2.1). The matrices are small (one row per setting tried), so a textbook Cholesky does.

use crate::kernel::{Hyperparameters, Kernel};
use crate::space::Coordinates;

/// Added to the diagonal, in squared log step time: far below any noise, enough to keep equal rows apart.
const JITTER: f64 = 1e-10;
/// Candidates handled at a time: the inner loops run over them, contiguous and short enough for the first-level cache.
const BLOCK: usize = 64;

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

/// Posterior at a list of settings and, for each, its covariance with one reference setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prediction {
    pub(crate) mean: Vec<f64>,
    pub(crate) variance: Vec<f64>,
    pub(crate) covariance: Vec<f64>,
}

/// The posterior under one draw.
pub(crate) struct Gp<'a> {
    kernel: &'a Kernel,
    hyper: Hyperparameters,
    observations: &'a Observations,
    /// L, row by row: row i starts at i (i + 1) / 2.
    lower: Vec<f64>,
    /// a = L⁻¹ y.
    white: Vec<f64>,
}

impl<'a> Gp<'a> {
    /// Conditions the process on the observations; `None` if the matrix is not positive definite or something is not finite.
    pub(crate) fn condition(
        kernel: &'a Kernel,
        hyper: Hyperparameters,
        observations: &'a Observations,
    ) -> Option<Self> {
        let n = observations.x.len();
        let mut lower = Vec::with_capacity(n * (n + 1) / 2);
        for i in 0..n {
            let row = lower.len();
            for j in 0..i {
                let covariance = kernel.covariance(&hyper, &observations.x[i], &observations.x[j]);
                let start = j * (j + 1) / 2;
                let dot = dot(&lower[row..row + j], &lower[start..start + j]);
                lower.push((covariance - dot) / lower[start + j]);
            }
            let noise = observations.variance[i] + hyper.nugget * hyper.nugget + JITTER;
            let pivot = kernel.variance(&hyper) + noise - dot(&lower[row..], &lower[row..]);
            if !(pivot > 0.0 && pivot.is_finite()) {
                return None;
            }
            lower.push(pivot.sqrt());
        }
        let mut gp = Self {
            kernel,
            hyper,
            observations,
            lower,
            white: Vec::new(),
        };
        gp.white = gp.solve(observations.y.clone());
        gp.white.iter().all(|v| v.is_finite()).then_some(gp)
    }

    /// L⁻¹ b.
    fn solve(&self, mut b: Vec<f64>) -> Vec<f64> {
        for i in 0..b.len() {
            let row = &self.lower[i * (i + 1) / 2..];
            b[i] = (b[i] - dot(&row[..i], &b[..i])) / row[i];
        }
        b
    }

    /// v(x) = L⁻¹ k(X, x).
    fn whiten(&self, x: &Coordinates) -> Vec<f64> {
        self.solve(
            self.observations
                .x
                .iter()
                .map(|o| self.kernel.covariance(&self.hyper, o, x))
                .collect(),
        )
    }

    /// Log marginal likelihood, without the constant −n/2 ln 2π.
    pub(crate) fn log_likelihood(&self) -> f64 {
        let log_det: f64 = (0..self.white.len())
            .map(|i| self.lower[i * (i + 1) / 2 + i].ln())
            .sum();
        -0.5 * dot(&self.white, &self.white) - log_det
    }

    /// The posterior at `points`, and its covariance with the surface at `reference`.
    pub(crate) fn predict(&self, points: &[Coordinates], reference: &Coordinates) -> Prediction {
        let n = self.white.len();
        let at_reference = self.whiten(reference);
        let mut prediction = Prediction::default();
        // v of a block of candidates, n rows of BLOCK; the loops over candidates are the inner ones.
        let mut v = vec![[0.0; BLOCK]; n];
        for block in points.chunks(BLOCK) {
            let mut mean = [0.0; BLOCK];
            let mut variance = [self.kernel.variance(&self.hyper); BLOCK];
            let mut covariance = [0.0; BLOCK];
            for (out, point) in covariance.iter_mut().zip(block) {
                *out = self.kernel.covariance(&self.hyper, point, reference);
            }
            for i in 0..n {
                let row = &self.lower[i * (i + 1) / 2..];
                let (done, rest) = v.split_at_mut(i);
                let current = &mut rest[0];
                for (out, point) in current.iter_mut().zip(block) {
                    *out = self
                        .kernel
                        .covariance(&self.hyper, &self.observations.x[i], point);
                }
                for (factor, earlier) in row.iter().zip(done.iter()) {
                    for (out, value) in current.iter_mut().zip(earlier) {
                        *out -= factor * value;
                    }
                }
                for c in 0..BLOCK {
                    current[c] /= row[i];
                    mean[c] += current[c] * self.white[i];
                    variance[c] -= current[c] * current[c];
                    covariance[c] -= current[c] * at_reference[i];
                }
            }
            prediction.mean.extend_from_slice(&mean[..block.len()]);
            prediction.variance.extend_from_slice(&variance[..block.len()]);
            prediction
                .covariance
                .extend_from_slice(&covariance[..block.len()]);
        }
        prediction
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Space};

    fn kernel(constant: f64) -> Kernel {
        Kernel::new(
            &Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap(),
            constant,
        )
    }

    fn hyper(signal: f64, length: f64, nugget: f64) -> Hyperparameters {
        Hyperparameters {
            signal,
            scales: [length; 8],
            nugget,
        }
    }

    fn at(x: f64) -> Coordinates {
        let mut c = Coordinates::default();
        c[0] = x;
        c
    }

    #[test]
    fn one_observation_by_hand() {
        // k = 1, noise 0.25 + 0.5² = 0.5: mean at the point 2 / 1.5, variance 1 − 1 / 1.5.
        let observations = Observations {
            x: vec![at(0.0)],
            y: vec![2.0],
            variance: vec![0.25],
        };
        let kernel = kernel(0.0);
        let gp = Gp::condition(&kernel, hyper(1.0, 1.0, 0.5), &observations).unwrap();
        let p = gp.predict(&[at(0.0), at(1.0)], &at(0.0));
        assert!((p.mean[0] - 4.0 / 3.0).abs() < 1e-8);
        assert!((p.variance[0] - 1.0 / 3.0).abs() < 1e-8);
        assert!((p.covariance[0] - 1.0 / 3.0).abs() < 1e-8);
        // At r = 1 the correlation is ρ = 0.523994: mean ρ 4/3, variance 1 − ρ² / 1.5, covariance ρ − ρ / 1.5.
        assert!((p.mean[1] - 0.698_659).abs() < 1e-5);
        assert!((p.variance[1] - 0.816_954).abs() < 1e-5);
        assert!((p.covariance[1] - 0.174_665).abs() < 1e-5);
        // −½ 4 / 1.5 − ½ ln 1.5.
        assert!((gp.log_likelihood() - (-4.0 / 3.0 - 0.202_733)).abs() < 1e-5);
    }

    #[test]
    fn two_observations_by_hand() {
        // Matrix [[1.1, ρ], [ρ, 1.3]] with ρ = 0.523994, determinant 1.155430; y = (1, −1).
        // α = K⁻¹ y = (1.3 + ρ, −ρ − 1.1) / det = (1.578629, −1.405532).
        let observations = Observations {
            x: vec![at(0.0), at(1.0)],
            y: vec![1.0, -1.0],
            variance: vec![0.1, 0.3],
        };
        let kernel = kernel(0.0);
        let gp = Gp::condition(&kernel, hyper(1.0, 1.0, 1e-9), &observations).unwrap();
        let p = gp.predict(&[at(0.0), at(1.0)], &at(1.0));
        assert!((p.mean[0] - 0.842_139).abs() < 1e-5, "{}", p.mean[0]);
        assert!((p.mean[1] + 0.578_340).abs() < 1e-5, "{}", p.mean[1]);
        // Variance at 0: 1 − (1.3 − 2ρ² + 1.1ρ²) / det; covariance (0, 1): ρ − (ρ 1.3 − ρ² ρ ... ) worked out below.
        let (rho, det) = (0.523_994_1, 1.155_430_2);
        let variance = 1.0 - (1.3 - 2.0 * rho * rho + 1.1 * rho * rho) / det;
        assert!((p.variance[0] - variance).abs() < 1e-5);
        // k(X,0) = (1, ρ), k(X,1) = (ρ, 1): quadratic form (1.3ρ − ρ − ρ³ + 1.1ρ) / det.
        let covariance = rho - (1.3 * rho - rho - rho * rho * rho + 1.1 * rho) / det;
        assert!((p.covariance[0] - covariance).abs() < 1e-5);
        assert!((p.covariance[1] - p.variance[1]).abs() < 1e-12);
    }

    #[test]
    fn blocks_agree_with_single_points() {
        let observations = Observations {
            x: vec![at(0.0), at(0.3), at(0.9)],
            y: vec![0.0, -0.1, 0.2],
            variance: vec![1e-4, 2e-4, 3e-4],
        };
        let kernel = kernel(0.04);
        let gp = Gp::condition(&kernel, hyper(0.2, 0.4, 0.005), &observations).unwrap();
        let points: Vec<_> = (0..150).map(|i| at(f64::from(i) / 149.0)).collect();
        let all = gp.predict(&points, &at(0.3));
        for (i, &point) in points.iter().enumerate() {
            let one = gp.predict(&[point], &at(0.3));
            assert_eq!((one.mean[0], one.variance[0]), (all.mean[i], all.variance[i]));
            assert!(all.variance[i] > 0.0);
        }
    }

    #[test]
    fn singular_or_nan_is_refused() {
        let mut observations = Observations {
            x: vec![at(0.0), at(0.0)],
            y: vec![0.0, 1.0],
            variance: vec![-0.5; 2],
        };
        assert!(Gp::condition(&kernel(0.0), hyper(1.0, 1.0, 0.0), &observations).is_none());
        observations.variance = vec![0.1; 2];
        observations.y[1] = f64::NAN;
        assert!(Gp::condition(&kernel(0.0), hyper(1.0, 1.0, 0.0), &observations).is_none());
    }
}
