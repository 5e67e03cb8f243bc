//! The session's reports: rows for the log, progress, best so far, cost and verdict. Nothing here
//! changes a decision.

use super::{Session, Stage, push_latest};
use crate::center::{center_variance, huber_center, median};
use crate::guard::promise::Recheck;
use crate::guard::{Arm, contest_steps_left};
use crate::session::verdict::{Best, Measurement, Phase, Progress, Purpose, Verdict};
use crate::{Point, Space, Warning};

/// Samples of a typical search and steps of a typical comparison, for the guess of the steps left.
const SAMPLES_TYPICAL: u32 = 12;
const CONTEST_TYPICAL: u32 = 45;
/// Standard errors to either side in a 95 % interval.
pub(super) const INTERVAL_95: f64 = 1.96;

impl Session {
    /// Notes the window that closes as a row for the log.
    pub(super) fn record(&mut self, phase: Phase, sample: u32) {
        let log_times = &self.window.log_times;
        let variance = center_variance(self.tuner.noise(), log_times.len());
        let step_ms = huber_center(log_times).exp();
        let measurement = Measurement {
            phase,
            sample,
            setting: self.setting,
            steps: log_times.len(),
            step_ms_p50: median(log_times).exp(),
            step_ms,
            step_ms_ci95: INTERVAL_95 * variance.sqrt() * step_ms,
            predicted_step_ms: self.predicted.map(f64::exp),
        };
        push_latest(&mut self.measurements, measurement);
    }

    /// The verdict for a confirmed winner or, without one, the default; none before the first
    /// measured step.
    pub(super) fn verdict(&self, winner: Option<Point>, reason: String) -> Option<Verdict> {
        let sampled = self.start_log().or_else(|| self.window.center())?;
        let guard = self.contest.as_ref().map(|contest| &contest.guard);
        let compared = guard.and_then(|guard| Some((guard, guard.difference?)));
        let default_ms = match compared {
            Some((guard, _)) => guard.mean(Arm::Default),
            None => self.known(&self.default).unwrap_or(sampled).exp(),
        };
        let steps_lost = (self.cost_before + self.settled_cost(sampled)).max(0.0);
        let mut verdict = self.default_kept(default_ms, steps_lost, reason);
        if let Some(winner) = winner {
            (verdict.kept_default, verdict.chosen) = (false, winner);
            if let Some((guard, difference)) = compared {
                verdict.chosen_step_ms = guard.mean(Arm::Candidate);
                verdict.gain_pct = difference.gain_pct();
                let gain = 1.0 - verdict.chosen_step_ms / default_ms;
                let payback = self.steps.saturating_add((steps_lost / gain).ceil() as u64);
                verdict.payback_step = (gain > 0.0).then_some(payback);
            }
        }
        Some(verdict)
    }

    /// The verdict that keeps the default, whose step time is this.
    pub(super) fn default_kept(&self, step_ms: f64, steps_lost: f64, reason: String) -> Verdict {
        Verdict {
            kept_default: true,
            chosen: self.default,
            default_step_ms: step_ms,
            chosen_step_ms: step_ms,
            gain_pct: [0.0; 2],
            steps_active: self.steps - self.began,
            steps_lost,
            budget_steps: self.config.budget_steps,
            budget_kept: steps_lost <= self.config.budget_steps,
            payback_step: None,
            reverted: false,
            reason,
            retuned: self.retuned.clone(),
        }
    }

    /// The verdict if training stopped now: the final one, or that the setting stays with which the
    /// search began, because nothing better was confirmed. None before the first measured step.
    pub fn verdict_if_stopped(&self) -> Option<Verdict> {
        if let Stage::Finished { verdict, .. } = &self.stage {
            return Some((**verdict).clone());
        }
        let start = self.tuner.start();
        let best = self.best_so_far();
        let kept = match start == self.default {
            true => "default kept",
            false => "the setting in force stays",
        };
        let reason = match best.filter(|best| best.setting != start) {
            Some(Best { step_ms, .. }) => format!(
                "{kept}: training ended before a faster setting ({step_ms:.2} ms) was confirmed"
            ),
            None => format!("{kept}: training ended before a faster setting was found"),
        };
        self.verdict_at(start, reason)
    }

