//! Verdict on a sweep, as data: best point, gain over the default, ties, confidence.
//!
//! Points on different numbers of ranks are never compared: each number of ranks has its own
//! [`Finding`]. Conclusions are based on [`super::statistics`]: one model of all rows determines
//! the best point and the points that cannot be distinguished from it. The gain comes from the rows
//! that were measured after the choice was narrowed ([`Phase::Confirm`], [`Phase::Verify`]), if
//! there are any, since the minimum of many noisy means is biased downwards.

mod gather;
mod judge;
mod knobs;
mod predicted;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};

use ronde_job::gate::{Evidence, Withheld};
use serde::{Serialize, Serializer};

use super::{Point, PointKey, Row};
pub use knobs::{Knob, KnobEffect, Level};

/// Level of the intervals of measurements.
pub const LEVEL: f64 = 0.95;
/// Level of the intervals of predictions: from the 10th to the 90th percentile of the jobs that fit
/// the recording.
pub const LEVEL_PREDICTED: f64 = 0.8;
/// A gain that is certainly below this share of the step time does not justify a change of
/// settings.
const GAIN_THAT_MATTERS: f64 = 0.01;

/// Verdict on a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// One finding for each number of ranks, ascending.
    pub findings: Vec<Finding>,
    /// Number of measurements by how they ended.
    pub measurements: Tally,
    /// Seconds from the start of the sweep to its last row.
    pub took_s: f64,
}

/// Number of measurements by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Complete measurements.
    pub done: u32,
    /// Measurements that ended early, because the point was clearly worse.
    pub cut: u32,
    /// Measurements without a result.
    pub failed: u32,
}

/// Finding for one number of ranks. In JSON, changes are in percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Number of ranks.
    pub np: u32,
    /// Data that the finding is based on.
    pub basis: Basis,
    /// Conclusion.
    pub conclusion: Conclusion,
    /// All points: the best point, which is first even if a point that was not confirmed appeared
    /// better; then measured points by their step times, points that were only predicted, points
    /// that were cut short, and points that failed.
    pub points: Vec<Outcome>,
    /// Step time that the best point saves, as a share of the default's.
    #[serde(rename = "gain_pct", serialize_with = "percent_of_estimate")]
    pub gain: Option<Estimate>,
    /// Whether ties can be determined: a point other than the default was measured twice.
    #[serde(skip)]
    pub ties_known: bool,
    /// Reason of the recording to recommend no setting, if there are only predictions.
    #[serde(skip)]
    pub of_recording: Option<Withheld>,
    /// Noise of the measurements; `None` if no point was measured twice.
    pub noise: Option<Noise>,
    /// Share of the variance between points that each knob explains.
    pub knobs: Vec<KnobEffect>,
    /// Share of the variance that only combinations of knobs explain.
    pub interaction: f64,
}

/// Data that a finding is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Measurements of the grid only: the minimum of many noisy means, which is biased downwards.
    Grid,
    /// Measurements of the best points and the default, repeated after the grid.
    Confirmed,
    /// Predictions of replay.
    Predicted,
    /// Measurements of the points with the best predictions.
    Verified,
}

/// Conclusion for one number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The best point takes less time than the default: the interval of the gain is above 0.
    Faster,
    /// No point is significantly faster than the default.
    DefaultAsGood,
    /// No point was measured twice (or the prediction is uncertain): there may be a gain.
    Unproven,
    /// The default has no result, so no gain can be computed.
    NoDefault,
    /// No point has a result.
    Nothing,
}

/// Estimate with its interval, if known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Best estimate.
    pub value: f64,
    /// Ends of the interval; at [`LEVEL`] for measurements, at [`LEVEL_PREDICTED`] for predictions.
    pub interval: Option<[f64; 2]>,
}

