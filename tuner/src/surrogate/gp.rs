//! A Gaussian process with a noise variance per observation, for one draw of the hyper-parameters.
//!
//! With K the prior covariance of the observed settings plus diag(noise_i + τ²) = L Lᵀ,
//! a = L⁻¹ (y − m) and v(x) = L⁻¹ k(X, x): mean(x) = m(x) + v(x)·a,
//! cov(x, x') = k(x, x') − v(x)·v(x'), and the log marginal likelihood is
//! −½ a·a − Σ ln L_ii − n/2 ln 2π (Rasmussen and Williams, algorithm 2.1).

use crate::space::Coordinates;
use crate::surrogate::kernel::{Hyperparameters, Kernel};

/// Added to the diagonal, in squared log step time, so that equal rows do not make it singular.
const JITTER: f64 = 1e-10;
/// A pivot below this belongs to a setting that others determine.
const PIVOT_MIN: f64 = 1e-12;

/// Prior of the log step time relative to the reference's, at a list of settings: mean m(x) and
/// covariance c₀² + φ(x)·φ(x') + k(x, x'), with k the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Prior<'a> {
    kernel: &'a Kernel,
    x: &'a [Coordinates],
    /// The observed settings, the reference first.
    observed: Vec<usize>,
    /// m of each setting.
    pub(crate) mean: Vec<f64>,
    /// φ of each setting; no lists if there are no features.
    features: Vec<Vec<f64>>,
    /// c₀², variance of the level.
    level: f64,
    /// Prior median of s.
    signal: f64,
    /// c₀² + φ(x)·φ(x') of each observed setting with all settings: the same for all draws.
    common: Vec<Vec<f64>>,
}

impl<'a> Prior<'a> {
    /// The prior at the settings `x`, of which some are `observed`, with this variance of the level
    /// and median of s. There is a mean for each setting, and a list of features unless there are
    /// none.
    pub(crate) fn new(
        kernel: &'a Kernel,
        x: &'a [Coordinates],
        observed: Vec<usize>,
        (level, signal): (f64, f64),
        (mean, features): (Vec<f64>, Vec<Vec<f64>>),
    ) -> Self {
        let mut prior = Self {
            kernel,
            x,
            observed,
            mean,
            features,
            level,
            signal,
            common: Vec::new(),
        };
        let row = |&i: &usize| (0..x.len()).map(|j| prior.common(i, j)).collect();
        prior.common = prior.observed.iter().map(row).collect();
        prior
    }

    fn common(&self, i: usize, j: usize) -> f64 {
        match (self.features.get(i), self.features.get(j)) {
            (Some(a), Some(b)) => self.level + dot(a, b),
            _ => self.level,
        }
    }

    /// The covariance of two settings, given what they have in common.
    fn covariance(&self, h: &Hyperparameters, common: f64, i: usize, j: usize) -> f64 {
        let signal = h.signal * self.signal;
        common + self.kernel.covariance(h, signal, &self.x[i], &self.x[j])
    }

    /// The process, conditioned on the values `y` of the observed settings with these noise
    /// variances; `None` if their matrix is not positive definite or something is not finite.
    pub(crate) fn conditioned(
        &'a self,
        y: &[f64],
        variance: &[f64],
        hyper: Hyperparameters,
    ) -> Option<Gp<'a>> {
        let mut gp = Gp {
            prior: self,
            hyper,
            lower: Vec::new(),
            white: Vec::new(),
            log_likelihood: 0.0,
        };
        for (i, &at) in self.observed.iter().enumerate() {
            let mut row = Vec::with_capacity(i + 1);
            for (before, &other) in gp.lower.iter().zip(&self.observed) {
                let covariance = self.covariance(&hyper, self.common[i][other], at, other);
                let before: &Vec<f64> = before;
                let done = row.len();
                row.push((covariance - dot(&row, before)) / before[done]);
            }
            let noise = variance[i] + hyper.nugget * hyper.nugget + JITTER;
            let prior = self.covariance(&hyper, self.common[i][at], at, at);
            let pivot = prior + noise - dot(&row, &row);
            if !(pivot > 0.0 && pivot.is_finite()) {
                return None;
            }
            let pivot = pivot.sqrt();
            let white = (y[i] - self.mean[at] - dot(&row, &gp.white)) / pivot;
            row.push(pivot);
            gp.lower.push(row);
            gp.white.push(white);
            gp.log_likelihood -= 0.5 * white * white + pivot.ln();
        }
        gp.log_likelihood.is_finite().then_some(gp)
    }
}