    /// The best setting so far; it is confirmed only by the verdict. None before the default is
    /// measured.
    pub fn best_so_far(&self) -> Option<Best> {
        let seen = self.tuner.estimate(&self.incumbent)?;
        let step_ms = seen.log_time.exp();
        Some(Best {
            setting: self.incumbent,
            step_ms,
            step_ms_ci95: INTERVAL_95 * seen.variance.sqrt() * step_ms,
        })
    }

    /// For a live progress line.
    pub fn progress(&self) -> Progress {
        let sample = match &self.stage {
            Stage::Ab => self.rounds(),
            _ => self.sample,
        };
        Progress {
            phase: self.phase(),
            sample,
            step_ms: self.window.center().map(f64::exp),
            steps_left: self.steps_left(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Warmup { .. } | Stage::Default => Phase::Default,
            // The default's sample is closed, the first proposal is being computed.
            Stage::Deciding { .. } if self.sample == 0 => Phase::Default,
            Stage::Ab | Stage::Rest { is_contest: true } => Phase::Ab,
            Stage::Finished { .. } => Phase::Final,
            Stage::Sample | Stage::Entry | Stage::Deciding { .. } | Stage::Rest { .. } => {
                Phase::Sample
            }
        }
    }

    /// Purpose of the next step.
    pub fn purpose(&self) -> Purpose {
        let is_measured = match &self.stage {
            Stage::Rest { .. } => false,
            Stage::Finished { promise, .. } => {
                (promise.as_ref()).is_some_and(|promise| promise.is_checking())
            }
            _ => true,
        };
        match self.phase() {
            _ if !is_measured => Purpose::None,
            Phase::Default => Purpose::Default,
            Phase::Sample => Purpose::Sample,
            Phase::Ab | Phase::Final if self.setting == self.default => Purpose::AbDefault,
            Phase::Ab | Phase::Final => Purpose::AbCandidate,
        }
    }

    /// The checks after a verdict that ended since the last call, oldest first.
    pub fn take_rechecks(&mut self) -> Vec<Recheck> {
        self.rechecks.drain(..).collect()
    }

    /// Complete pairs of the comparison.
    fn rounds(&self) -> u32 {
        let contest = self.contest.as_ref();
        contest.map_or(0, |contest| contest.guard.rounds())
    }

    fn steps_left(&self) -> u32 {
        let (warmup, done) = match &self.stage {
            Stage::Finished { .. } => return 0,
            Stage::Ab => {
                return contest_steps_left(self.rounds()).min(CONTEST_TYPICAL.into()) as u32;
            }
            Stage::Warmup { left } => (*left, 0),
            Stage::Default | Stage::Sample | Stage::Entry => (0, self.window.steps() as u64),
            Stage::Deciding { .. } | Stage::Rest { .. } => (0, self.config.steps_per_sample.into()),
        };
        let samples = SAMPLES_TYPICAL.max(self.sample + 1);
        let samples = self.config.max_samples.min(samples);
        let samples = samples.saturating_sub(self.sample);
        let steps = 1 + u64::from(self.config.steps_per_sample);
        let sampling = u64::from(samples).saturating_mul(steps);
        let left = warmup.saturating_add(sampling).saturating_sub(done);
        u32::try_from(left.saturating_add(CONTEST_TYPICAL.into())).unwrap_or(u32::MAX)
    }

    /// The measurements that closed since the last call, oldest first: rows for a log.
    pub fn take_measurements(&mut self) -> Vec<Measurement> {
        self.measurements.drain(..).collect()
    }

    /// Internal errors since the last call after which the search continued.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.warnings.drain(..).collect()
    }

    /// The setting in force.
    pub fn setting(&self) -> Point {
        self.setting
    }

    /// The setting that the present search compares all others with: the start's, or, when tuning
    /// anew, what was in force then.
    pub fn reference(&self) -> Point {
        self.tuner.start()
    }

    /// The space that is tuned.
    pub fn space(&self) -> &Space {
        self.tuner.space()
    }
}
