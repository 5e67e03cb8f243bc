//! Computes the finding for one number of ranks from its rows.

use super::gather::{Gathered, gather};
use super::{
    Basis, Conclusion, Ending, Estimate, Finding, LEVEL, Noise, Outcome, Stray, knobs, predicted,
};
use crate::sweep::Row;
use crate::sweep::statistics::{Fit, Observation, critical, rejected};

/// Minimum degrees of freedom for the confirmation's own noise estimate; with fewer, the estimate
/// from all measurements is used.
const FREEDOM_OWN: usize = 6;
/// Smaller differences in ln are rounding errors: measurements have few digits.
const ROUNDING: f64 = 1e-9;

/// Computes the finding from the rows of `np` ranks.
pub(super) fn finding(np: u32, rows: &[Row]) -> Finding {
    let gathered = gather(np, rows);
    if gathered.observations.is_empty() {
        return predicted::finding(np, &gathered);
    }
    measured(np, &gathered)
}

/// Measured points, by their index among all points.
struct Measured<'a> {
    gathered: &'a Gathered,
    fit: Fit,
    /// Fit of the rows after the choice was narrowed, if there are any.
    narrow: Option<Fit>,
    default: Option<usize>,
    /// Whether points other than the default were measured twice.
    repeated: bool,
}

fn measured(np: u32, gathered: &Gathered) -> Finding {
    let measured = Measured::new(gathered);
    let (best, gain) = measured.best_and_gain();
    let conclusion = match (measured.default, gain.map(|gain| gain.interval)) {
        (None, _) => Conclusion::NoDefault,
        (Some(default), _) if default == best => Conclusion::DefaultAsGood,
        (_, None | Some(None)) => Conclusion::Unproven,
        (_, Some(Some([low, _]))) if low > ROUNDING => Conclusion::Faster,
        _ => Conclusion::DefaultAsGood,
    };
    let basis = match (gathered.verified, &measured.narrow) {
        (true, _) => Basis::Verified,
        (false, Some(_)) => Basis::Confirmed,
        (false, None) => Basis::Grid,
    };
    let noise = measured.noise();
    // In a predicted grid, differences have no noise.
    let uncertainty = match gathered.predicted.iter().any(Option::is_some) {
        true => 0.0,
        false => measured.uncertainty(),
    };
    let mut finding = Finding {
        np,
        basis,
        conclusion,
        points: measured.outcomes(best),
        best: Some(best),
        default: gathered.points.iter().position(|point| point.is_default()),
        gain,
        ties_known: measured.repeated,
        noise,
        knobs: Vec::new(),
        interaction: 0.0,
    };
    finding.settle_default();
    sorted(finding).with_knobs(uncertainty)
}

impl<'a> Measured<'a> {
    fn new(gathered: &'a Gathered) -> Self {
        let count = gathered.points.len();
        let fit = Fit::new(count, &gathered.observations);
        let narrowed: Vec<Observation> = gathered
            .observations
            .iter()
            .zip(&gathered.narrowed)
            .enumerate()
            .filter(|(index, (_, narrowed))| **narrowed && !fit.strays().contains(index))
            .map(|(_, (observation, _))| *observation)
            .collect();
        let narrow = (!narrowed.is_empty()).then(|| Fit::without(count, &narrowed, Vec::new()));
        let default = gathered.points.iter().position(|point| point.is_default());
        let default = default.filter(|&default| fit.count(default) > 0);
        let twice = |point: usize| fit.count(point) > 1 && Some(point) != default;
        Self {
            repeated: fit.freedom() > 0 && (0..count).any(twice),
            gathered,
            fit,
            narrow,
            default,
        }
    }

    /// Indices of the points with measurements.
    fn points(&self) -> impl Iterator<Item = usize> {
        (0..self.gathered.points.len()).filter(|&point| self.fit.count(point) > 0)
    }

    fn mean(&self, point: usize) -> f64 {
        self.fit.mean(point).unwrap_or(f64::INFINITY)
    }

    /// Returns the fastest of the measured points for which `is_candidate` holds.
    fn fastest(&self, is_candidate: impl Fn(&usize) -> bool) -> Option<usize> {
        let candidates = self.points().filter(is_candidate);
        candidates.min_by(|&a, &b| self.mean(a).total_cmp(&self.mean(b)))
    }

