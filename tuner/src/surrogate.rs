//! The surrogate: a mixture of a few Gaussian processes, each under its own draw of the hyper-parameters, some that believe the
//! model and some that do not.
//!
//! With ten observations no single length scale is known, and a single fit is overconfident. So every draw is weighed by its
//! marginal likelihood under either hypothesis, and the best are averaged; the very best is first refined towards the maximum of
//! likelihood times prior. Draws that the first observations all but exclude are dropped before they cost more (successive
//! halving: K. Jamieson and A. Talwalkar, Non-stochastic Best Arm Identification, 2016).

use statrs::distribution::{ContinuousCDF, Normal};

use crate::Warning;
use crate::acquisition::expected_improvement;
use crate::draws::Scores;
use crate::gp::{Gp, Scene};
use crate::refine::{Objective, refine};

/// Draws that are kept in all, at most: with few observations, with many, where the draws agree and each costs more.
const KEPT: [usize; 2] = [8, 3];
/// Up to how many observations the first of them holds.
const OBSERVATIONS_FEW: usize = 24;
/// Rows by which draws are judged, and how many then go on, per hypothesis.
const HALVINGS: [(usize, usize); 3] = [(8, 64), (16, 24), (32, 8)];
/// Draws below this share of the weight change nothing that matters.
const WEIGHT_MIN: f64 = 1e-3;
/// A slow-down, in log step time, that no proposal may risk: a factor of 3.
pub(crate) const SLOWDOWN_MAX: f64 = 1.098_612_288_668_109_8;
/// Standard deviations beyond which a normal tail (1e-9) adds nothing.
const TAIL: f64 = 6.0;

/// The mixture, conditioned on the observations.
pub(crate) struct Surrogate<'a> {
    scene: &'a Scene<'a>,
    /// Weight and process; the weights sum to 1.
    parts: Vec<(f64, Gp<'a>)>,
    /// Posterior probability of each hypothesis.
    pub(crate) weights: Vec<f64>,
    /// What went wrong and was survived.
    pub(crate) warning: Option<Warning>,
}

/// A process under one of the draws.
struct Drawn<'a> {
    scores: &'a Scores,
    gp: Gp<'a>,
}

impl<'a> Surrogate<'a> {
    /// Fits the mixture.
    ///
    /// # Errors
    /// [`Warning::SurrogateFailed`] if the process cannot be conditioned under any draw.
    pub(crate) fn fit(scene: &'a Scene<'a>, draws: &'a [Scores]) -> Result<Self, Warning> {
        let hypotheses = 0..scene.hypotheses.len();
        let mut drawn = Vec::new();
        let mut evidence = Vec::new();
        for hypothesis in hypotheses.clone() {
            let (best, log_evidence) = weigh(scene, hypothesis, draws);
            drawn.extend(best);
            evidence.push(scene.hypothesis(hypothesis).odds.ln() + log_evidence);
        }
        let weights = shares(&evidence);
        // Log weight of a draw: its hypothesis's, times its share of the likelihood there.
        let totals: Vec<f64> = hypotheses
            .map(|h| {
                let of_h = drawn.iter().filter(|d| d.gp.hypothesis == h);
                log_sum(&of_h.map(|d| d.gp.log_likelihood).collect::<Vec<_>>())
            })
            .collect();
        let log_weight =
            |gp: &Gp| gp.log_likelihood - totals[gp.hypothesis] + weights[gp.hypothesis].ln();
        // A stable sort: equal weights keep the order of the sequence.
        drawn.sort_by(|a, b| log_weight(&b.gp).total_cmp(&log_weight(&a.gp)));
        let few = scene.observed.len() <= OBSERVATIONS_FEW;
        drawn.truncate(KEPT[usize::from(!few)]);
        let Some(best) = drawn.first() else {
            return Err(Warning::SurrogateFailed {
                observations: scene.observed.len(),
            });
        };
        let objective = |hypothesis| Objective { scene, hypothesis };
        let hypothesis = best.gp.hypothesis;
        let (refined, warning) = match refine(objective(hypothesis), best.scores) {
            Ok(scores) => (objective(hypothesis).gp(&scores), None),
            Err(warning) => (None, Some(warning)),
        };
        let gps: Vec<Gp> = drawn.into_iter().map(|d| d.gp).chain(refined).collect();
        let shares = shares(&gps.iter().map(log_weight).collect::<Vec<_>>());
        let mut parts: Vec<(f64, Gp)> = shares.into_iter().zip(gps).collect();
        parts.retain(|part| part.0 >= WEIGHT_MIN);
        let sum: f64 = parts.iter().map(|part| part.0).sum();
        parts.iter_mut().for_each(|part| part.0 /= sum);
        Ok(Self {
            scene,
            parts,
            weights,
            warning,
        })
    }

