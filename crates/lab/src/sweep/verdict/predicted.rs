//! Finding for points that were not measured, from the predictions of replay.

use super::gather::Gathered;
use super::{Basis, Conclusion, Ending, Estimate, Finding, Jobs, knobs};
use crate::sweep::Point;
use ronde_job::percentile::percentile_of;

/// Predictions within this relative difference count as equal: no model is more accurate.
const NEARLY: f64 = 0.002;

/// Finding from the predictions alone. With `jobs`, comparisons have intervals.
pub(super) fn finding(np: u32, gathered: Gathered, jobs: &Jobs) -> Finding {
    let mut finding = Finding::new(np, gathered.points);
    let predicted = |point: usize| Some(finding.points[point].predicted_ms?.value);
    // A point whose verification failed is not recommended.
    let sound = |&point: &usize| finding.points[point].ending == Ending::Predicted;
    let all = || {
        let points = (0..finding.points.len()).filter(sound);
        points.filter_map(|point| Some((point, predicted(point)?)))
    };
    let least = all().map(|(_, ms)| ms).fold(f64::INFINITY, f64::min);
    let from_default =
        |point: usize| distance(&finding.points[point].point, &Point::default_of(np));
    let best = all()
        .filter(|(_, ms)| *ms <= least * (1.0 + NEARLY))
        .map(|(point, _)| point)
        .min_by(|&a, &b| from_default(a).total_cmp(&from_default(b)));
    let default = finding
        .points
        .iter()
        .position(|outcome| outcome.point.is_default());
    // Comparison by all jobs, or by the best estimates alone.
    let compare = |own: usize, other: usize| {
        let jobs_of = |point: usize| jobs.of(&finding.points[point].point);
        let by_jobs = || ratio(jobs_of(own)?, jobs_of(other)?);
        let bare = || Some(Estimate::bare(predicted(own)? / predicted(other)? - 1.0));
        by_jobs().or_else(bare)
    };
    let comparisons: Vec<[Option<Estimate>; 2]> = (0..finding.points.len())
        .map(|point| {
            let default = default.filter(|&default| default != point);
            [best, default].map(|other| compare(point, other?))
        })
        .collect();
    let tied: Vec<bool> = (0..finding.points.len())
        .map(|point| {
            let nearly = predicted(point).is_some_and(|ms| ms <= least * (1.0 + NEARLY));
            let interval = comparisons[point][0].and_then(|above| above.interval);
            sound(&point) && (nearly || interval.is_some_and(|[low, _]| low <= NEARLY))
        })
        .collect();
    let best_ms = best.and_then(predicted);
    finding.conclusion = match (best, default.and_then(predicted)) {
        (None, _) => Conclusion::Nothing,
        (_, None) => Conclusion::NoDefault,
        (Some(best), Some(_)) => match comparisons[best][1] {
            None => Conclusion::DefaultAsGood,
            Some(against) if against.value > -NEARLY => Conclusion::DefaultAsGood,
            Some(Estimate {
                interval: Some([_, high]),
                ..
            }) if high < 0.0 => Conclusion::Faster,
            Some(_) => Conclusion::Unproven,
        },
    };
    finding.gain = best
        .and_then(|best| comparisons[best][1])
        .map(Estimate::reversed);
    finding.ties_known = best.is_some_and(|best| jobs.of(&finding.points[best].point).is_some());
    for ((outcome, [_, against]), tied) in finding.points.iter_mut().zip(comparisons).zip(tied) {
        let ms = outcome.predicted_ms.map(|predicted| predicted.value);
        outcome.above_best = ms.zip(best_ms).map(|(ms, best)| ms / best - 1.0);
        (outcome.against_default, outcome.tied) = (against, tied);
    }
    (finding.basis, finding.best, finding.default) = (Basis::Predicted, best, default);
    finding.settle_default();
    finding.sort();
    (finding.knobs, finding.interaction) = knobs::effects(&finding.points, 0.0);
    finding
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

/// `own` relative to `other`, minus one: median over the jobs, with the 10th and 90th percentiles.
fn ratio(own: &[f64], other: &[f64]) -> Option<Estimate> {
    let ratios: Vec<f64> = own
        .iter()
        .zip(other)
        .map(|(own, other)| own / other - 1.0)
        .collect();
    let at = |share| percentile_of(ratios.clone(), share);
    Some(Estimate {
        value: at(0.5)?,
        interval: Some([at(0.1)?, at(0.9)?]),
    })
}
