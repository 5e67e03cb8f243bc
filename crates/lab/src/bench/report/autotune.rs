//! Summary of autotuning in a benchmark.

use std::fmt;

use serde::Serialize;

use super::SettingsReport;
use ronde::{AutotuneReport, NotTuned};

/// Actions and results of the tuner; numbers are `null` until there is a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AutotuneSummary {
    /// State of the tuner at the end: `default`, `sample`, `ab`, or `final` with a verdict.
    pub state: String,
    /// Step time with the default settings, in ms.
    pub default_step_ms: Option<f64>,
    /// Step time with the chosen settings, in ms.
    pub chosen_step_ms: Option<f64>,
    /// Interval of the gain over the default, in percent of the default step.
    pub gain_pct: Option<[f64; 2]>,
    /// Whether the default stays in force.
    pub kept_default: Option<bool>,
    /// Number of steps in which the tuner was active.
    pub steps_active: u64,
    /// Cost of tuning, in steps at the default's speed.
    pub steps_lost: Option<f64>,
    /// Maximum cost of tuning, in steps at the default's speed.
    pub budget_steps: Option<f64>,
    /// Step at which the gain has paid for the search; `null` without a gain.
    pub payback_step: Option<u64>,
    /// The chosen settings; without a verdict, those in force at the end.
    pub settings: SettingsReport,
    /// Knobs that were not tuned, with the reasons.
    pub not_tuned: Vec<NotTuned>,
    /// Verdict in the tuner's text.
    #[serde(skip)]
    pub verdict_text: Option<String>,
}

impl AutotuneSummary {
    /// Summarises a run of `tuning_steps` from its last `report`.
    pub fn new(report: AutotuneReport, tuning_steps: usize) -> Self {
        let none = Self {
            state: report.phase.to_string(),
            default_step_ms: None,
            chosen_step_ms: None,
            gain_pct: None,
            kept_default: None,
            steps_active: tuning_steps as u64,
            steps_lost: None,
            budget_steps: None,
            payback_step: None,
            settings: report.settings.into(),
            not_tuned: report.not_tuned,
            verdict_text: None,
        };
        let Some(verdict) = report.verdict else {
            return none;
        };
        Self {
            verdict_text: Some(verdict.to_string()),
            default_step_ms: Some(verdict.default_step_ms),
            chosen_step_ms: Some(verdict.chosen_step_ms),
            gain_pct: Some(verdict.gain_pct),
            kept_default: Some(verdict.kept_default),
            steps_active: verdict.steps_active,
            steps_lost: Some(verdict.steps_lost),
            budget_steps: Some(verdict.budget_steps),
            payback_step: verdict.payback_step,
            settings: verdict.settings.into(),
            ..none
        }
    }
}

/// Formats the summary as one or two lines.
impl fmt::Display for AutotuneSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict_text {
            Some(text) => f.write_str(text)?,
            None => write!(
                f,
                "no verdict after {} steps (in phase {}); give it more --steps",
                self.steps_active, self.state
            )?,
        }
        if !self.not_tuned.is_empty() {
            write!(f, "\n  not tuned  {}", NotTuned::line(&self.not_tuned))?;
        }
        Ok(())
    }
}
