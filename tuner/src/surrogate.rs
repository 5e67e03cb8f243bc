//! The surrogate: a mixture of a few Gaussian processes, each under its own draw of the hyper-parameters.
//!
//! With ten observations no single length scale is known, and a single fit is overconfident. So [`DRAWS`] scrambled-Sobol draws
//! from the priors are weighted by their marginal likelihood and the best [`KEPT`] averaged; the best of them is first refined
//! towards the maximum of likelihood times prior (Nelder–Mead, by argmin). The priors are those of our tuner lab.

use argmin::core::{CostFunction, Executor, State};
use argmin::solver::neldermead::NelderMead;
use argmin_math::{ArgminAdd, ArgminMul, ArgminSub};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::Warning;
use crate::acquisition::expected_improvement;
use crate::gp::{Gp, Observations};
use crate::kernel::{Hyperparameters, Kernel, Role};
use crate::space::{Coordinates, PARAMETERS_MAX};

/// Hyper-parameter draws that are weighed.
const DRAWS: u32 = 192;
/// Draws that are kept, with the refined one.
const KEPT: usize = 8;
/// Draws below this share of the weight change nothing that matters.
const WEIGHT_MIN: f64 = 1e-3;
/// Iterations of the refinement; each costs one or two likelihoods.
const REFINEMENTS_MAX: u64 = 60;
/// The refinement stops when the log posterior varies by less than this over the simplex.
const REFINEMENT_TOLERANCE: f64 = 1e-2;
/// Cost of a point at which the process cannot be conditioned: worse than any that can, and still a number.
const COST_UNUSABLE: f64 = 1e12;

/// A log-normal prior: median, and standard deviation of the logarithm.
#[derive(Clone, Copy)]
struct Prior {
    median: f64,
    sd: f64,
}

const SIGNAL: Prior = Prior {
    median: 0.15,
    sd: 0.8,
};
const LENGTH: Prior = Prior { median: 0.5, sd: 0.6 };
const WEIGHT: Prior = Prior { median: 0.4, sd: 1.0 };
const NUGGET: Prior = Prior {
    median: 0.005,
    sd: 0.7,
};

/// Standard-normal scores of the hyper-parameters under their priors: signal, nugget, then one per free parameter.
#[derive(Clone, Debug)]
struct Scores(Vec<f64>);

// A type of its own with the three operations that the simplex needs: argmin's for `Vec` come with a second `rand`.
impl ArgminAdd<Scores, Scores> for Scores {
    fn add(&self, other: &Scores) -> Scores {
        Scores(self.0.iter().zip(&other.0).map(|(a, b)| a + b).collect())
    }
}

impl ArgminSub<Scores, Scores> for Scores {
    fn sub(&self, other: &Scores) -> Scores {
        Scores(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }
}

impl ArgminMul<f64, Scores> for Scores {
    fn mul(&self, factor: &f64) -> Scores {
        Scores(self.0.iter().map(|a| a * factor).collect())
    }
}

fn hyperparameters(kernel: &Kernel, Scores(scores): &Scores) -> Hyperparameters {
    let value = |prior: Prior, score: f64| prior.median * (prior.sd * score).exp();
    let mut scales = [1.0; PARAMETERS_MAX];
    for (&(index, role), &score) in kernel.roles.iter().zip(&scores[2..]) {
        let prior = if role == Role::Boolean { WEIGHT } else { LENGTH };
        scales[index] = value(prior, score);
    }
    Hyperparameters {
        signal: value(SIGNAL, scores[0]),
        nugget: value(NUGGET, scores[1]),
        scales,
    }
}

/// Draw `index` of the seeded, scrambled Sobol sequence of standard-normal scores.
fn draw(kernel: &Kernel, seed: u64, index: u32) -> Scores {
    let normal = Normal::standard();
    let seed = (seed ^ (seed >> 32)) as u32;
    let scores = (0..kernel.roles.len() as u32 + 2).map(|dimension| {
        let uniform = f64::from(sobol_burley::sample(index, dimension, seed));
        normal.inverse_cdf(uniform.clamp(1e-6, 1.0 - 1e-6))
    });
    Scores(scores.collect())
}

/// The negative log posterior of the scores, up to a constant.
struct Objective<'a> {
    kernel: &'a Kernel,
    observations: &'a Observations,
}

