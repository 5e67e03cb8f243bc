//! Answers of `ronde tune` to the lines of its input.

use std::fmt;

use ronde_tuner::{Space, Verdict};
use serde::Serialize;
use serde_json::Value;

use super::space::setting;

/// Answer: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// To the first line: the number of settings and the start setting.
    Ready {
        settings: usize,
        setting: Value,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// To `ask`: a setting to measure, with its prediction.
    Sample(Suggestion),
    /// To `ask`: the search is over; use this setting.
    Stop(Standing),
    /// To `tell`: confirmation.
    Told {
        /// Number of settings measured so far.
        settings: usize,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// To `report`, and at the end of the input.
    Report(Standing),
    /// To `report` in a session, and at the end of its input.
    Verdict(VerdictLine),
    /// To an invalid line.
    Error {
        line: u64,
        message: String,
        #[serde(rename = "try")]
        hint: String,
    },
    /// To `step_ms`.
    #[serde(untagged)]
    Action(Action),
}

/// Action that a session requests of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum Action {
    /// Change nothing.
    Keep,
    /// Apply this setting before the next step.
    Switch {
        setting: Value,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The search is over, or its verdict has changed; apply its setting.
    Finished {
        verdict: VerdictLine,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The step time has changed since the verdict; the search starts again.
    Drifted { before_ms: f64, after_ms: f64 },
}

/// Setting to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Suggestion {
    pub(super) setting: Value,
    /// Predicted value, with the limits one standard deviation below and above; null before the
    /// first measurement.
    pub(super) predicted: Option<[f64; 3]>,
    /// Expected gain over the best setting so far, in percent; null for the settings of the initial
    /// design.
    pub(super) improvement_pct: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// State of a search by ask and tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Standing {
    /// Best measured setting.
    pub(super) setting: Value,
    /// Gain over the start setting, in percent of its value: 95 % interval.
    pub(super) gain_pct: [f64; 2],
    /// Number of settings measured.
    pub(super) settings: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// Verdict of a session, with its setting by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct VerdictLine {
    setting: Value,
    kept_default: bool,
    /// Whether a setting that was kept before turned out slower than the start's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reverted: bool,
    default_step_ms: f64,
    chosen_step_ms: f64,
    gain_pct: [f64; 2],
    steps_active: u64,
    steps_lost: f64,
    payback_step: Option<u64>,
    reason: String,
}

impl VerdictLine {
    pub(super) fn new(space: &Space, verdict: &Verdict) -> Self {
        Self {
            setting: setting(space, &verdict.chosen),
            kept_default: verdict.kept_default,
            reverted: verdict.reverted,
            default_step_ms: verdict.default_step_ms,
            chosen_step_ms: verdict.chosen_step_ms,
            gain_pct: verdict.gain_pct,
            steps_active: verdict.steps_active,
            steps_lost: verdict.steps_lost,
            payback_step: verdict.payback_step,
            reason: verdict.reason.clone(),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Strings, finite numbers and maps with string keys can always be serialized.
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