/// The posterior under one draw of the hyper-parameters.
#[derive(Clone, Debug)]
pub(crate) struct Gp<'a> {
    prior: &'a Prior<'a>,
    hyper: Hyperparameters,
    /// L, row by row.
    lower: Vec<Vec<f64>>,
    /// a = L⁻¹ (y − m).
    white: Vec<f64>,
    /// Log marginal likelihood, without constants.
    pub(crate) log_likelihood: f64,
}

/// The posterior at all settings of the prior.
#[derive(Clone, Debug)]
pub(crate) struct Prediction<'a> {
    gp: Gp<'a>,
    pub(crate) mean: Vec<f64>,
    pub(crate) variance: Vec<f64>,
    /// v(x), a row per observation with a value per setting.
    v: Vec<Vec<f64>>,
}

impl<'a> Gp<'a> {
    /// Log marginal likelihood of all observations given the first one.
    pub(crate) fn evidence(&self) -> f64 {
        let first = -(0.5 * self.white[0] * self.white[0] + self.lower[0][0].ln());
        self.log_likelihood - first
    }

    pub(crate) fn predict(self) -> Prediction<'a> {
        let (prior, count) = (self.prior, self.prior.x.len());
        let mut mean = prior.mean.clone();
        let mut variance: Vec<f64> = (0..count)
            .map(|j| prior.covariance(&self.hyper, prior.common(j, j), j, j))
            .collect();
        let mut v: Vec<Vec<f64>> = Vec::with_capacity(self.lower.len());
        for (i, lower) in self.lower.iter().enumerate() {
            let at = prior.observed[i];
            let mut row: Vec<f64> = (0..count)
                .map(|j| prior.covariance(&self.hyper, prior.common[i][j], at, j))
                .collect();
            for (factor, earlier) in lower.iter().zip(&v) {
                for (value, earlier) in row.iter_mut().zip(earlier) {
                    *value -= factor * earlier;
                }
            }
            for (j, value) in row.iter_mut().enumerate() {
                *value /= lower[i];
                mean[j] += *value * self.white[i];
                variance[j] -= *value * *value;
            }
            v.push(row);
        }
        variance
            .iter_mut()
            .for_each(|value| *value = value.max(0.0));
        Prediction {
            gp: self,
            mean,
            variance,
            v,
        }
    }
}

