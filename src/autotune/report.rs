//! Reports of the tuner to the program: its progress and its verdict.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ronde_tuner as tuner;
use serde::Serialize;

use super::news::{Journal, News};
use crate::settings::Settings;
use crate::sync::lock;

/// Progress of the tuner (rank 0).
#[derive(Clone, Debug, Serialize)]
pub struct AutotuneReport {
    /// `default`, `sample`, `ab` or `final`.
    pub phase: tuner::Phase,
    /// Index of the sample (0 is the default's), or of the A/B round.
    pub sample: u32,
    /// Settings being measured.
    pub settings: Settings,
    /// Their step time so far, ms.
    pub step_ms: Option<f64>,
    /// The best settings so far and their step time, ms; unconfirmed until the verdict.
    pub best: Option<(Settings, f64)>,
    /// Steps until the verdict, roughly.
    pub steps_left: u32,
    /// Verdict, once there is one.
    pub verdict: Option<AutotuneVerdict>,
    /// Knobs that are not tuned.
    pub not_tuned: Vec<NotTuned>,
}

/// A knob that the tuner does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotTuned {
    /// Name of the knob, as in the log.
    pub knob: &'static str,
    /// Reason.
    pub because: &'static str,
}

impl NotTuned {
    /// Formats knobs and the reasons why they are not tuned in one line, consecutive equal reasons
    /// once; empty if there are none.
    pub fn line(of: &[Self]) -> String {
        let alike = of.chunk_by(|a, b| a.because == b.because);
        let parts = alike.map(|alike| {
            let knobs: Vec<&str> = alike.iter().map(|not_tuned| not_tuned.knob).collect();
            format!("{} ({})", knobs.join(" and "), alike[0].because)
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Result of tuning.
#[derive(Clone, Debug, Serialize)]
pub struct AutotuneVerdict {
    /// Whether the start settings stay.
    pub kept_default: bool,
    /// Chosen settings.
    pub settings: Settings,
    /// Whether an earlier verdict's settings turned out slower and the default is in force again.
    pub reverted: bool,
    /// Step time with the start settings, ms.
    pub default_step_ms: f64,
    /// Step time with the chosen settings, ms.
    pub chosen_step_ms: f64,
    /// Gain in percent of the default's step time, 95 % interval.
    pub gain_pct: [f64; 2],
    /// Steps from the first measured one to the verdict.
    pub steps_active: u64,
    /// Cost of the search, in steps at the default settings.
    pub steps_lost: f64,
    /// Budget of the search, in the same unit.
    pub budget_steps: f64,
    /// Whether the cost is within the budget.
    pub budget_kept: bool,
    /// Step at which the gain has compensated the cost of the search.
    pub payback_step: Option<u64>,
    /// Reason, in one sentence.
    pub reason: String,
    /// Reason why the search was begun, if it was not the job's first.
    pub retuned: Option<String>,
}

impl AutotuneVerdict {
    /// Whether the gain of settings other than the default is known: a search that began at such
    /// settings may end before the default was measured.
    pub(crate) fn gain_is_known(&self) -> bool {
        !self.kept_default && self.gain_pct != [0.0; 2]
    }
}

/// First words of the reason if the start settings stay, and if they are in force again.
const DEFAULT_KEPT: &str = "default kept";
const REVERTED: &str = "reverted to the default";

/// Beginning of the reason if other settings stay that no comparison has confirmed; the rest says
/// so.
const NOT_CONFIRMED: &str = "kept, ";

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
            // The settings directly after the sentence that they belong to: the reason may name
            // others.
            let what = if self.reverted {
                REVERTED
            } else {
                DEFAULT_KEPT
            };
            let why = self.reason.strip_prefix(what).unwrap_or(&self.reason);
            let settings = self.settings;
            write!(
                f,
                "{what} (fusion {settings}: step {default_step_ms:.2} ms){why} ("
            )?;
        } else {
            write!(f, "fusion {}: step {chosen_step_ms:.2} ms", self.settings)?;
            if !self.gain_is_known() {
                f.write_str(" (")?;
            } else {
                let [low, high] = self.gain_pct.map(tuner::percent_text);
                write!(
                    f,
                    " instead of {default_step_ms:.2} ms, {low} to {high} % faster (95 % interval; "
                )?;
            }
            if let Some(why) = self.reason.strip_prefix(NOT_CONFIRMED) {
                write!(f, "{why}; ")?;
            }
        }
        let budget = (budget_steps * 10.0).round() / 10.0;
        let exceeded = if self.budget_kept { "" } else { ", exceeded" };
        write!(
            f,
            "{steps_active} steps; cost {steps_lost:.1} steps, budget {budget}{exceeded}"
        )?;
        if let Some(step) = self.payback_step {
            write!(f, ", paid back at step {step}")?;
        }
        f.write_str(")")
    }
}

/// Last report of the tuner, readable by other threads, and its news, if they are wanted. A request
/// to stop tuning comes back the same way.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    autotune: Mutex<Option<AutotuneReport>>,
    /// `None` if nobody wants news.
    journal: Mutex<Option<Journal>>,
    /// Number of steps so far, as the reader of the news counts them.
    step: AtomicU64,
    stop: AtomicU8,
}