    /// The posterior mean at the observed settings.
    pub(crate) fn observed_means(&self) -> Vec<f64> {
        let mut means = vec![0.0; self.scene.observed.len()];
        for (weight, gp) in &self.parts {
            for (mean, value) in means.iter_mut().zip(gp.observed_means()) {
                *mean += weight * value;
            }
        }
        means
    }

    /// Mean and standard deviation of how much lower the surface is at observed setting `b` than at `a`.
    pub(crate) fn difference(&self, a: usize, b: usize) -> (f64, f64) {
        let of_parts = self.parts.iter().map(|(weight, gp)| {
            let means = gp.observed_means();
            let [at_a, at_b, both] = gp.observed_covariance(a, b);
            (
                *weight,
                means[a] - means[b],
                (at_a + at_b - 2.0 * both).max(0.0),
            )
        });
        moments(of_parts)
    }

    /// Mean and standard deviation at observed setting `a`.
    pub(crate) fn at_observed(&self, a: usize) -> (f64, f64) {
        moments(self.parts.iter().map(|(weight, gp)| {
            let [variance, ..] = gp.observed_covariance(a, a);
            (*weight, gp.observed_means()[a], variance.max(0.0))
        }))
    }

    /// The posterior of every candidate against the observed setting `incumbent`. With a `sample_variance` the improvement counts as far
    /// as a sample of that variance would show it.
    pub(crate) fn outlook(&self, incumbent: usize, sample_variance: Option<f64>) -> Outlook {
        let count = self.scene.candidates.len();
        let mut outlook = Outlook {
            mean: vec![0.0; count],
            variance: vec![0.0; count],
            improvement: vec![0.0; count],
            slowdown: vec![0.0; count],
            risk: vec![0.0; count],
        };
        let normal = Normal::standard();
        for (weight, gp) in &self.parts {
            let at_incumbent = gp.observed_means()[incumbent];
            let [incumbent_variance, ..] = gp.observed_covariance(incumbent, incumbent);
            let prediction = gp.predict(incumbent);
            let excess = &self.scene.hypothesis(gp.hypothesis).candidate_excess;
            for (c, excess) in excess.iter().enumerate() {
                let (mean, variance) = (prediction.mean[c], prediction.variance[c]);
                outlook.mean[c] += weight * mean;
                // The second moment for now.
                outlook.variance[c] += weight * (mean * mean + variance);
                let spread = variance + incumbent_variance - 2.0 * prediction.covariance[c];
                let gain = at_incumbent - mean;
                let counts = sample_variance.map_or(spread, |sample_variance| {
                    (variance - prediction.covariance[c]).powi(2) / (variance + sample_variance)
                });
                outlook.improvement[c] += weight * expected_improvement(gain, counts);
                // How bad it may be counts in full, though nothing above the ceiling can be learnt.
                let slowdown = excess - gain;
                outlook.slowdown[c] += weight * slowdown;
                let tail = (SLOWDOWN_MAX - slowdown) / spread.max(1e-12).sqrt();
                if tail < TAIL {
                    outlook.risk[c] += weight * normal.cdf(-tail);
                }
            }
        }
        for (variance, mean) in outlook.variance.iter_mut().zip(&outlook.mean) {
            *variance = (*variance - mean * mean).max(0.0);
        }
        outlook
    }
}

