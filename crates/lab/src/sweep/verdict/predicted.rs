//! Finding for points that were not measured, from the predictions of replay.

use super::gather::Gathered;
use super::judge::{ending, sorted};
use super::{Basis, Conclusion, Ending, Estimate, Finding, Outcome, Verdict};
use crate::sweep::Point;
use ronde_job::percentile::percentile;

/// Predictions within this relative difference count as equal: no model is more accurate.
const NEARLY: f64 = 0.002;

/// Finding from the predictions alone; [`compare_jobs`] adds the intervals of the comparisons.
pub(super) fn finding(np: u32, gathered: &Gathered) -> Finding {
    let predicted = |point: usize| gathered.predicted[point].map(|predicted| predicted.value);
    // A point whose verification failed is not recommended.
    let sound = |&point: &usize| ending(gathered, point, false) == Ending::Predicted;
    let all = || {
        (0..gathered.points.len())
            .filter(sound)
            .filter_map(|point| Some((point, predicted(point)?)))
    };
    let least = all().map(|(_, ms)| ms).fold(f64::INFINITY, f64::min);
    let default_point = Point::default_of(np);
    let best = all()
        .filter(|(_, ms)| *ms <= least * (1.0 + NEARLY))
        .map(|(point, _)| point)
        .min_by(|&a, &b| {
            let distance = |point: usize| distance(&gathered.points[point], &default_point);
            distance(a).total_cmp(&distance(b))
        });
    let default = gathered.points.iter().position(|point| point.is_default());
    let default_ms = default.and_then(predicted);
    let best_ms = best.and_then(predicted);
    let conclusion = match (best, default_ms) {
        (None, _) => Conclusion::Nothing,
        (_, None) => Conclusion::NoDefault,
        (Some(_), Some(_)) if best == default => Conclusion::DefaultAsGood,
        _ => Conclusion::Unproven,
    };
    let outcome = |point: usize| {
        let ms = predicted(point);
        let of = |other: Option<f64>| ms.zip(other).map(|(ms, other)| ms / other - 1.0);
        Outcome {
            point: gathered.points[point],
            ending: ending(gathered, point, false),
            measurements: 0,
            failures: gathered.failures[point].len() as u32,
            step_ms: gathered.cut_ms[point],
            predicted_ms: gathered.predicted[point],
            above_best: of(best_ms),
            against_default: of(default_ms.filter(|_| Some(point) != default)).map(Estimate::bare),
            tied: sound(&point) && ms.is_some_and(|ms| ms <= least * (1.0 + NEARLY)),
        }
    };
    let gain = default_ms
        .zip(best_ms)
        .map(|(default, best)| Estimate::bare(1.0 - best / default));
    let finding = Finding {
        np,
        basis: Basis::Predicted,
        conclusion,
        points: (0..gathered.points.len()).map(outcome).collect(),
        best,
        default,
        gain: gain.filter(|_| best != default),
        ties_known: false,
        noise: None,
        knobs: Vec::new(),
        interaction: 0.0,
    };
    let finding = sorted(finding);
    finding.with_knobs(0.0)
}

/// Distance of two settings: number of different knobs first, then the distance on them.
fn distance(a: &Point, b: &Point) -> f64 {
    let way = |a: f64, b: f64| (a.max(1e-2) / b.max(1e-2)).ln().abs();
    let fusion = way(a.fusion_mb(), b.fusion_mb());
    let cycle = way(a.cycle_time_ms, b.cycle_time_ms);
    let changed = [
        fusion > 0.0,
        cycle > 0.0,
        a.cache != b.cache,
        a.hierarchical_allreduce != b.hierarchical_allreduce,
    ];
    changed.into_iter().filter(|changed| *changed).count() as f64 * 100.0 + fusion + cycle
}

/// Adds intervals to the comparisons of predictions: for each of `points`, `jobs` holds the step
/// time of each job that fits the recording, in one unit and one order. The jobs are the same for
/// all points, so uncertainty that all points share does not widen the intervals of their
/// differences. Findings from measurements do not change.
pub fn compare_jobs(verdict: &mut Verdict, points: &[Point], jobs: &[Vec<f64>]) {
    for finding in &mut verdict.findings {
        if finding.basis == Basis::Predicted {
            compare(finding, points, jobs);
        }
    }
}

fn compare(finding: &mut Finding, points: &[Point], jobs: &[Vec<f64>]) {
    let jobs_of = |point: &Point| {
        let index = points.iter().position(|known| known == point)?;
        jobs.get(index).filter(|jobs| !jobs.is_empty())
    };
    let best = finding.best().and_then(|best| jobs_of(&best.point));
    let default = finding
        .default()
        .and_then(|default| jobs_of(&default.point));
    let default_index = finding.default;
    for (index, outcome) in finding.points.iter_mut().enumerate() {
        let own = jobs_of(&outcome.point);
        if let Some(estimate) = own.zip(best).and_then(|(own, best)| ratio(own, best)) {
            let nearly = estimate.interval.is_some_and(|[low, _]| low <= NEARLY);
            outcome.tied |= nearly && outcome.ending == Ending::Predicted;
        }
        if Some(index) != default_index
            && let Some(estimate) = own
                .zip(default)
                .and_then(|(own, default)| ratio(own, default))
        {
            outcome.against_default = Some(estimate);
        }
    }
    finding.ties_known = best.is_some();
    let against = finding.best().filter(|_| finding.best != finding.default);
    if let Some(against) = against.and_then(|best| best.against_default) {
        finding.gain = Some(Estimate {
            value: -against.value,
            interval: against.interval.map(|[low, high]| [-high, -low]),
        });
        finding.conclusion = match against.interval {
            _ if against.value > -NEARLY => Conclusion::DefaultAsGood,
            Some([_, high]) if high < 0.0 => Conclusion::Faster,
            _ => Conclusion::Unproven,
        };
    }
    finding.settle_default();
}

/// `own` relative to `other`, minus one: median over the jobs, with the 10th and 90th percentiles.
fn ratio(own: &[f64], other: &[f64]) -> Option<Estimate> {
    let mut ratios: Vec<f64> = own
        .iter()
        .zip(other)
        .map(|(own, other)| own / other - 1.0)
        .collect();
    ratios.sort_by(f64::total_cmp);
    Some(Estimate {
        value: percentile(&ratios, 0.5)?,
        interval: Some([percentile(&ratios, 0.1)?, percentile(&ratios, 0.9)?]),
    })
}
