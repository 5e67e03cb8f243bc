//! Covariance of the log step time at two settings: Matérn-5/2 in the continuous coordinates, times
//! a factor for each boolean or choice that differs, and one for each rough parameter.
//!
//! k(x, x') = s² (1 + √5 r + 5r²/3) exp(−√5 r − Σ w_j [b_j ≠ b_j']) (1 − ρ² (1 − Π t_j)), with r² =
//! Σ ((x_i − x'_i) / l_i)² (Rasmussen and Williams, Gaussian Processes for Machine Learning, eq.
//! 4.17). Step times are not smooth in the fusion threshold, because one level more packs the
//! tensors differently. So each level of a rough parameter has its own deviation, of standard
//! deviation ρ s, which only settings nearer than a level share in part: t = max(0, 1 − |x − x'| /
//! λ). The hyper-parameters have log-normal priors; instead of one estimate, the surrogate weighs a
//! fixed list of draws from them.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::space::parameter::Parameter;
use crate::space::{Coordinates, PARAMETERS_MAX, Space};

/// Number of draws of the hyper-parameters.
const DRAWS: u32 = 192;

/// A log-normal prior: median, and standard deviation of the logarithm.
#[derive(Clone, Copy)]
struct LogNormal(f64, f64);

/// Prior of the length scales, of the booleans' weights, and of the nugget. The signal's median is
/// the hypothesis's.
const LENGTH: LogNormal = LogNormal(0.5, 0.6);
const WEIGHT: LogNormal = LogNormal(0.4, 1.0);
const NUGGET: LogNormal = LogNormal(0.005, 0.7);
/// Standard deviation of the logarithm of the signal.
const SIGNAL_SD: f64 = 0.8;
/// ρ, and the most that ρ s is, in log step time: a setting that is far off makes s large, but
/// other packings still change the step by some percent.
const ROUGHNESS: f64 = 0.3;
const ROUGHNESS_MAX: f64 = 0.1;
/// λ: a level of a lattice of 17.
const ROUGH_LENGTH: f64 = 0.06;

impl LogNormal {
    fn at(self, score: f64) -> f64 {
        self.0 * (self.1 * score).exp()
    }
}

/// One draw of the hyper-parameters. All are > 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hyperparameters {
    /// Standard deviation s of the surface, as a multiple of the hypothesis's median.
    pub(crate) signal: f64,
    /// Length scale l (continuous) or weight w (boolean or choice), by parameter; unused where the
    /// parameter is fixed.
    pub(crate) scales: [f64; PARAMETERS_MAX],
    /// Standard deviation τ of the deviation of each setting from the smooth surface, in log step
    /// time.
    pub(crate) nugget: f64,
}

/// A free parameter's part of the covariance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Continuous,
    Rough,
    /// A boolean or a choice: its values are equal or differ.
    Switch,
}

/// The kernel of a space.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Index and role of the free parameters.
    free: Vec<(usize, Role)>,
}

impl Kernel {
    /// The kernel of the free parameters of `space`.
    pub(crate) fn new(space: &Space) -> Self {
        let role = |parameter: &Parameter| match parameter.is_switch() {
            true => Role::Switch,
            false if parameter.is_rough() => Role::Rough,
            false => Role::Continuous,
        };
        let all = space.parameters().iter().enumerate();
        let free = all.filter(|(_, parameter)| parameter.fixed_value().is_none());
        Self {
            free: free
                .map(|(index, parameter)| (index, role(parameter)))
                .collect(),
        }
    }

    /// The covariance of two settings, where the surface has standard deviation `signal`.
    pub(crate) fn covariance(
        &self,
        h: &Hyperparameters,
        signal: f64,
        a: &Coordinates,
        b: &Coordinates,
    ) -> f64 {
        let (mut square, mut weight, mut shared) = (0.0, 0.0, 1.0);
        for &(index, role) in &self.free {
            let apart = (a[index] - b[index]).abs();
            if role == Role::Switch {
                weight += f64::from(u8::from(apart > 0.0)) * h.scales[index];
                continue;
            }
            square += (apart / h.scales[index]).powi(2);
            if role == Role::Rough {
                shared *= (1.0 - apart / ROUGH_LENGTH).max(0.0);
            }
        }
        let r = (5.0 * square).sqrt();
        let smooth = (1.0 + r + r * r / 3.0) * (-r - weight).exp();
        // Without a rough parameter all is shared.
        let rough = ROUGHNESS.min(ROUGHNESS_MAX / signal).powi(2);
        signal * signal * smooth * (1.0 - rough * (1.0 - shared))
    }