/// The draws worth keeping under a hypothesis, conditioned on everything, and the log of the mean likelihood of all draws given the
/// first observation (which is zero by definition, and so no evidence).
fn weigh<'a>(
    scene: &'a Scene<'a>,
    hypothesis: usize,
    draws: &'a [Scores],
) -> (Vec<Drawn<'a>>, f64) {
    let n = scene.observed.len();
    let signal = scene.hypothesis(hypothesis).signal;
    let grow = |drawn: Vec<Drawn<'a>>, rows: usize| -> Vec<Drawn<'a>> {
        let grown = drawn.into_iter().filter_map(|Drawn { scores, gp }| {
            Some(Drawn {
                scores,
                gp: gp.conditioned(rows)?,
            })
        });
        grown.collect()
    };
    let new = |scores: &'a Scores| Drawn {
        scores,
        gp: Gp::new(
            scene,
            hypothesis,
            scores.hyperparameters(scene.kernel, signal),
        ),
    };
    let mut drawn = grow(draws.iter().map(new).collect(), n.min(HALVINGS[0].0));
    let first: Vec<f64> = drawn.iter().map(|d| d.gp.log_likelihood_first).collect();
    for (index, (rows, kept)) in HALVINGS.into_iter().enumerate() {
        if n <= rows {
            break;
        }
        drawn.sort_by(|a, b| b.gp.log_likelihood.total_cmp(&a.gp.log_likelihood));
        drawn.truncate(kept);
        let next = HALVINGS
            .get(index + 1)
            .map_or(n, |halving| halving.0.min(n));
        drawn = grow(drawn, next);
    }
    let likelihoods: Vec<f64> = drawn.iter().map(|d| d.gp.log_likelihood).collect();
    (drawn, log_sum(&likelihoods) - log_sum(&first))
}

/// ln Σ exp, −∞ of nothing.
fn log_sum(logs: &[f64]) -> f64 {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !top.is_finite() {
        return f64::NEG_INFINITY;
    }
    top + logs.iter().map(|log| (log - top).exp()).sum::<f64>().ln()
}