/// Result of one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The point.
    #[serde(flatten)]
    pub point: Point,
    /// Source of the step time.
    pub ending: Ending,
    /// Reason of a failure.
    pub reason: Option<String>,
    /// Number of valid measurements.
    pub measurements: u32,
    /// Number of failed measurements.
    pub failures: u32,
    /// Step time, ms, without the drift of the machine; for a point that was cut short, its step
    /// time until then.
    pub step_ms: Option<f64>,
    /// Prediction of replay: best estimate and interval, ms.
    pub predicted_ms: Option<Estimate>,
    /// Step time relative to the best point's, minus one.
    #[serde(rename = "above_best_pct", serialize_with = "percent")]
    pub above_best: Option<f64>,
    /// Step time relative to the default's, minus one. The intervals of all points hold
    /// simultaneously at their level.
    #[serde(rename = "against_default_pct", serialize_with = "percent_of_estimate")]
    pub against_default: Option<Estimate>,
    /// Whether the point cannot be distinguished from the best point.
    pub tied: bool,
}

/// Source of a point's step time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Measurements.
    Measured,
    /// Replay.
    Predicted,
    /// A measurement that ended early, because the point was clearly worse.
    Cut,
    /// No step time.
    Failed,
}

/// Noise of the measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Standard deviation of one measurement, as a share of the step time.
    #[serde(rename = "sd_pct", serialize_with = "percent")]
    pub sd: f64,
    /// Degrees of freedom of the estimate.
    #[serde(rename = "degrees_of_freedom")]
    pub freedom: u32,
    /// Difference between the fastest and the slowest block, as a share; it is removed from the
    /// step times. `None` with one block, from which drift cannot be separated.
    #[serde(rename = "drift_pct", serialize_with = "percent")]
    pub drift: Option<f64>,
    /// Measurements of the default: seconds since the start of the sweep, step time in ms.
    pub default_over_time: Vec<(f64, f64)>,
    /// Measurements that were left out as outliers.
    pub strays: Vec<Stray>,
}

/// A measurement that deviates from all others of its point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stray {
    /// The measured point.
    #[serde(flatten)]
    pub point: Point,
    /// Seconds since the start of the sweep.
    pub at_s: f64,
    /// Measured step time, ms.
    pub step_ms: f64,
    /// Step time expected by the model, ms.
    pub expected_ms: f64,
}

/// Predicted step times of each job that fits a recording, for intervals of their comparisons.
///
/// The jobs are the same for all points, so uncertainty that all points share does not widen the
/// intervals of their differences.
#[derive(Clone, Debug, Default)]
pub struct Jobs<'a> {
    /// For each predicted point the step time of each job, in one unit and one order.
    pub times: &'a [(Point, Vec<f64>)],
    /// Reason of the recording to recommend no setting.
    pub withheld: Option<Withheld>,
    /// Points outside of the range of the recording: their predictions are not recommended.
    pub outside: HashSet<PointKey>,
}

impl Jobs<'_> {
    fn of(&self, point: &Point) -> Option<&[f64]> {
        let (_, jobs) = self.times.iter().find(|(known, _)| known == point)?;
        (!jobs.is_empty()).then_some(jobs)
    }
}

/// Computes the verdict from `rows` in any order. Step times that are not positive count as failed.
pub fn verdict(rows: &[Row]) -> Verdict {
    verdict_with(rows, &Jobs::default())
}

/// Computes the verdict from `rows` in any order; those that were predicted are from `jobs`.
pub fn verdict_with(rows: &[Row], jobs: &Jobs) -> Verdict {
    let ranks: BTreeSet<u32> = rows.iter().map(|row| row.point.np).collect();
    let finding = |np| match gather::gather(np, rows) {
        gathered if gathered.observations.is_empty() => predicted::finding(np, gathered, jobs),
        gathered => judge::finding(np, gathered),
    };
    let times = rows.iter().map(|row| row.at_s);
    Verdict {
        findings: ranks.into_iter().map(finding).collect(),
        measurements: gather::tally(rows),
        took_s: times.fold(0.0, f64::max),
    }
}

