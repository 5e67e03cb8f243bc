//! What a line is answered with.

use std::fmt;

use ronde_tuner::{Space, Verdict};
use serde::Serialize;
use serde_json::Value;

use super::space::setting;

/// An answer, one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// To the first line: the settings that can be chosen, and the one to begin with.
    Ready {
        settings: usize,
        setting: Value,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// To `ask`: measure this, and what is expected there.
    Sample(Suggestion),
    /// To `ask`: nothing more is worth measuring; take this.
    Stop(Standing),
    /// To `tell`.
    Told {
        /// Settings measured so far.
        settings: usize,
    },
    /// To `report`, and at the end of the input.
    Report(Standing),
    /// At the end of the input, and to `report`, of a session.
    Verdict(VerdictLine),
    /// To a line that cannot be followed.
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

/// What a session wants done.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum Action {
    /// Nothing.
    Keep,
    /// Put this setting in force before the next step.
    Switch {
        setting: Value,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The search is over; its setting is to be put in force.
    Finished {
        verdict: VerdictLine,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The step time has changed since the verdict; the search begins anew.
    Drifted { before_ms: f64, after_ms: f64 },
}

/// A setting to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Suggestion {
    pub(super) setting: Value,
    /// What is expected there, with one standard deviation to either side; null before anything is known.
    pub(super) predicted: Option<[f64; 3]>,
    /// Expected gain on the best so far, in percent of it; null while the first settings are laid out.
    pub(super) improvement_pct: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// How a search by ask and tell stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Standing {
    /// The best measured setting.
    pub(super) setting: Value,
    /// Gain on the start setting in percent of its value, 95 % interval.
    pub(super) gain_pct: [f64; 2],
    /// Settings measured.
    pub(super) settings: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// A verdict, its setting by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct VerdictLine {
    setting: Value,
    kept_default: bool,
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
        // Strings, finite numbers and maps with string keys: nothing that can fail.
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
