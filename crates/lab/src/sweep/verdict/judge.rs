//! Computes the finding for one number of ranks from its measurements.

use super::gather::Gathered;
use super::{Basis, Conclusion, Ending, Estimate, Finding, LEVEL, Noise, Stray};
use crate::sweep::Phase;
use crate::sweep::statistics::{Fit, Observation, ROUNDING, critical, mean, rejected};

/// Minimum degrees of freedom for the confirmation's own noise estimate; with fewer, the estimate
/// from all measurements is used.
const FREEDOM_OWN: usize = 6;

/// Computes the finding from the measurements of `np` ranks, of which there is at least one.
pub(super) fn finding(np: u32, gathered: Gathered) -> Finding {
    let measured = Measured::new(&gathered);
    let (best, gain) = measured.best_and_gain();
    let conclusion = match (measured.default, gain.map(|gain| gain.interval)) {
        (None, _) => Conclusion::NoDefault,
        (Some(default), _) if default == best => Conclusion::DefaultAsGood,
        (_, None | Some(None)) => Conclusion::Unproven,
        (_, Some(Some([low, _]))) if low > ROUNDING => Conclusion::Faster,
        _ => Conclusion::DefaultAsGood,
    };
    let mut rows = gathered.rows.iter();
    let basis = match measured.narrow.measured().next() {
        _ if rows.any(|row| row.phase == Phase::Verify) => Basis::Verified,
        Some(_) => Basis::Confirmed,
        None => Basis::Grid,
    };
    let (best_point, points) = (Some(gathered.points[best].point), measured.outcomes(best));
    let uncertainty = measured.uncertainty();
    Finding {
        basis,
        gain,
        ties_known: measured.repeated,
        noise: measured.noise(),
        ..Finding::new(np, conclusion, best_point, points, uncertainty)
    }
}

/// Measured points, by their index among all points.
struct Measured<'a> {
    gathered: &'a Gathered<'a>,
    fit: Fit,
    /// Fit of the rows after the choice was narrowed.
    narrow: Fit,
    default: Option<usize>,
    /// Whether points other than the default were measured twice.
    repeated: bool,
}

impl<'a> Measured<'a> {
    fn new(gathered: &'a Gathered) -> Self {
        let points = &gathered.points;
        let fit = Fit::new(points.len(), &gathered.observations);
        let rows = gathered.rows.iter().zip(&gathered.observations).enumerate();
        let narrowed = rows.filter(|(index, (row, _))| {
            matches!(row.phase, Phase::Confirm | Phase::Verify) && !fit.strays.contains(index)
        });
        let narrowed: Vec<Observation> = narrowed.map(|(_, (_, of))| *of).collect();
        let is_default = |&point: &usize| points[point].point.is_default();
        let default = fit.measured().find(is_default);
        let twice = |point: usize| fit.count(point) > 1 && Some(point) != default;
        Self {
            repeated: fit.freedom > 0 && (0..points.len()).any(twice),
            gathered,
            narrow: Fit::of_all(points.len(), &narrowed),
            default,
            fit,
        }
    }

    fn mean(&self, point: usize) -> f64 {
        self.fit.means[point].unwrap_or(f64::INFINITY)
    }

    /// Variance of a measurement, if points other than the default were repeated.
    fn variance(&self) -> Option<f64> {
        self.fit.variance.filter(|_| self.repeated)
    }

    /// Returns the fastest of the measured points for which `is_candidate` holds.
    fn fastest(&self, is_candidate: impl Fn(&usize) -> bool) -> Option<usize> {
        let candidates = self.fit.measured().filter(is_candidate);
        candidates.min_by(|&a, &b| self.mean(a).total_cmp(&self.mean(b)))
    }

    /// Returns the best point, among the confirmed ones if there are any, and its gain over the
    /// default.
    fn best_and_gain(&self) -> (usize, Option<Estimate>) {
        let confirmed = |point: &usize| self.narrow.count(*point) > 0;
        let best = self.fastest(confirmed).or_else(|| self.fastest(|_| true));
        let best = best.unwrap_or(0);
        let Some(default) = self.default.filter(|&default| default != best) else {
            return (best, None);
        };
        let fit = match confirmed(&best) && confirmed(&default) {
            true => &self.narrow,
            false => &self.fit,
        };
        let noise = Some(fit).filter(|fit| fit.freedom >= FREEDOM_OWN);
        let reach = self.reach(fit, noise.unwrap_or(&self.fit));
        let gain = self
            .against_default(best, fit, reach)
            .map(Estimate::reversed);
        match gain.and_then(|gain| gain.interval) {
            // The repeated measurement is slower: the first one was fast by chance.
            Some([_, high]) if high < -ROUNDING => (default, None),
            _ => (best, gain),
        }
    }

