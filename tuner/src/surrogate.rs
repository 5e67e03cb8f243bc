//! The surrogate: a mixture of Gaussian processes, each under its own draw of the hyper-parameters,
//! with the model as prior and without it.
//!
//! With ten observations no single length scale is known, and a single fit is overconfident. So
//! every draw is weighed by its marginal likelihood under either hypothesis, and the best are
//! averaged.

pub(crate) mod gp;
pub(crate) mod kernel;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::acquisition::expected_improvement;
use crate::space::Coordinates;
use crate::surrogate::gp::{Gp, Prediction, Prior};
use crate::surrogate::kernel::{Hyperparameters, Kernel};
use crate::tuner::model::Belief;

/// Prior probability that the model is useful.
const MODEL_ODDS: f64 = 0.9;
/// Variance c₀² of the level of the surface about the start setting, in squared log step time: how
/// far the start setting may be out of line with the rest.
const LEVEL_VARIANCE: f64 = 0.04;
/// Prior median of the kernel's standard deviation s, in log step time: without a model, and beside
/// one.
const SIGNAL_COLD: f64 = 0.15;
const SIGNAL_BESIDE_MODEL: f64 = 0.05;
/// Draws that are kept.
const KEPT: usize = 8;
/// Draws that are weighed where there are more than so many observations.
const OBSERVATIONS_MANY: usize = 48;
const DRAWS_MANY: usize = 64;
/// A slow-down, in log step time, that no proposal may risk: a factor of 3. `slowdown_max` of
/// `tuner::proposal` says against which setting.
pub(crate) const SLOWDOWN_MAX: f64 = 1.098_612_288_668_109_8;

/// A prior, its probability, and the predicted slow-down beyond the ceiling of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct Hypothesis<'a> {
    odds: f64,
    prior: Prior<'a>,
    /// No list if there is none.
    excess: Vec<f64>,
}

impl<'a> Hypothesis<'a> {
    /// No prediction but one `level`; most knobs have little effect.
    pub(crate) fn cold(
        kernel: &'a Kernel,
        x: &'a [Coordinates],
        observed: Vec<usize>,
        level: f64,
    ) -> Self {
        Self {
            odds: 1.0 - MODEL_ODDS,
            prior: cold_prior(kernel, x, observed, level),
            excess: Vec::new(),
        }
    }

    /// The model is right except for a smooth error. No mean counts above `ceiling`, as no
    /// measurement does.
    pub(crate) fn with_model(
        kernel: &'a Kernel,
        x: &'a [Coordinates],
        observed: Vec<usize>,
        belief: &Belief,
        ceiling: f64,
    ) -> Self {
        let scale = (LEVEL_VARIANCE, SIGNAL_BESIDE_MODEL);
        let mean = belief.mean.iter().map(|m| m.min(ceiling)).collect();
        let belief_at = (mean, belief.features.clone());
        Self {
            odds: MODEL_ODDS,
            prior: Prior::new(kernel, x, observed, scale, belief_at),
            excess: belief.mean.iter().map(|m| (m - ceiling).max(0.0)).collect(),
        }
    }
}

/// The prior without a model, whose mean is one `level`.
pub(crate) fn cold_prior<'a>(
    kernel: &'a Kernel,
    x: &'a [Coordinates],
    observed: Vec<usize>,
    level: f64,
) -> Prior<'a> {
    let scale = (LEVEL_VARIANCE, SIGNAL_COLD);
    Prior::new(
        kernel,
        x,
        observed,
        scale,
        (vec![level; x.len()], Vec::new()),
    )
}

/// The draws that are weighed for so many observations: of many, each costs more, and they agree.
pub(crate) fn weighed(draws: &[Hyperparameters], observations: usize) -> &[Hyperparameters] {
    let is_many = observations > OBSERVATIONS_MANY;
    &draws[..draws
        .len()
        .min(if is_many { DRAWS_MANY } else { usize::MAX })]
}

/// The mixture, conditioned on the observations.
pub(crate) struct Surrogate<'a> {
    parts: Vec<Part<'a>>,
    /// Posterior probability of each hypothesis.
    pub(crate) weights: Vec<f64>,
}

struct Part<'a> {
    /// The weights sum to 1.
    weight: f64,
    prediction: Prediction<'a>,
    excess: &'a [f64],
}