    /// Returns the best point, among the confirmed ones if there are any, and its gain over the
    /// default.
    fn best_and_gain(&self) -> (usize, Option<Estimate>) {
        let confirmed = |point: &usize| {
            let narrow = self.narrow.as_ref();
            narrow.is_none_or(|narrow| narrow.count(*point) > 0)
        };
        // If all rows of the confirmation are strays, the grid decides.
        let best = self.fastest(confirmed).or_else(|| self.fastest(|_| true));
        let best = best.unwrap_or(0);
        let Some(default) = self.default.filter(|&default| default != best) else {
            return (best, None);
        };
        let gain = self.gain(best, default);
        match gain {
            // The repeated measurement is slower: the first one was fast by chance.
            Some(Estimate {
                interval: Some([_, high]),
                ..
            }) if high < -ROUNDING => (default, None),
            gain => (best, gain),
        }
    }

    /// Returns the share of the default's step time that `best` saves.
    fn gain(&self, best: usize, default: usize) -> Option<Estimate> {
        let narrow = self
            .narrow
            .as_ref()
            .filter(|narrow| narrow.count(best) > 0 && narrow.count(default) > 0);
        let fit = narrow.unwrap_or(&self.fit);
        let noise = match narrow {
            Some(narrow) if narrow.freedom() >= FREEDOM_OWN => narrow,
            _ => &self.fit,
        };
        let difference = fit.difference(best, default)?;
        let interval = self
            .repeated
            .then(|| noise.variance())
            .flatten()
            .map(|variance| {
                let reach = against_default(fit, default, noise.freedom())
                    * (variance * difference.variance).sqrt();
                [difference.value - reach, difference.value + reach]
            });
        let saved = |difference: f64| -difference.exp_m1();
        Some(Estimate {
            value: saved(difference.value),
            interval: interval.map(|[low, high]| [saved(high), saved(low)]),
        })
    }

    /// For each point, whether it cannot be distinguished from the fastest: Holm's test does not
    /// find it slower.
    fn ties(&self) -> Vec<bool> {
        let mut tied = vec![false; self.gathered.points.len()];
        let Some(variance) = self.fit.variance().filter(|_| self.repeated) else {
            return tied;
        };
        let Some(fastest) = self.fastest(|_| true) else {
            return tied;
        };
        let others: Vec<usize> = self.points().filter(|&point| point != fastest).collect();
        let slower = |&point: &usize| {
            self.fit
                .difference(point, fastest)
                .map_or(0.0, |found| found.t(variance))
        };
        let t: Vec<f64> = others.iter().map(slower).collect();
        tied[fastest] = true;
        for (&point, rejected) in others.iter().zip(rejected(&t, self.fit.freedom(), LEVEL)) {
            tied[point] = !rejected;
        }
        tied
    }

    fn outcomes(&self, best: usize) -> Vec<Outcome> {
        let gathered = self.gathered;
        let tied = self.ties();
        let variance = self.fit.variance().filter(|_| self.repeated);
        let reach = self.default.zip(variance).map(|(default, variance)| {
            against_default(&self.fit, default, self.fit.freedom()) * variance.sqrt()
        });
        let best_ms = self.mean(best).exp();
        let outcome = |point: usize| {
            let step_ms = match self.fit.mean(point) {
                Some(ln_ms) => Some(ln_ms.exp()),
                None => gathered.cut_ms[point],
            };
            let difference = |default| self.fit.difference(point, default);
            let estimate = self
                .default
                .filter(|&default| default != point)
                .and_then(difference)
                .map(|found| {
                    let reach = reach.map(|reach| reach * found.variance.sqrt());
                    Estimate {
                        value: found.value,
                        interval: reach.map(|reach| [found.value - reach, found.value + reach]),
                    }
                    .relative()
                });
            // A point that was cut short is compared by its partial measurement, without an
            // interval.
            let default_ms = self
                .default
                .and_then(|default| self.fit.mean(default))
                .map(f64::exp);
            let seen = gathered.cut_ms[point].zip(default_ms);
            let estimate =
                estimate.or_else(|| seen.map(|(ms, default)| Estimate::bare(ms / default - 1.0)));
            Outcome {
                point: gathered.points[point],
                ending: ending(gathered, point, self.fit.count(point) > 0),
                measurements: self.fit.count(point) as u32,
                failures: gathered.failures[point].len() as u32,
                step_ms,
                predicted_ms: gathered.predicted[point],
                above_best: step_ms.map(|ms| ms / best_ms - 1.0),
                against_default: estimate,
                tied: tied[point] || point == best,
            }
        };
        (0..gathered.points.len()).map(outcome).collect()
    }