    /// The first draws of the hyper-parameters: a scrambled Sobol sequence, by `seed`.
    pub(crate) fn draws(&self, seed: u64) -> Vec<Hyperparameters> {
        let seed = (seed ^ (seed >> 32)) as u32;
        let score = |index, dimension| {
            let uniform = f64::from(sobol_burley::sample(index, dimension, seed));
            Normal::standard().inverse_cdf(uniform.clamp(1e-6, 1.0 - 1e-6))
        };
        let draw = |index| {
            let mut scales = [1.0; PARAMETERS_MAX];
            for (dimension, &(parameter, role)) in (2..).zip(&self.free) {
                let is_switch = role == Role::Switch;
                let prior = if is_switch { WEIGHT } else { LENGTH };
                scales[parameter] = prior.at(score(index, dimension));
            }
            Hyperparameters {
                signal: LogNormal(1.0, SIGNAL_SD).at(score(index, 0)),
                nugget: NUGGET.at(score(index, 1)),
                scales,
            }
        };
        (0..DRAWS).map(draw).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameter;

    fn hyper(scales: [f64; 3]) -> Hyperparameters {
        let mut all = [1.0; PARAMETERS_MAX];
        all[..3].copy_from_slice(&scales);
        Hyperparameters {
            signal: 1.0,
            scales: all,
            nugget: 0.01,
        }
    }

    fn at(values: [f64; 3]) -> Coordinates {
        let mut coordinates = Coordinates::default();
        coordinates[..3].copy_from_slice(&values);
        coordinates
    }

    #[test]
    fn covariance_by_hand() {
        let space = Space::new(vec![
            Parameter::linear("x", 0.0, 1.0, 11),
            Parameter::boolean("b").rough(),
            Parameter::linear("fixed", 0.0, 1.0, 11).fixed(0.5),
        ])
        .unwrap();
        let kernel = Kernel::new(&space);
        let h = hyper([0.5, 0.4, 1.0]);
        let from = at([0.2, 1.0, 0.0]);
        let k = |to| kernel.covariance(&h, 0.5, &from, &at(to));
        assert_eq!(k([0.2, 1.0, 0.7]), 0.25, "a fixed parameter does not count");
        // r = 1: (1 + √5 + 5/3) exp(−√5) = 0.523994.
        assert!((k([0.7, 1.0, 0.0]) - 0.25 * 0.523_994).abs() < 1e-6);
        // The boolean alone: exp(−0.4) = 0.670320.
        assert!((k([0.2, 0.0, 0.0]) - 0.25 * 0.670_320).abs() < 1e-6);
    }

    #[test]
    fn rough_levels_by_hand() {
        let space = Space::new(vec![
            Parameter::linear("x", 0.0, 1.0, 11).rough(),
            Parameter::linear("y", 0.0, 1.0, 11),
        ])
        .unwrap();
        let kernel = Kernel::new(&space);
        let h = hyper([0.5, 0.5, 1.0]);
        let from = at([0.2, 0.3, 0.0]);
        let correlation =
            |signal: f64, to| kernel.covariance(&h, signal, &from, &at(to)) / (signal * signal);
        // On the same level roughness is shared.
        assert!((correlation(0.1, [0.2, 0.8, 0.0]) - 0.523_994).abs() < 1e-6);
        // Eight levels away nothing of it is: 0.91 · 0.523994.
        assert!((correlation(0.1, [0.7, 0.3, 0.0]) - 0.476_835).abs() < 1e-6);
        // A fraction 0.02 / 0.06 of a level away, r = 0.04: 0.998669 · (0.91 + 0.09 · 2 / 3).
        assert!((correlation(0.1, [0.22, 0.3, 0.0]) - 0.968_709).abs() < 1e-6);
        // Where the signal is 1, roughness is 0.1 of it and not 0.3: 0.99 · 0.523994.
        assert!((correlation(1.0, [0.7, 0.3, 0.0]) - 0.518_754).abs() < 1e-6);
    }

    #[test]
    fn draws_follow_their_priors() {
        let kernel = Kernel::new(&Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap());
        let logs = |of: fn(&Hyperparameters) -> f64| -> Vec<f64> {
            kernel.draws(7).iter().map(|h| of(h).ln()).collect()
        };
        for (logs, mean, sd) in [
            (logs(|h| h.signal), 0.0, 0.8),
            (logs(|h| h.scales[0]), 0.5f64.ln(), 0.6),
            (logs(|h| h.nugget), 0.005f64.ln(), 0.7),
        ] {
            let count = logs.len() as f64;
            let seen = logs.iter().sum::<f64>() / count;
            let square = logs.iter().map(|s| (s - seen).powi(2)).sum::<f64>() / count;
            assert!((seen - mean).abs() < 0.05, "{seen}");
            assert!((square.sqrt() - sd).abs() < 0.05, "{square}");
        }
    }
}