impl<'a> Surrogate<'a> {
    /// Conditions the mixture on values `y` of the observed settings; `None` if that fails under
    /// every draw.
    pub(crate) fn fit(
        hypotheses: &'a [Hypothesis<'a>],
        draws: &[Hyperparameters],
        y: &[f64],
        variance: &[f64],
    ) -> Option<Self> {
        let draws = weighed(draws, y.len());
        // Log weight, hypothesis, process.
        let mut all: Vec<(f64, usize, Gp<'a>)> = Vec::new();
        for (index, hypothesis) in hypotheses.iter().enumerate() {
            let conditioned =
                |draw: &Hyperparameters| hypothesis.prior.conditioned(y, variance, *draw);
            all.extend(draws.iter().filter_map(conditioned).map(|gp| {
                // The reference's value is 0 by definition, which is no evidence.
                (hypothesis.odds.ln() + gp.evidence(), index, gp)
            }));
        }
        let logs: Vec<f64> = all.iter().map(|(log_weight, ..)| *log_weight).collect();
        let mut weights = vec![0.0; hypotheses.len()];
        for (share, (_, index, _)) in shares(&logs).into_iter().zip(&all) {
            weights[*index] += share;
        }
        // A stable sort: equal weights keep the order of the sequence.
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(KEPT);
        let kept: Vec<f64> = all.iter().map(|(log_weight, ..)| *log_weight).collect();
        let parts = shares(&kept).into_iter().zip(all);
        let parts = parts.map(|(weight, (_, index, gp))| Part {
            weight,
            prediction: gp.predict(),
            excess: &hypotheses[index].excess,
        });
        (!kept.is_empty()).then(|| Self {
            parts: parts.collect(),
            weights,
        })
    }

    /// Mean and standard deviation at a setting.
    pub(crate) fn at(&self, i: usize) -> (f64, f64) {
        let part = |part: &Part| {
            let p = &part.prediction;
            (part.weight, p.mean[i], p.variance[i])
        };
        moments(self.parts.iter().map(part))
    }

    /// Mean and standard deviation of how much lower the surface is at setting `b` than at `a`.
    pub(crate) fn difference(&self, a: usize, b: usize) -> (f64, f64) {
        let part = |part: &Part| {
            let p = &part.prediction;
            let variance = p.variance[a] + p.variance[b] - 2.0 * p.covariance(a, b);
            (part.weight, p.mean[a] - p.mean[b], variance.max(0.0))
        };
        moments(self.parts.iter().map(part))
    }

    /// The posterior of setting `i` against the `incumbent`. With a `sample_variance` the
    /// improvement counts as far as a sample of that variance would show it.
    pub(crate) fn outlook(
        &self,
        i: usize,
        incumbent: usize,
        sample_variance: Option<f64>,
        slowdown_max: f64,
    ) -> Outlook {
        let mut outlook = Outlook::default();
        for Part {
            weight,
            prediction: p,
            excess,
        } in &self.parts
        {
            let (variance, covariance) = (p.variance[i], p.covariance(i, incumbent));
            let spread = variance + p.variance[incumbent] - 2.0 * covariance;
            let gain = p.mean[incumbent] - p.mean[i];
            let counts = sample_variance.map_or(spread, |sample_variance| {
                (variance - covariance).powi(2) / (variance + sample_variance)
            });
            outlook.improvement += weight * expected_improvement(gain, counts);
            // A prediction above the ceiling counts in full as a risk.
            let slowdown = excess.get(i).unwrap_or(&0.0) - gain;
            outlook.slowdown += weight * slowdown;
            let tail = (slowdown_max - slowdown) / spread.max(1e-12).sqrt();
            outlook.risk += weight * Normal::standard().cdf(-tail);
        }
        outlook
    }
}

/// Expectation for a setting, relative to the incumbent, in log step time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outlook {
    /// Expected improvement. As far as a sample would show it, that is less where the incumbent is
    /// uncertain or much is known already: the knowledge gradient of two alternatives (P. Frazier,
    /// W. Powell and S. Dayanik, The Knowledge-Gradient Policy for Correlated Normal Beliefs, 2009,
    /// section 2).
    pub(crate) improvement: f64,
    /// Posterior mean less the incumbent's.
    pub(crate) slowdown: f64,
    /// Probability of being slower by more than the limit.
    pub(crate) risk: f64,
}