impl Prediction<'_> {
    /// The posterior covariance of two settings.
    pub(crate) fn covariance(&self, i: usize, j: usize) -> f64 {
        let Gp { prior, hyper, .. } = &self.gp;
        let covariance = prior.covariance(hyper, prior.common(i, j), i, j);
        covariance - self.v.iter().map(|row| row[i] * row[j]).sum::<f64>()
    }

    /// The Cholesky factor of the posterior covariance of the settings from `first` on, row by row.
    /// The row of a setting that others determine ends in zero.
    pub(crate) fn factor(&self, first: usize) -> Vec<Vec<f64>> {
        let mut lower: Vec<Vec<f64>> = Vec::new();
        for i in first..self.mean.len() {
            let mut row = Vec::with_capacity(lower.len() + 1);
            for (j, before) in lower.iter().enumerate() {
                let rest = self.covariance(i, first + j) - dot(&row, &before[..j]);
                row.push(if before[j] > 0.0 {
                    rest / before[j]
                } else {
                    0.0
                });
            }
            let pivot = self.variance[i] - dot(&row, &row);
            row.push(if pivot > PIVOT_MIN { pivot.sqrt() } else { 0.0 });
            lower.push(row);
        }
        lower
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Space};

    fn kernel() -> Kernel {
        Kernel::new(&Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap())
    }

    fn at(x: f64) -> Coordinates {
        let mut c = Coordinates::default();
        c[0] = x;
        c
    }

    fn hyper(nugget: f64) -> Hyperparameters {
        Hyperparameters {
            signal: 1.0,
            scales: [1.0; 8],
            nugget,
        }
    }

    /// Mean 0 and no features.
    fn flat(settings: usize) -> (Vec<f64>, Vec<Vec<f64>>) {
        (vec![0.0; settings], Vec::new())
    }

    #[test]
    fn one_observation_by_hand() {
        // k = 1, noise 0.25 + 0.5² = 0.5: mean at the point 2 / 1.5, variance 1 − 1 / 1.5.
        let (kernel, x) = (kernel(), [at(0.0), at(1.0)]);
        let prior = Prior::new(&kernel, &x, vec![0], (0.0, 1.0), flat(x.len()));
        let gp = prior.conditioned(&[2.0], &[0.25], hyper(0.5)).unwrap();
        let evidence = (gp.log_likelihood, gp.evidence());
        let p = gp.predict();
        assert!((p.mean[0] - 4.0 / 3.0).abs() < 1e-8);
        assert!((p.variance[0] - 1.0 / 3.0).abs() < 1e-8);
        // At r = 1 the correlation is ρ = 0.523994: mean ρ 4/3, variance 1 − ρ² / 1.5, covariance
        // ρ − ρ / 1.5.
        assert!((p.mean[1] - 0.698_659).abs() < 1e-5);
        assert!((p.variance[1] - 0.816_954).abs() < 1e-5);
        assert!((p.covariance(0, 1) - 0.174_665).abs() < 1e-5);
        // −½ 4 / 1.5 − ½ ln 1.5.
        assert!((evidence.0 - (-4.0 / 3.0 - 0.202_733)).abs() < 1e-5);
        assert_eq!(evidence.1, 0.0);
    }

    #[test]
    fn two_observations_by_hand() {
        // Matrix [[1.1, ρ], [ρ, 1.3]] with ρ = 0.523994, determinant 1.155430; y = (1, −1).
        // α = K⁻¹ y = (1.3 + ρ, −ρ − 1.1) / det = (1.578629, −1.405532).
        let (kernel, x) = (kernel(), [at(0.0), at(1.0)]);
        let prior = Prior::new(&kernel, &x, vec![0, 1], (0.0, 1.0), flat(x.len()));
        let gp = prior
            .conditioned(&[1.0, -1.0], &[0.1, 0.3], hyper(1e-9))
            .unwrap();
        let evidence = gp.evidence();
        let p = gp.predict();
        assert!((p.mean[0] - 0.842_139).abs() < 1e-5, "{}", p.mean[0]);
        assert!((p.mean[1] + 0.578_340).abs() < 1e-5, "{}", p.mean[1]);
        let (rho, det) = (0.523_994_1, 1.155_430_2);
        let variance = 1.0 - (1.3 - 2.0 * rho * rho + 1.1 * rho * rho) / det;
        assert!((p.variance[0] - variance).abs() < 1e-5);
        // k(X,0) = (1, ρ), k(X,1) = (ρ, 1): quadratic form (1.3ρ − ρ − ρ³ + 1.1ρ) / det.
        let covariance = rho - (1.3 * rho - rho - rho * rho * rho + 1.1 * rho) / det;
        assert!((p.covariance(0, 1) - covariance).abs() < 1e-5);
        // The second residual is −1 − ρ / 1.1, its variance 1.3 − ρ² / 1.1.
        let (residual, variance) = (-1.0 - rho / 1.1, 1.3 - rho * rho / 1.1);
        let expected = -0.5 * (residual * residual / variance + f64::ln(variance));
        assert!((evidence - expected).abs() < 1e-5);
    }

    #[test]
    fn features_and_level_by_hand() {
        // Of a kernel without variance the features (0), (2) and the level 0.5 remain.
        let (kernel, x) = (kernel(), [at(0.0), at(1.0)]);
        let mean_and_features = (vec![0.0, 0.3], vec![vec![0.0], vec![2.0]]);
        let prior = Prior::new(&kernel, &x, vec![1], (0.5, 1e-9), mean_and_features);
        let p = prior
            .conditioned(&[1.3], &[0.5], hyper(1e-9))
            .unwrap()
            .predict();
        // Variance 4 + 0.5 + 0.5; covariances 4.5 and 0.5 with a residual of 1.
        assert!((p.mean[1] - (0.3 + 4.5 / 5.0)).abs() < 1e-8);
        assert!((p.mean[0] - 0.1).abs() < 1e-8);
    }

    #[test]
    fn a_factor_has_the_covariances() {
        let (kernel, x) = (kernel(), [0.0, 0.4, 0.2, 0.4, 0.4, 1.0].map(at));
        let prior = Prior::new(&kernel, &x, vec![0, 1], (0.0, 1.0), flat(x.len()));
        let gp = prior
            .conditioned(&[0.3, -0.2], &[0.01, 0.02], hyper(0.01))
            .unwrap();
        let p = gp.predict();
        let lower = p.factor(2);
        for i in 0..4 {
            assert!(
                (dot(&lower[i], &lower[i]) - p.variance[2 + i]).abs() < 1e-9,
                "{i}"
            );
            for j in 0..i {
                let product = dot(&lower[i], &lower[j]);
                assert!(
                    (product - p.covariance(2 + i, 2 + j)).abs() < 1e-6,
                    "{i} {j}"
                );
            }
        }
        assert!(lower[2][2] < 1e-4, "the same setting twice is one value");
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        let (kernel, x) = (kernel(), [at(0.0), at(1.0)]);
        let prior = Prior::new(&kernel, &x, vec![0, 1], (0.0, 1.0), flat(x.len()));
        for bad in [f64::NAN, f64::INFINITY] {
            for (y, variance) in [(bad, 0.1), (0.0, bad)] {
                let gp = prior.conditioned(&[0.0, y], &[0.1, variance], hyper(0.1));
                assert!(gp.is_none());
            }
        }
    }
}