/// exp, scaled to a sum of 1.
pub(crate) fn shares(logs: &[f64]) -> Vec<f64> {
    let total = log_sum(logs);
    logs.iter().map(|log| (log - total).exp()).collect()
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

/// What the mixture expects of each candidate.
pub(crate) struct Outlook {
    /// Posterior mean of the log step time, relative to the reference.
    pub(crate) mean: Vec<f64>,
    /// Its variance.
    pub(crate) variance: Vec<f64>,
    /// Expected improvement on the incumbent, in log step time. As far as a sample would show it, that is less where the incumbent is
    /// what is uncertain, or much is known already: the knowledge gradient of two alternatives (P. Frazier, W. Powell and S. Dayanik,
    /// The Knowledge-Gradient Policy for Correlated Normal Beliefs, 2009, section 2).
    pub(crate) improvement: Vec<f64>,
    /// Posterior mean of the log step time less the incumbent's, as bad as it is.
    pub(crate) slowdown: Vec<f64>,
    /// Probability of being slower than the incumbent by more than [`SLOWDOWN_MAX`].
    pub(crate) risk: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use argmin::core::CostFunction;

    use crate::draws::draws;
    use crate::gp::tests::{kernel, observations};
    use crate::hypothesis::Hypothesis;
    use crate::lanes::Columns;
    use crate::model::Belief;

    /// A bowl with its bottom at 0.6, seen at some places with this error in one of them.
    fn rows(n: usize, error: f64) -> Vec<[f64; 3]> {
        (0..n)
            .map(|i| {
                let x = (i as f64 * 0.618_034).fract();
                let y = (x - 0.6) * (x - 0.6) - 0.36;
                [x, if i == 2 { y + error } else { y }, 1e-4]
            })
            .collect()
    }

    /// Fits the mixture, with a model of the given mean if there is one.
    fn with_surrogate<R>(
        rows: &[[f64; 3]],
        model: Option<&dyn Fn(f64) -> f64>,
        look: impl FnOnce(Result<Surrogate, Warning>) -> R,
    ) -> R {
        let (kernel, observations) = (kernel(), observations(rows));
        let observed = Columns::new(&kernel, &observations.x);
        let mut hypotheses = vec![Hypothesis::cold(rows.len(), rows.len())];
        if let Some(model) = model {
            let mean: Vec<f64> = rows.iter().chain(rows).map(|row| model(row[0])).collect();
            let belief = Belief {
                mean,
                features: Vec::new(),
            };
            hypotheses[0].odds = 0.1;
            hypotheses.insert(0, Hypothesis::with_model(&belief, rows.len(), 0.01, 9.0));
        }
        let scene = Scene::new(&kernel, &observations, &observed, hypotheses);
        look(Surrogate::fit(&scene, &draws(&kernel, 7)))
    }

    #[test]
    fn mixture_interpolates_with_few_and_with_many_observations() {
        for n in [5, 20, 50] {
            let rows = rows(n, 0.0);
            with_surrogate(&rows, None, |surrogate| {
                let surrogate = surrogate.unwrap();
                assert_eq!(surrogate.warning, None);
                let outlook = surrogate.outlook(1, None);
                for (i, mean) in surrogate.observed_means().iter().enumerate() {
                    assert!(
                        (mean - rows[i][1]).abs() < 0.02,
                        "{n}: {mean} {}",
                        rows[i][1]
                    );
                    assert!(
                        (mean - outlook.mean[i]).abs() < 1e-6,
                        "{n}: {mean} {}",
                        outlook.mean[i]
                    );
                }
                assert!((surrogate.parts.iter().map(|p| p.0).sum::<f64>() - 1.0).abs() < 1e-12);
                let (gain, sd) = surrogate.difference(0, 1);
                assert!(
                    (gain - (rows[0][1] - rows[1][1])).abs() < 0.02 && sd < 0.02,
                    "{n}: {gain} {sd}"
                );
                assert!(outlook.risk.iter().all(|risk| *risk < 1e-6));
            });
        }
    }

    #[test]
    fn refinement_raises_the_posterior() {
        with_surrogate(&rows(5, 0.0), None, |surrogate| {
            let surrogate = surrogate.unwrap();
            let scene = surrogate.scene;
            let objective = || Objective {
                scene,
                hypothesis: 0,
            };
            let start = &draws(scene.kernel, 7)[0];
            let refined = refine(objective(), start).unwrap();
            assert!(objective().cost(&refined).unwrap() < objective().cost(start).unwrap());
        });
    }

    #[test]
    fn a_model_keeps_its_weight_while_it_is_right_and_loses_it_when_it_is_wrong() {
        let right = |x: f64| (x - 0.6) * (x - 0.6) - 0.36;
        let weight = |n, model: &dyn Fn(f64) -> f64| {
            with_surrogate(&rows(n, 0.0), Some(model), |surrogate| {
                surrogate.unwrap().weights[0]
            })
        };
        assert!(weight(2, &right) > 0.9);
        assert!(weight(6, &right) > 0.97, "{}", weight(6, &right));
        // A cliff of a factor of 2.7 that is not there, and three residuals that say so.
        let cliff = |x: f64| if x > 0.1 { 1.0 } else { 0.0 };
        assert!(weight(4, &cliff) < 0.1, "{}", weight(4, &cliff));
        // A bowl upside down.
        let reversed = |x: f64| -3.0 * (x - 0.6) * (x - 0.6) + 1.08;
        assert!(weight(6, &reversed) < 0.1, "{}", weight(6, &reversed));
    }

    #[test]
    fn nan_gives_a_warning_not_a_panic() {
        let error = with_surrogate(&rows(5, f64::NAN), None, |surrogate| surrogate.err());
        assert_eq!(error, Some(Warning::SurrogateFailed { observations: 5 }));
    }

    #[test]
    fn mixtures_by_hand() {
        // ½ N(0, 1) + ½ N(2, 1): mean 1, variance 2.
        let (mean, sd) = moments([(0.5, 0.0, 1.0), (0.5, 2.0, 1.0)].into_iter());
        assert!((mean - 1.0).abs() < 1e-12 && (sd * sd - 2.0).abs() < 1e-12);
        assert_eq!(log_sum(&[]), f64::NEG_INFINITY);
        assert!((log_sum(&[0.0, 3f64.ln()]) - 4f64.ln()).abs() < 1e-12);
        let thirds = shares(&[-1000.0, -1000.0 + 2f64.ln()]);
        assert!((thirds[0] - 1.0 / 3.0).abs() < 1e-12, "{thirds:?}");
    }
}