    /// Returns half the width of the interval of a difference with the variance of `noise`, so
    /// that the intervals of all points of `fit` hold simultaneously.
    fn reach(&self, fit: &Fit, noise: &Fit) -> Option<f64> {
        let others = fit.measured().filter(|point| Some(*point) != self.default);
        let critical = critical(others.count(), noise.freedom, LEVEL);
        Some(critical * noise.variance.filter(|_| self.repeated)?.sqrt())
    }

    /// Compares a point with the default, by the differences of `fit`.
    fn against_default(&self, point: usize, fit: &Fit, reach: Option<f64>) -> Option<Estimate> {
        let default = self.default.filter(|&default| default != point)?;
        let (value, variance) = fit.difference(point, default)?;
        let half = reach.map(|reach| reach * variance.sqrt());
        let interval = half.map(|half| [value - half, value + half]);
        Some(Estimate { value, interval }.map(f64::exp_m1))
    }

    /// For each point, whether it cannot be distinguished from the fastest: Holm's test does not
    /// find it slower.
    fn ties(&self) -> Vec<bool> {
        let mut tied = vec![false; self.gathered.points.len()];
        let Some((variance, fastest)) = self.variance().zip(self.fastest(|_| true)) else {
            return tied;
        };
        let others = self.fit.measured().filter(|&point| point != fastest);
        let others: Vec<usize> = others.collect();
        // In standard errors.
        let slower = |&point: &usize| match self.fit.difference(point, fastest) {
            Some((value, own)) if value.abs() > ROUNDING => value / (variance * own).sqrt(),
            _ => 0.0,
        };
        let t: Vec<f64> = others.iter().map(slower).collect();
        tied[fastest] = true;
        for (&point, rejected) in others.iter().zip(rejected(&t, self.fit.freedom, LEVEL)) {
            tied[point] = !rejected;
        }
        tied
    }

    fn outcomes(&self, best: usize) -> Vec<super::Outcome> {
        let tied = self.ties();
        let reach = self.reach(&self.fit, &self.fit);
        let best_ms = self.mean(best).exp();
        let default_ms = self.default.map(|default| self.mean(default).exp());
        let mut outcomes = self.gathered.points.clone();
        for (point, outcome) in outcomes.iter_mut().enumerate() {
            outcome.measurements = self.fit.count(point) as u32;
            outcome.step_ms = self.fit.means[point].map(f64::exp).or(outcome.step_ms);
            // A point that was cut short is compared by its partial measurement, without an
            // interval.
            let cut_ms = outcome.step_ms.filter(|_| outcome.ending == Ending::Cut);
            let cut = || Some(Estimate::bare(cut_ms? / default_ms? - 1.0));
            let against_default = self.against_default(point, &self.fit, reach);
            outcome.against_default = against_default.or_else(cut);
            outcome.above_best = outcome.step_ms.map(|ms| ms / best_ms - 1.0);
            outcome.tied = tied[point] || point == best;
        }
        outcomes
    }

    fn noise(&self) -> Option<Noise> {
        let observations = &self.gathered.observations;
        let at_s = |index: usize| self.gathered.rows[index].at_s;
        let indices = 0..observations.len();
        let of_default = indices.filter(|&i| Some(observations[i].point) == self.default);
        let of_default = of_default.map(|i| (at_s(i), observations[i].ln_ms.exp()));
        let mut default_over_time: Vec<(f64, f64)> = of_default.collect();
        default_over_time.sort_by(|a, b| a.0.total_cmp(&b.0));
        let stray = |&index: &usize| {
            Some(Stray {
                point: self.gathered.rows[index].point,
                at_s: at_s(index),
                step_ms: observations[index].ln_ms.exp(),
                expected_ms: self.fit.expected(&observations[index])?.exp(),
            })
        };
        Some(Noise {
            sd: self.fit.variance?.sqrt(),
            freedom: self.fit.freedom as u32,
            drift: self.fit.drift().map(f64::exp_m1),
            default_over_time,
            strays: self.fit.strays.iter().filter_map(stray).collect(),
        })
    }

    /// Mean variance of the points' means: the contribution of noise to the differences between
    /// points. In a predicted grid, differences have no noise.
    fn uncertainty(&self) -> f64 {
        let mut points = self.gathered.points.iter();
        if points.any(|point| point.predicted_ms.is_some()) {
            return 0.0;
        }
        let points = self.fit.measured();
        let shares = points.map(|point| 1.0 / self.fit.count(point) as f64);
        self.variance().unwrap_or(0.0) * mean(shares.collect())
    }
}