impl Finding {
    /// Finding with this conclusion, and the effects of the knobs. `uncertainty` is the variance of
    /// ln(step time) of each point that is due to noise.
    ///
    /// A proven gain takes precedence over the weaker result of the comparison of all points with
    /// each other: the default's tie follows from the conclusion.
    fn new(
        np: u32,
        conclusion: Conclusion,
        best: Option<Point>,
        mut points: Vec<Outcome>,
        uncertainty: f64,
    ) -> Self {
        if let Some(default) = points.iter_mut().find(|one| one.point.is_default()) {
            default.tied = match conclusion {
                Conclusion::Faster => false,
                Conclusion::DefaultAsGood => true,
                _ => default.tied,
            };
        }
        let time = |outcome: &Outcome| outcome.time_ms().unwrap_or(f64::INFINITY);
        points.sort_by(|a, b| time(a).total_cmp(&time(b)));
        points.sort_by_key(|one| (Some(one.point) != best, one.ending)); // stable
        let (knobs, interaction) = knobs::effects(&points, uncertainty);
        Self {
            np,
            basis: Basis::Grid,
            conclusion,
            points,
            gain: None,
            ties_known: false,
            of_recording: None,
            noise: None,
            knobs,
            interaction,
        }
    }

    /// Returns the best point, unless no point has a result.
    pub fn best(&self) -> Option<&Outcome> {
        let best = self.points.first();
        best.filter(|_| self.conclusion != Conclusion::Nothing)
    }

    /// Returns the default.
    pub fn default(&self) -> Option<&Outcome> {
        self.points.iter().find(|one| one.point.is_default())
    }

    /// Returns the best point, and those that cannot be distinguished from it.
    pub fn ties(&self) -> impl Iterator<Item = &Outcome> {
        self.points.iter().filter(|outcome| outcome.tied)
    }

    /// Returns the reason why no point is recommended, if none is: the default was not measured
    /// twice, the recording does not support predictions, or the difference may be chance.
    pub fn withheld(&self) -> Option<Withheld> {
        let default = self.default().filter(|_| self.basis != Basis::Predicted);
        let evidence = Evidence {
            baseline_measurements: match self.conclusion {
                Conclusion::NoDefault => Some(0),
                Conclusion::Faster => default.map(|default| default.measurements.into()),
                _ => None,
            },
            chance: self.conclusion == Conclusion::Unproven,
            ..Evidence::default()
        };
        self.of_recording.clone().or_else(|| evidence.check().err())
    }

    /// Returns the recommended point: the default, unless the best is better by an amount that
    /// matters. `None` if the data do not support a recommendation.
    pub fn recommended(&self) -> Option<&Outcome> {
        match self.conclusion {
            _ if self.withheld().is_some() => None,
            Conclusion::DefaultAsGood => self.default(),
            Conclusion::Faster if self.gains_too_little() => self.default(),
            _ => self.best(),
        }
    }

    /// Whether the gain is certainly below the amount that matters.
    pub fn gains_too_little(&self) -> bool {
        let interval = self.gain.and_then(|gain| gain.interval);
        interval.is_some_and(|[_, high]| high < GAIN_THAT_MATTERS)
    }
}

impl Outcome {
    /// Predicted step time, ms: best estimate.
    pub fn predicted(&self) -> Option<f64> {
        self.predicted_ms.map(|predicted| predicted.value)
    }

    /// Step time, ms: measured, otherwise predicted.
    pub fn time_ms(&self) -> Option<f64> {
        self.step_ms.or(self.predicted())
    }

    /// Whether the step time is of complete measurements or of a prediction.
    pub fn is_complete(&self) -> bool {
        matches!(self.ending, Ending::Measured | Ending::Predicted)
    }
}

impl Estimate {
    /// Estimate without an interval.
    pub fn bare(value: f64) -> Self {
        Self {
            value,
            interval: None,
        }
    }

    /// Applies an increasing function to the value and the ends of the interval.
    fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self {
            value: of(self.value),
            interval: self.interval.map(|ends| ends.map(of)),
        }
    }

    /// Converts a change of the step time to the share that is saved.
    fn reversed(self) -> Self {
        Self {
            value: -self.value,
            interval: self.interval.map(|[low, high]| [-high, -low]),
        }
    }
}

/// Serializes a share in percent.
fn percent<S: Serializer>(
    share: &(impl Copy + Into<Option<f64>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let share: Option<f64> = (*share).into();
    share.map(|share| share * 100.0).serialize(serializer)
}

/// Serializes an estimate of a share in percent.
fn percent_of_estimate<S: Serializer>(
    estimate: &Option<Estimate>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let percent = |estimate: Estimate| estimate.map(|share| share * 100.0);
    estimate.map(percent).serialize(serializer)
}
