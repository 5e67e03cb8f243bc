//! Finding for points that were not measured, from the predictions of replay.

use super::gather::Gathered;
use super::{Basis, Conclusion, Ending, Estimate, Finding, Jobs, Outcome};
use crate::sweep::Point;
use ronde_job::gate::Withheld;
use ronde_job::percentile::percentile_of;

/// Predictions within this relative difference count as equal: no model is more accurate.
const NEARLY: f64 = 0.002;

/// Finding from the predictions alone. With `jobs`, comparisons have intervals.
pub(super) fn finding(np: u32, gathered: Gathered, jobs: &Jobs) -> Finding {
    let mut points = gathered.points;
    let predicted = Outcome::predicted;
    let is_outside = |point: &Point| jobs.outside.contains(&point.key());
    // Every gain is relative to the default, and the default is recommended if there is none.
    let no_baseline = is_outside(&Point::default_of(np));
    // A point whose verification failed is not recommended.
    let sound = |outcome: &Outcome| {
        outcome.ending == Ending::Predicted && (no_baseline || !is_outside(&outcome.point))
    };
    let sound_ms = points.iter().filter(|one| sound(one)).filter_map(predicted);
    let least = sound_ms.fold(f64::INFINITY, f64::min);
    let is_least = |outcome: &Outcome| {
        sound(outcome) && predicted(outcome).is_some_and(|ms| ms <= least * (1.0 + NEARLY))
    };
    let distance = |outcome: &Outcome| outcome.point.distance(&Point::default_of(np));
    let candidates = points.iter().filter(|outcome| is_least(outcome));
    let best = candidates.min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let best = best.cloned();
    let default = points.iter().find(|one| one.point.is_default()).cloned();
    // Comparison by all jobs, or by the best estimates alone.
    let compare = |own: &Outcome, other: &Outcome| {
        let by_jobs = || ratio(jobs.of(&own.point)?, jobs.of(&other.point)?);
        let bare = || Some(Estimate::bare(predicted(own)? / predicted(other)? - 1.0));
        by_jobs().or_else(bare)
    };
    let against_default = |outcome: &Outcome| {
        let is_other = |default: &&Outcome| default.point != outcome.point;
        compare(outcome, default.as_ref().filter(is_other)?)
    };
    let gain = best.as_ref().and_then(against_default);
    for outcome in &mut points {
        let against = best.as_ref().and_then(|best| compare(outcome, best));
        let low = against.and_then(|above| Some(above.interval?[0]));
        outcome.tied = is_least(outcome) || sound(outcome) && low.is_some_and(|low| low <= NEARLY);
        let both = predicted(outcome).zip(best.as_ref().and_then(predicted));
        outcome.above_best = both.map(|(ms, best)| ms / best - 1.0);
        outcome.against_default = against_default(outcome);
    }
    let conclusion = match (&best, default.as_ref().and_then(predicted), gain) {
        (None, ..) => Conclusion::Nothing,
        (_, None, _) => Conclusion::NoDefault,
        (_, _, Some(gain)) if gain.value <= -NEARLY => match gain.interval {
            Some([_, high]) if high < 0.0 => Conclusion::Faster,
            _ => Conclusion::Unproven,
        },
        _ => Conclusion::DefaultAsGood,
    };
    let best = best.map(|best| best.point);
    let point = "the default".to_owned();
    let of_default = no_baseline.then_some(Withheld::OutsideRange { point });
    Finding {
        basis: Basis::Predicted,
        gain: gain.map(Estimate::reversed),
        of_recording: jobs.withheld.clone().or(of_default),
        ties_known: best.is_some_and(|best| jobs.of(&best).is_some()),
        ..Finding::new(np, conclusion, best, points, 0.0)
    }
}

/// `own` relative to `other`, minus one: median over the jobs, with the 10th and 90th percentiles.
fn ratio(own: &[f64], other: &[f64]) -> Option<Estimate> {
    let ratios = own.iter().zip(other).map(|(own, other)| own / other - 1.0);
    let ratios: Vec<f64> = ratios.collect();
    let at = |share| percentile_of(ratios.clone(), share);
    Some(Estimate {
        value: at(0.5)?,
        interval: Some([at(0.1)?, at(0.9)?]),
    })
}