impl CostFunction for Objective<'_> {
    type Param = Scores;
    type Output = f64;

    fn cost(&self, scores: &Scores) -> Result<f64, argmin::core::Error> {
        let hyper = hyperparameters(self.kernel, scores);
        let likelihood = Gp::condition(self.kernel, hyper, self.observations).map(|gp| gp.log_likelihood());
        let prior: f64 = scores.0.iter().map(|s| 0.5 * s * s).sum();
        Ok(likelihood.map_or(COST_UNUSABLE, |l| prior - l))
    }
}

/// The scores of a posterior mode near `scores`.
fn refine(kernel: &Kernel, observations: &Observations, scores: &Scores) -> Result<Scores, Warning> {
    let failed = |message: String| Warning::RefinementFailed {
        observations: observations.x.len(),
        message,
    };
    let mut simplex = vec![scores.clone()];
    for dimension in 0..scores.0.len() {
        let mut vertex = scores.clone();
        vertex.0[dimension] += if vertex.0[dimension] > 0.0 { -0.7 } else { 0.7 };
        simplex.push(vertex);
    }
    let solver = NelderMead::new(simplex)
        .with_sd_tolerance(REFINEMENT_TOLERANCE)
        .map_err(|error| failed(error.to_string()))?;
    let result = Executor::new(Objective { kernel, observations }, solver)
        .configure(|state| state.max_iters(REFINEMENTS_MAX))
        .timer(false)
        .run()
        .map_err(|error| failed(error.to_string()))?;
    match result.state().get_best_param() {
        Some(best) if best.0.iter().all(|s| s.is_finite()) => Ok(best.clone()),
        _ => Err(failed("no finite optimum".into())),
    }
}

/// The mixture, conditioned on the observations.
pub(crate) struct Surrogate<'a> {
    /// Weight and process; the weights sum to 1.
    parts: Vec<(f64, Gp<'a>)>,
    /// What went wrong and was survived.
    pub(crate) warning: Option<Warning>,
}