    fn noise(&self) -> Option<Noise> {
        let variance = self.fit.variance()?;
        let observations = &self.gathered.observations;
        let mut default_over_time: Vec<(f64, f64)> = observations
            .iter()
            .filter(|observation| Some(observation.point) == self.default)
            .map(|observation| (observation.at_s, observation.ln_ms.exp()))
            .collect();
        default_over_time.sort_by(|a, b| a.0.total_cmp(&b.0));
        let stray = |&index: &usize| {
            let observation = &observations[index];
            Some(Stray {
                point: self.gathered.points[observation.point],
                at_s: observation.at_s,
                step_ms: observation.ln_ms.exp(),
                expected_ms: self.fit.expected(observation)?.exp(),
            })
        };
        Some(Noise {
            sd: variance.sqrt(),
            freedom: self.fit.freedom() as u32,
            drift: self.fit.drift().exp_m1(),
            default_over_time,
            strays: self.fit.strays().iter().filter_map(stray).collect(),
        })
    }

    /// Mean variance of the points' means: the contribution of noise to the differences between
    /// points.
    fn uncertainty(&self) -> f64 {
        let Some(variance) = self.fit.variance().filter(|_| self.repeated) else {
            return 0.0;
        };
        let shares: Vec<f64> = self
            .points()
            .map(|point| 1.0 / self.fit.count(point) as f64)
            .collect();
        variance * shares.iter().sum::<f64>() / shares.len().max(1) as f64
    }
}

/// Standard errors that bound the differences of all points of `fit` from the default
/// simultaneously.
fn against_default(fit: &Fit, default: usize, freedom: usize) -> f64 {
    let others = (0..fit.points()).filter(|&point| point != default && fit.count(point) > 0);
    critical(others.count(), freedom, LEVEL)
}

/// Source of the point's step time.
pub(super) fn ending(gathered: &Gathered, point: usize, measured: bool) -> Ending {
    match gathered.failures[point].first() {
        _ if measured => Ending::Measured,
        _ if gathered.cut_ms[point].is_some() => Ending::Cut,
        Some(why) => Ending::Failed(why.clone()),
        None => Ending::Predicted,
    }
}

/// Sorts the points and updates the indices of the best point and the default.
pub(super) fn sorted(mut finding: Finding) -> Finding {
    let class = |outcome: &Outcome| match outcome.ending {
        Ending::Measured => 0,
        Ending::Predicted => 1,
        Ending::Cut => 2,
        Ending::Failed(_) => 3,
    };
    let time = |outcome: &Outcome| {
        let predicted = outcome.predicted_ms.map(|predicted| predicted.value);
        outcome.step_ms.or(predicted).unwrap_or(f64::INFINITY)
    };
    let mut order: Vec<usize> = (0..finding.points.len()).collect();
    // The best point is first even if a point that was not confirmed appeared better.
    order.sort_by(|&a, &b| {
        let key = |index: usize| (Some(index) != finding.best, class(&finding.points[index]));
        let times = time(&finding.points[a]).total_cmp(&time(&finding.points[b]));
        key(a).cmp(&key(b)).then(times)
    });
    let place = |wanted: Option<usize>| {
        wanted.and_then(|wanted| order.iter().position(|&index| index == wanted))
    };
    (finding.best, finding.default) = (place(finding.best), place(finding.default));
    finding.points = order
        .iter()
        .map(|&index| finding.points[index].clone())
        .collect();
    finding
}

impl Finding {
    /// Makes the default's tie agree with the conclusion: a proven gain takes precedence over the
    /// weaker result of the comparison of all points with each other.
    pub(super) fn settle_default(&mut self) {
        let Some(default) = self.default else { return };
        match self.conclusion {
            Conclusion::Faster => self.points[default].tied = false,
            Conclusion::DefaultAsGood => self.points[default].tied = true,
            _ => {}
        }
    }

    /// Adds the effects of the knobs; `uncertainty` is the variance of the points' means due to
    /// noise.
    pub(super) fn with_knobs(mut self, uncertainty: f64) -> Self {
        (self.knobs, self.interaction) = knobs::effects(&self.points, uncertainty);
        self
    }
}
