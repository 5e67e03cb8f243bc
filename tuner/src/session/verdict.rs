//! Types that a session reports: measurements, progress, verdict.

use std::fmt;

use serde::Serialize;

use crate::space::Point;

/// Where a session stands; the names are those of the log's `phase` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The setting in force at the start is being measured (or warmed up).
    Default,
    /// A proposed setting is being measured, or the next is being computed.
    Sample,
    /// The candidate and the default are compared on pairs of visits.
    Ab,
    /// The verdict is there.
    Final,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f) // the variant's name
    }
}

/// Purpose of the steps that are taken now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// They are no measurement: after the verdict, or while the search rests.
    #[default]
    None,
    /// Sample of the setting in force at the start.
    Default,
    /// Sample of a setting of the search.
    Sample,
    /// Visit of a comparison, at the default.
    AbDefault,
    /// Visit of a comparison, at the candidate.
    AbCandidate,
}

/// One closed sample or window: a row of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Where it belongs.
    pub phase: Phase,
    /// Index of the sample (0 is the default's), or of the round in the A/B phase.
    pub sample: u32,
    /// The setting.
    pub setting: Point,
    /// Steps that counted.
    pub steps: usize,
    /// Median step time, ms.
    pub step_ms_p50: f64,
    /// Huber centre of the step time, ms.
    pub step_ms: f64,
    /// Half width of the 95 % interval of `step_ms`, ms.
    pub step_ms_ci95: f64,
    /// Prediction of the surrogate for this setting before it was measured, ms.
    pub predicted_step_ms: Option<f64>,
}

/// The best setting so far. Unconfirmed until the verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The setting.
    pub setting: Point,
    /// Huber centre of its step time, ms.
    pub step_ms: f64,
    /// Half width of the 95 % interval of `step_ms`, ms.
    pub step_ms_ci95: f64,
}

/// For a live progress line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Where the session stands.
    pub phase: Phase,
    /// Index of the sample (0 is the default's), or of the round in the A/B phase.
    pub sample: u32,
    /// Centre of the steps of the sample or window under way, ms.
    pub step_ms: Option<f64>,
    /// Steps until the verdict, a rough guess.
    pub steps_left: u32,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether the default stays.
    pub kept_default: bool,
    /// The setting to go on with.
    pub chosen: Point,
    /// Step time under the default, ms (mean of the comparison's steps if there was one, else the
    /// centre of its sample).
    pub default_step_ms: f64,
    /// Step time under the chosen setting, ms, measured likewise.
    pub chosen_step_ms: f64,
    /// Gain of the chosen setting in percent of the default's step time, as an interval of at least
    /// 95 %, valid at the stop; [0, 0] if the default stays.
    pub gain_pct: [f64; 2],
    /// Steps from the first of this search to the verdict.
    pub steps_active: u64,
    /// Cost of the search, in steps of the start; not below 0.
    pub steps_lost: f64,
    /// Budget of the search, in steps of the start.
    pub budget_steps: f64,
    /// Whether it cost no more than that.
    pub budget_kept: bool,
    /// The step, counted from the session's first, at which the gain has paid for the search; none
    /// if the default stays, or was in force for a while after the comparison.
    pub payback_step: Option<u64>,
    /// Whether a setting that was kept before was reverted to the default: it turned out slower.
    pub reverted: bool,
    /// Why, in one sentence.
    pub reason: String,
    /// Why the search was begun, if it is not the first.
    pub retuned: Option<String>,
}

/// Formats a percentage with one decimal. The minus sign is −, and zero has none.
pub fn percent_text(percent: f64) -> String {
    let rounded = (percent * 10.0).round() / 10.0;
    format!("{:.1}", rounded + 0.0).replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(
            [-0.04, 0.04, -0.06, 2.74].map(percent_text),
            ["0.0", "0.0", "−0.1", "2.7"]
        );
    }
}
