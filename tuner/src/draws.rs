//! The priors of the hyper-parameters, and a fixed list of draws from them. The figures are those of our tuner lab.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::kernel::{Hyperparameters, Kernel, Role};
use crate::space::PARAMETERS_MAX;

/// Draws that are weighed.
pub(crate) const DRAWS: u32 = 192;

/// A log-normal prior: median, and standard deviation of the logarithm.
#[derive(Clone, Copy)]
struct Prior {
    median: f64,
    sd: f64,
}

/// Standard deviation of the logarithm of the signal; its median depends on what else is believed of the surface.
const SIGNAL_SD: f64 = 0.8;
const LENGTH: Prior = Prior {
    median: 0.5,
    sd: 0.6,
};
const WEIGHT: Prior = Prior {
    median: 0.4,
    sd: 1.0,
};
const NUGGET: Prior = Prior {
    median: 0.005,
    sd: 0.7,
};

/// Standard-normal scores of the hyper-parameters under their priors: signal, nugget, then one per free parameter.
#[derive(Clone, Debug)]
pub(crate) struct Scores(pub(crate) Vec<f64>);

impl Scores {
    /// The hyper-parameters of these scores, if the signal's prior median is `signal`.
    pub(crate) fn hyperparameters(&self, kernel: &Kernel, signal: f64) -> Hyperparameters {
        let value = |prior: Prior, score: f64| prior.median * (prior.sd * score).exp();
        let mut scales = [1.0; PARAMETERS_MAX];
        for (&(index, role), &score) in kernel.roles.iter().zip(&self.0[2..]) {
            let prior = if role == Role::Boolean {
                WEIGHT
            } else {
                LENGTH
            };
            scales[index] = value(prior, score);
        }
        let signal = Prior {
            median: signal,
            sd: SIGNAL_SD,
        };
        Hyperparameters {
            signal: value(signal, self.0[0]),
            nugget: value(NUGGET, self.0[1]),
            scales,
        }
    }

    /// The negative log prior density, up to a constant.
    pub(crate) fn cost(&self) -> f64 {
        self.0.iter().map(|score| 0.5 * score * score).sum()
    }
}

/// The first [`DRAWS`] of the seeded, scrambled Sobol sequence of scores.
pub(crate) fn draws(kernel: &Kernel, seed: u64) -> Vec<Scores> {
    let normal = Normal::standard();
    let seed = (seed ^ (seed >> 32)) as u32;
    let score = |index, dimension| {
        let uniform = f64::from(sobol_burley::sample(index, dimension, seed));
        normal.inverse_cdf(uniform.clamp(1e-6, 1.0 - 1e-6))
    };
    let dimensions = kernel.roles.len() as u32 + 2;
    (0..DRAWS)
        .map(|index| {
            Scores(
                (0..dimensions)
                    .map(|dimension| score(index, dimension))
                    .collect(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Space};

    #[test]
    fn draws_follow_their_priors() {
        let kernel = Kernel::new(&Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap());
        let signals: Vec<f64> = draws(&kernel, 7)
            .iter()
            .map(|scores| scores.hyperparameters(&kernel, 0.15).signal.ln())
            .collect();
        let mean = signals.iter().sum::<f64>() / signals.len() as f64;
        let variance =
            signals.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / signals.len() as f64;
        assert!((mean - 0.15f64.ln()).abs() < 0.05, "{mean}");
        assert!((variance.sqrt() - 0.8).abs() < 0.05, "{}", variance.sqrt());
    }
}
