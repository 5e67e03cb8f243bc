//! The verdict on a sweep, as data: what is best, what it gains over the default, what ties with it, and how sure that is.
//!
//! Points on different numbers of ranks are never compared: each number has its own [`Finding`]. What is concluded rests on
//! [`super::statistics`]: one model of all rows says which point is best and which cannot be told from it; the gain
//! comes from the rows that were measured after the choice was narrowed ([`Phase::Confirm`], [`Phase::Verify`]), where there
//! are any, since the least of many noisy means is a lucky one.

mod gather;
mod judge;
mod knobs;
mod predicted;

#[cfg(test)]
mod tests;

use serde::Serialize;

use super::{Point, Row};
pub use knobs::{Knob, KnobEffect, Level};
pub use predicted::compare_jobs;

/// Level of the intervals of what was measured.
pub const LEVEL: f64 = 0.95;
/// Level of the intervals of what was predicted: from the 10th to the 90th percentile of the jobs that fit the recording.
pub const LEVEL_PREDICTED: f64 = 0.8;

/// A gain that is surely below this share of the step time is nothing to change settings for.
pub const GAIN_THAT_MATTERS: f64 = 0.01;

/// What a sweep says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// One for each number of ranks, ascending.
    pub findings: Vec<Finding>,
    /// How the measurements ended.
    pub measurements: Tally,
    /// Seconds from the beginning of the sweep to its last row.
    pub took_s: f64,
}

/// How measurements ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// As they should.
    pub done: u32,
    /// Early, since the point was clearly worse.
    pub cut: u32,
    /// Without a result.
    pub failed: u32,
}

/// What a sweep says of one number of ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Ranks.
    pub np: u32,
    /// What it rests on.
    pub basis: Basis,
    /// What is concluded.
    pub conclusion: Conclusion,
    /// All points: those that were measured, best first; then those that were only predicted, those that were cut short,
    /// and those that failed.
    pub points: Vec<Outcome>,
    /// Which of them is best.
    pub best: Option<usize>,
    /// Which is the default.
    pub default: Option<usize>,
    /// Step time that the best saves, as a share of the default's.
    pub gain: Option<Estimate>,
    /// Whether it can be told which points tie with the best: some point besides the default was measured twice.
    pub ties_known: bool,
    /// How noisy the measurements are; none if nothing was measured twice.
    pub noise: Option<Noise>,
    /// What share of the differences between points each knob makes.
    pub knobs: Vec<KnobEffect>,
    /// The share that no knob makes alone: it is in their combination.
    pub interaction: f64,
}

/// What a finding rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Measurements of the grid alone: the best of many, which chance favoured.
    Grid,
    /// The best few and the default, measured again after the grid.
    Confirmed,
    /// What replay says.
    Predicted,
    /// The best of what replay says, measured.
    Verified,
}

/// What is concluded for one number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The best takes less than the default: the interval of the gain is above 0.
    Faster,
    /// No point takes less than the default for all that can be told.
    DefaultAsGood,
    /// Nothing was measured twice (or the prediction is unsure): there may be a gain.
    Unproven,
    /// The default has no result, so there is no gain to speak of.
    NoDefault,
    /// No point has a result.
    Nothing,
}

/// A number and the interval in which it is, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Best guess.
    pub value: f64,
    /// Bounds; at [`LEVEL`] where measured, at [`LEVEL_PREDICTED`] where predicted.
    pub interval: Option<[f64; 2]>,
}

/// What came of a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The point.
    pub point: Point,
    /// What its step time comes from.
    pub ending: Ending,
    /// Measurements that count.
    pub measurements: u32,
    /// Measurements that failed.
    pub failures: u32,
    /// Step time, ms, with the drift of the machine taken out; where the point was cut short, what was seen until then.
    pub step_ms: Option<f64>,
    /// What replay says: best guess and interval, ms.
    pub predicted_ms: Option<Estimate>,
    /// Step time relative to the best's, less one.
    pub above_best: Option<f64>,
    /// Step time relative to the default's, less one. The intervals of all points hold together at their level.
    pub against_default: Option<Estimate>,
    /// Whether it cannot be told from the best.
    pub tied: bool,
}

/// What a point's step time comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Measurements.
    Measured,
    /// Replay.
    Predicted,
    /// A measurement that was ended early, since the point was clearly worse.
    Cut,
    /// Nothing, and why.
    Failed(String),
}

/// How noisy the measurements are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Standard deviation of one measurement, as a share of the step time.
    pub sd: f64,
    /// Degrees of freedom behind it.
    pub freedom: u32,
    /// From the fastest to the slowest state that the machine was in, as a share: what was taken out.
    pub drift: f64,
    /// The default's measurements: seconds since the beginning, ms.
    pub default_over_time: Vec<(f64, f64)>,
    /// Measurements that were left out.
    pub strays: Vec<Stray>,
}

/// A measurement that fits nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stray {
    /// Of what.
    pub point: Point,
    /// When, seconds since the beginning.
    pub at_s: f64,
    /// What it took, ms.
    pub step_ms: f64,
    /// What it should have taken, ms.
    pub expected_ms: f64,
}

/// What `rows` say, in whatever order they are. A step time that is no positive number counts as failed.
pub fn verdict(rows: &[Row]) -> Verdict {
    let mut ranks: Vec<u32> = rows.iter().map(|row| row.point.np).collect();
    ranks.sort_unstable();
    ranks.dedup();
    Verdict {
        findings: ranks.into_iter().map(|np| judge::finding(np, rows)).collect(),
        measurements: gather::tally(rows),
        took_s: rows
            .iter()
            .map(|row| row.at_s)
            .filter(|at| at.is_finite())
            .fold(0.0, f64::max),
    }
}

impl Finding {
    /// The best point.
    pub fn best(&self) -> Option<&Outcome> {
        self.best.and_then(|index| self.points.get(index))
    }

    /// The default.
    pub fn default(&self) -> Option<&Outcome> {
        self.default.and_then(|index| self.points.get(index))
    }

    /// The points that cannot be told from the best, itself included, best first.
    pub fn ties(&self) -> impl Iterator<Item = &Outcome> {
        self.points.iter().filter(|outcome| outcome.tied)
    }

    /// The point to run with: the default, unless there is reason to believe that the best is better, by what matters.
    pub fn recommended(&self) -> Option<&Outcome> {
        match self.conclusion {
            Conclusion::DefaultAsGood => self.default(),
            Conclusion::Faster if self.gains_too_little() => self.default(),
            _ => self.best(),
        }
    }

    /// Whether the gain is surely below what matters.
    pub fn gains_too_little(&self) -> bool {
        let interval = self.gain.and_then(|gain| gain.interval);
        interval.is_some_and(|[_, high]| high < GAIN_THAT_MATTERS)
    }
}

impl Estimate {
    /// A number without an interval.
    pub(super) fn bare(value: f64) -> Self {
        Self {
            value,
            interval: None,
        }
    }

    /// Of a difference of logarithms, the relative difference.
    pub(super) fn relative(self) -> Self {
        Self {
            value: self.value.exp_m1(),
            interval: self.interval.map(|bounds| bounds.map(f64::exp_m1)),
        }
    }
}