/// exp, scaled to a sum of 1.
pub(crate) fn shares(logs: &[f64]) -> Vec<f64> {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logs.iter().map(|log| (log - top).exp()).collect();
    let sum: f64 = shares.iter().sum();
    shares.into_iter().map(|share| share / sum).collect()
}

/// Mean and standard deviation of a mixture of (weight, mean, variance).
fn moments(parts: impl Iterator<Item = (f64, f64, f64)>) -> (f64, f64) {
    let (mut first, mut second) = (0.0, 0.0);
    for (weight, mean, variance) in parts {
        first += weight * mean;
        second += weight * (mean * mean + variance);
    }
    (first, (second - first * first).max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Space};

    fn kernel() -> Kernel {
        Kernel::new(&Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap())
    }

    /// A bowl with its bottom at 0.6, relative to its value at 0.
    fn bowl(x: f64) -> f64 {
        (x - 0.6) * (x - 0.6) - 0.36
    }

    /// Fits the mixture to `n` places of the bowl, with a model of this mean if there is one.
    fn with_surrogate<R>(
        n: usize,
        model: Option<&dyn Fn(f64) -> f64>,
        look: impl FnOnce(&Surrogate, &[f64]) -> R,
    ) -> R {
        let places: Vec<f64> = (0..n).map(|i| (i as f64 * 0.618_034).fract()).collect();
        let x: Vec<Coordinates> = places
            .iter()
            .map(|x| {
                let mut c = Coordinates::default();
                c[0] = *x;
                c
            })
            .collect();
        let y: Vec<f64> = places.iter().map(|x| bowl(*x)).collect();
        let kernel = kernel();
        let cold = Hypothesis::cold(&kernel, &x, (0..n).collect(), 0.0);
        let with_model = model.map(|model| {
            let belief = Belief {
                mean: places.iter().map(|x| model(*x)).collect(),
                features: vec![Vec::new(); n],
            };
            Hypothesis::with_model(&kernel, &x, (0..n).collect(), &belief, 9.0)
        });
        let hypotheses: Vec<Hypothesis> = with_model.into_iter().chain([cold]).collect();
        let variance = vec![1e-4; n];
        look(
            &Surrogate::fit(&hypotheses, &kernel.draws(7), &y, &variance).unwrap(),
            &y,
        )
    }

    #[test]
    fn the_mixture_interpolates_few_and_many_observations() {
        for n in [5, 20, 60] {
            with_surrogate(n, None, |surrogate, y| {
                for (i, y) in y.iter().enumerate() {
                    assert!((surrogate.at(i).0 - y).abs() < 0.02, "{n}: {i}");
                    assert!(surrogate.outlook(i, 1, None, SLOWDOWN_MAX).risk < 1e-6);
                }
                let (gain, sd) = surrogate.difference(0, 1);
                assert!(
                    (gain - (y[0] - y[1])).abs() < 0.02 && sd < 0.02,
                    "{gain} {sd}"
                );
                let sum: f64 = surrogate.parts.iter().map(|part| part.weight).sum();
                assert!((sum - 1.0).abs() < 1e-12 && surrogate.parts.len() == KEPT);
            });
        }
    }

    #[test]
    fn a_model_keeps_its_weight_while_it_is_right_and_loses_it_when_it_is_wrong() {
        let weight = |n, model: &dyn Fn(f64) -> f64| {
            with_surrogate(n, Some(model), |surrogate, _| surrogate.weights[0])
        };
        assert!(weight(6, &bowl) > 0.9);
        let wrong = |x: f64| -4.0 * bowl(x);
        assert!(weight(6, &wrong) < 0.1, "{}", weight(6, &wrong));
        assert!((weight(1, &wrong) - MODEL_ODDS).abs() < 1e-9, "no evidence");
    }

    #[test]
    fn an_improvement_that_a_noisy_sample_would_not_show_counts_less() {
        with_surrogate(3, None, |surrogate, _| {
            let [seen, shown] =
                [None, Some(0.01)].map(|noise| surrogate.outlook(2, 1, noise, SLOWDOWN_MAX));
            assert!(shown.improvement <= seen.improvement);
            assert_eq!(shown.slowdown, seen.slowdown);
        });
    }

    #[test]
    fn shares_of_nothing_and_of_extremes() {
        assert_eq!(shares(&[]), [0.0; 0]);
        assert_eq!(shares(&[-1e9, -1e9]), [0.5, 0.5]);
        assert_eq!(shares(&[0.0, -1e9]), [1.0, 0.0]);
    }
}
