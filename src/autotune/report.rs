//! What the tuner tells the program: where it stands, and its verdict.

use std::sync::Mutex;

use ronde_tuner as tuner;
use serde::Serialize;

use crate::settings::Settings;
use crate::sync::lock;

/// Where the tuner stands (rank 0).
#[derive(Clone, Debug, Serialize)]
pub struct AutotuneReport {
    /// `default`, `sample`, `ab` or `final`.
    pub phase: tuner::Phase,
    /// Index of the sample (0 is the default's), or of the A/B round.
    pub sample: u32,
    /// The settings being measured.
    pub settings: Settings,
    /// Their step time so far, ms.
    pub step_ms: Option<f64>,
    /// The best settings so far and their step time, ms; unconfirmed until the verdict.
    pub best: Option<(Settings, f64)>,
    /// Steps until the verdict, roughly.
    pub steps_left: u32,
    /// The verdict, once there is one.
    pub verdict: Option<AutotuneVerdict>,
    /// The knobs that are left alone.
    pub not_tuned: Vec<NotTuned>,
}

/// A knob that the tuner leaves alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotTuned {
    /// Its name, as in the log.
    pub knob: &'static str,
    /// Why.
    pub because: &'static str,
}

impl NotTuned {
    /// Knobs with why they are left alone, in one line, each reason once in a row; empty of none.
    pub fn line(of: &[Self]) -> String {
        let alike = of.chunk_by(|a, b| a.because == b.because);
        let parts = alike.map(|alike| {
            let knobs: Vec<&str> = alike.iter().map(|not_tuned| not_tuned.knob).collect();
            format!("{} ({})", knobs.join(" and "), alike[0].because)
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// How tuning ended.
#[derive(Clone, Debug, Serialize)]
pub struct AutotuneVerdict {
    /// Whether the settings of the start stay.
    pub kept_default: bool,
    /// The settings to go on with.
    pub settings: Settings,
    /// Step time under the settings of the start, ms.
    pub default_step_ms: f64,
    /// Step time under the chosen settings, ms.
    pub chosen_step_ms: f64,
    /// Gain in percent of the default's step time, 95 % interval.
    pub gain_pct: [f64; 2],
    /// Steps from the first measured one to the verdict.
    pub steps_active: u64,
    /// What the search cost, in steps at the default settings.
    pub steps_lost: f64,
    /// What it was allowed to cost, in the same unit.
    pub budget_steps: f64,
    /// Whether it cost no more than that.
    pub budget_kept: bool,
    /// The step at which the gain has paid for the search.
    pub payback_step: Option<u64>,
    /// Why, in one sentence.
    pub reason: String,
    /// Why the search was begun, if it was not the job's first.
    pub retuned: Option<String>,
}

/// How the reason begins where the settings of the start stay.
const DEFAULT_KEPT: &str = "default kept";

impl std::fmt::Display for AutotuneVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            default_step_ms,
            chosen_step_ms,
            steps_active,
            steps_lost,
            budget_steps,
            ..
        } = self;
        if self.kept_default {
            // The settings right behind what they belong to: the reason may speak of others.
            let why = self.reason.strip_prefix(DEFAULT_KEPT).unwrap_or(&self.reason);
            let settings = self.settings;
            write!(
                f,
                "{DEFAULT_KEPT} (fusion {settings}: step {default_step_ms:.2} ms){why} ("
            )?;
        } else {
            let [low, high] = self.gain_pct.map(tuner::percent_text);
            write!(
                f,
                "fusion {}: step {chosen_step_ms:.2} ms instead of {default_step_ms:.2} ms, ",
                self.settings
            )?;
            write!(f, "{low} to {high} % faster (95 % interval; ")?;
        }
        write!(f, "{steps_active} steps, {steps_lost:.1} of them lost")?;
        write!(f, " of {} allowed", (budget_steps * 10.0).round() / 10.0)?;
        if let Some(step) = self.payback_step {
            write!(f, ", paid back at step {step}")?;
        }
        f.write_str(")")
    }
}

/// The tuner's last report, for other threads to read.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    autotune: Mutex<Option<AutotuneReport>>,
}

impl Progress {
    pub(crate) fn autotune(&self) -> Option<AutotuneReport> {
        lock(&self.autotune).clone()
    }

    pub(crate) fn set_autotune(&self, report: AutotuneReport) {
        *lock(&self.autotune) = Some(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_alone_for_the_same_reason_stands_together() {
        let of = [
            ("cache", "RONDE_AUTOTUNE_CACHE=1 has it tuned"),
            ("hierarchical_allreduce", "all ranks are on one host"),
            ("hierarchical_allgather", "all ranks are on one host"),
        ];
        let of = of.map(|(knob, because)| NotTuned { knob, because });
        assert_eq!(
            NotTuned::line(&of),
            "cache (RONDE_AUTOTUNE_CACHE=1 has it tuned), hierarchical_allreduce and hierarchical_allgather \
             (all ranks are on one host)"
        );
        assert_eq!(NotTuned::line(&[]), "");
    }
}