impl<'a> Surrogate<'a> {
    /// Fits the mixture.
    ///
    /// # Errors
    /// [`Warning::SurrogateFailed`] if the process cannot be conditioned under any draw.
    pub(crate) fn fit(
        kernel: &'a Kernel,
        observations: &'a Observations,
        seed: u64,
    ) -> Result<Self, Warning> {
        let mut parts: Vec<(f64, Scores, Gp<'a>)> = (0..DRAWS)
            .filter_map(|index| {
                let scores = draw(kernel, seed, index);
                let gp = Gp::condition(kernel, hyperparameters(kernel, &scores), observations)?;
                Some((gp.log_likelihood(), scores, gp))
            })
            .collect();
        // A stable sort: equal likelihoods keep the order of the sequence.
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        parts.truncate(KEPT);
        let Some(best) = parts.first() else {
            return Err(Warning::SurrogateFailed {
                observations: observations.x.len(),
            });
        };
        let warning = match refine(kernel, observations, &best.1) {
            Ok(scores) => {
                if let Some(gp) = Gp::condition(kernel, hyperparameters(kernel, &scores), observations) {
                    parts.push((gp.log_likelihood(), scores, gp));
                }
                None
            }
            Err(warning) => Some(warning),
        };
        let top = parts.iter().map(|part| part.0).fold(f64::NEG_INFINITY, f64::max);
        let mut weighted: Vec<(f64, Gp<'a>)> = parts
            .into_iter()
            .map(|(likelihood, _, gp)| ((likelihood - top).exp(), gp))
            .collect();
        let sum: f64 = weighted.iter().map(|part| part.0).sum();
        weighted.retain(|part| part.0 >= WEIGHT_MIN * sum);
        let sum: f64 = weighted.iter().map(|part| part.0).sum();
        weighted.iter_mut().for_each(|part| part.0 /= sum);
        Ok(Self {
            parts: weighted,
            warning,
        })
    }

    /// The posterior mean at `points`.
    pub(crate) fn means(&self, points: &[Coordinates]) -> Vec<f64> {
        let mut means = vec![0.0; points.len()];
        for (weight, gp) in &self.parts {
            let Some(reference) = points.first() else { break };
            for (mean, value) in means.iter_mut().zip(gp.predict(points, reference).mean) {
                *mean += weight * value;
            }
        }
        means
    }

    /// The posterior of every candidate against the incumbent.
    pub(crate) fn outlook(&self, candidates: &[Coordinates], incumbent: &Coordinates) -> Outlook {
        let count = candidates.len();
        let mut outlook = Outlook {
            mean: vec![0.0; count],
            variance: vec![0.0; count],
            improvement: vec![0.0; count],
        };
        for (weight, gp) in &self.parts {
            let at_incumbent = gp.predict(&[*incumbent], incumbent);
            let prediction = gp.predict(candidates, incumbent);
            for c in 0..count {
                let (mean, variance) = (prediction.mean[c], prediction.variance[c].max(0.0));
                outlook.mean[c] += weight * mean;
                // The second moment for now.
                outlook.variance[c] += weight * (mean * mean + variance);
                let spread = variance + at_incumbent.variance[0] - 2.0 * prediction.covariance[c];
                outlook.improvement[c] += weight * expected_improvement(at_incumbent.mean[0] - mean, spread);
            }
        }
        for (variance, mean) in outlook.variance.iter_mut().zip(&outlook.mean) {
            *variance = (*variance - mean * mean).max(0.0);
        }
        outlook
    }
}

/// What the mixture expects of each candidate.
pub(crate) struct Outlook {
    /// Posterior mean of the log step time, relative to the reference.
    pub(crate) mean: Vec<f64>,
    /// Its variance.
    pub(crate) variance: Vec<f64>,
    /// Expected improvement on the incumbent, in log step time.
    pub(crate) improvement: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Space};

    fn line() -> (Kernel, Observations, Vec<Coordinates>) {
        let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap();
        let x: Vec<Coordinates> = [0.0, 0.2, 0.5, 0.8, 1.0]
            .iter()
            .map(|&v| {
                let mut c = Coordinates::default();
                c[0] = v;
                c
            })
            .collect();
        let y = x.iter().map(|c| (c[0] - 0.6) * (c[0] - 0.6) - 0.36).collect();
        (
            Kernel::new(&space, 0.04),
            Observations {
                x: x.clone(),
                y,
                variance: vec![1e-4; 5],
            },
            x,
        )
    }

    #[test]
    fn mixture_interpolates_and_refinement_raises_the_posterior() {
        let (kernel, observations, x) = line();
        let surrogate = Surrogate::fit(&kernel, &observations, 7).unwrap();
        assert_eq!(surrogate.warning, None);
        for (mean, y) in surrogate.means(&x).iter().zip(&observations.y) {
            assert!((mean - y).abs() < 0.02, "{mean} {y}");
        }
        assert!((surrogate.parts.iter().map(|p| p.0).sum::<f64>() - 1.0).abs() < 1e-12);
        let objective = Objective {
            kernel: &kernel,
            observations: &observations,
        };
        let start = draw(&kernel, 7, 0);
        let refined = refine(&kernel, &observations, &start).unwrap();
        assert!(objective.cost(&refined).unwrap() < objective.cost(&start).unwrap());
    }

    #[test]
    fn draws_follow_their_priors() {
        let (kernel, ..) = line();
        let signals: Vec<f64> = (0..DRAWS)
            .map(|i| hyperparameters(&kernel, &draw(&kernel, 7, i)).signal.ln())
            .collect();
        let mean = signals.iter().sum::<f64>() / signals.len() as f64;
        let variance = signals.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / signals.len() as f64;
        assert!((mean - 0.15f64.ln()).abs() < 0.05, "{mean}");
        assert!((variance.sqrt() - 0.8).abs() < 0.05, "{}", variance.sqrt());
    }

    #[test]
    fn nan_gives_a_warning_not_a_panic() {
        let (kernel, mut observations, _) = line();
        observations.y[2] = f64::NAN;
        let error = Surrogate::fit(&kernel, &observations, 7).err();
        assert_eq!(error, Some(Warning::SurrogateFailed { observations: 5 }));
    }
}