/// Tuning goes on; it is to be stopped; it has been stopped.
const GOES_ON: u8 = 0;
const TO_BE_STOPPED: u8 = 1;
const STOPPED: u8 = 2;

impl Progress {
    pub(crate) fn autotune(&self) -> Option<AutotuneReport> {
        lock(&self.autotune).clone()
    }

    pub(crate) fn set_autotune(&self, report: AutotuneReport) {
        *lock(&self.autotune) = Some(report);
    }

    /// From now on, keeps news until they are fetched.
    #[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
    pub(crate) fn want_news(&self) {
        lock(&self.journal).get_or_insert_default();
    }

    /// Adds the news that `make` returns, if they are wanted.
    pub(super) fn tell(&self, make: impl FnOnce() -> News) {
        if let Some(journal) = &mut *lock(&self.journal) {
            journal.push(self.step.load(Ordering::Relaxed), make());
        }
    }

    /// The news since the last call, oldest first, each with the number of the step.
    #[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
    pub(crate) fn take_news(&self) -> Vec<(u64, News)> {
        let mut journal = lock(&self.journal);
        journal.as_mut().map_or_else(Vec::new, Journal::take)
    }

    /// Sets the number of steps so far.
    #[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
    pub(crate) fn count_steps(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Requests that tuning stops and the settings in force stay. It stops with the next cycle.
    pub(crate) fn stop(&self) {
        let (before, after) = (GOES_ON, TO_BE_STOPPED);
        let order = Ordering::Relaxed;
        let _ = self.stop.compare_exchange(before, after, order, order);
    }

    /// Whether tuning is to be stopped now; the request has then been taken.
    pub(super) fn take_stop(&self) -> bool {
        let is_asked = self.stop.load(Ordering::Relaxed) == TO_BE_STOPPED;
        if is_asked {
            self.stop.store(STOPPED, Ordering::Relaxed);
        }
        is_asked
    }

    /// Tuning was stopped by a request before the job was reset.
    pub(super) fn stay_stopped(&self) {
        self.stop.store(STOPPED, Ordering::Relaxed);
    }

    /// Whether tuning was stopped by a request.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) == STOPPED
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

    #[test]
    fn a_cost_above_the_budget_is_stated() {
        let verdict = |steps_lost, budget_kept| AutotuneVerdict {
            kept_default: false,
            settings: Settings::default(),
            reverted: false,
            default_step_ms: 55.31,
            chosen_step_ms: 45.48,
            gain_pct: [4.9, 29.2],
            steps_active: 160,
            steps_lost,
            budget_steps: 20.0,
            budget_kept,
            payback_step: Some(184),
            reason: String::new(),
            retuned: None,
        };
        for (steps_lost, kept, expected) in [
            (
                6.2,
                true,
                "160 steps; cost 6.2 steps, budget 20, paid back at step 184)",
            ),
            (
                30.8,
                false,
                "160 steps; cost 30.8 steps, budget 20, exceeded, paid back at step 184)",
            ),
        ] {
            let text = verdict(steps_lost, kept).to_string();
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
