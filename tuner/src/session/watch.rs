//! After the verdict: checks, drift, and further searches.

use std::mem::take;

use super::{Session, Stage, push_latest};
use crate::guard::Arm;
use crate::guard::promise::Change;
use crate::session::drift::{Drift, Watch};
use crate::session::verdict::percent_text;
use crate::tuner::Tuner;
use crate::tuner::recall::relative_to;
use crate::tuner::sample::Seen;
use crate::{Action, Point, TunerConfig};

/// Least number of steps between the starts of two searches after drift. It doubles whenever such a
/// search ends with the setting that it began with.
pub(super) const RETUNE_STEPS: u64 = 500;
/// Most that it becomes.
pub(super) const RETUNE_STEPS_MAX: u64 = 64_000;
/// Least improvement for which such a search goes on, and least gain that starts its comparison, in
/// log step time: most settings of an earlier search are still good.
const IMPROVEMENT_AFTER_DRIFT: f64 = 0.015;
/// Standard deviation, in log step time, by which the differences between settings may have changed
/// with the job: what is remembered warns of cliffs, and says little of percents.
const CHANGED: f64 = 0.3;

impl Session {
    /// Takes a step after the verdict.
    pub(super) fn on_watched(&mut self, step_ms: f64) -> Action {
        let Stage::Finished {
            verdict,
            watch,
            promise,
        } = &mut self.stage
        else {
            return Action::Keep;
        };
        if self.tuner.candidates() == 1 {
            return Action::Keep;
        }
        // The steps of a check at the chosen setting are watched as well.
        let is_chosen = self.setting == verdict.chosen;
        let mut change = None;
        if let Some(kept) = promise {
            change = kept.push(step_ms);
            if let Some(recheck) = kept.recheck.take() {
                push_latest(&mut self.rechecks, recheck);
            }
            if kept.is_over {
                *promise = None;
            }
        }
        if self.config.watch
            && is_chosen
            && let Some((before_ms, after_ms)) = watch.push(step_ms)
        {
            **watch = Watch::default();
            self.postponed = Some(Drift {
                step: self.steps,
                before_ms,
                after_ms,
            });
        }
        let is_first = self.retuned.is_none();
        if is_chosen
            && (is_first || self.steps - self.began >= self.retune_steps)
            && let Some(drift) = self.postponed.take()
        {
            return self.on_drift(drift);
        }
        if let Some(change) = change {
            return self.on_change(change);
        }
        // A check begins, goes on at the other setting, or has ended.
        let arm = promise.as_ref().map(|promise| promise.arm());
        let point = arm.map_or(self.setting, |arm| self.point_of(arm));
        if point == self.setting {
            return Action::Keep;
        }
        self.go_to(point)
    }

    fn on_drift(&mut self, drift: Drift) -> Action {
        let reason = drift.to_string();
        // What was measured before is of another network, or another machine.
        let config = TunerConfig {
            improvement_min: IMPROVEMENT_AFTER_DRIFT,
            ..self.config.tuner()
        };
        let start_is_proved = match &self.stage {
            Stage::Finished { verdict, .. } => !verdict.kept_default,
            _ => false,
        };
        self.begin_anew(reason, config, &[]);
        self.start_is_proved = start_is_proved;
        Action::Drifted(drift)
    }

    /// Changes the verdict as the checks require, and puts its setting in force.
    fn on_change(&mut self, change: Change) -> Action {
        let Stage::Finished { verdict, watch, .. } = &mut self.stage else {
            return Action::Keep;
        };
        self.postponed = None; // it was seen at the other setting
        match change {
            Change::Revert { net, stalls_only } => {
                // The steps in the new state are those of the default.
                let cause = if stalls_only { "stalls" } else { "its steps" };
                let percent = percent_text(100.0 * net);
                verdict.reason = format!(
                    "reverted to the default: {cause} made the setting that was kept slower than the default (by {percent} %, net)"
                );
                (verdict.kept_default, verdict.reverted) = (true, true);
                (verdict.gain_pct, verdict.payback_step) = ([0.0; 2], None);
                (verdict.chosen, verdict.chosen_step_ms) = (self.default, verdict.default_step_ms);
            }
            Change::Return { net } => {
                let percent = percent_text(-100.0 * net);
                verdict.reason = format!(
                    "kept again: the default has the same stalls ({percent} % faster, net)"
                );
                (verdict.kept_default, verdict.reverted) = (false, false);
                // As the comparison has shown it.
                if let Some(contest) = &self.contest {
                    verdict.chosen = contest.winner;
                    verdict.chosen_step_ms = match contest.guard.rounds() {
                        0 => verdict.default_step_ms * (1.0 + net), // of a verdict before a reset
                        _ => contest.guard.mean(Arm::Candidate),
                    };
                    let difference = contest.guard.difference;
                    verdict.gain_pct = difference.map_or([0.0; 2], |it| it.gain_pct());
                }
            }
        }
        **watch = Watch::default();
        let verdict = verdict.clone();
        self.incumbent = verdict.chosen;
        let _ = self.go_to(verdict.chosen);
        Action::Finished(verdict)
    }

    /// Whether the search is not the session's first.
    pub fn is_retuned(&self) -> bool {
        self.retuned.is_some()
    }

    /// Tunes anew because the caller knows that the job has changed: a resize, another set of
    /// tensors. What was measured so far becomes prior knowledge. The search starts from the
    /// setting in force, or, in the middle of a search, from its start; its candidate is compared
    /// with the default of the job.
    pub fn retune(&mut self, reason: &str) -> Action {
        if matches!(self.stage, Stage::Warmup { .. }) {
            return Action::Keep;
        }
        let reference = self.begin_anew(reason.to_owned(), self.config.tuner(), &self.seen());
        self.retune_steps = RETUNE_STEPS; // what was fruitless was another job
        self.go_to(reference)
    }

    /// Begins another search with what was seen before; returns the setting that it starts from.
    fn begin_anew(&mut self, reason: String, config: TunerConfig, seen: &[Seen]) -> Point {
        let reference = match self.stage {
            // Not that of a visit of a re-check.
            Stage::Finished { ref verdict, .. } => verdict.chosen,
            _ => self.tuner.start(),
        };
        let space = self.tuner.space().clone();
        let recalled = relative_to(&space, &reference, seen, CHANGED);
        // Both points are of this space, and the configuration was good before: neither can fail.
        let Ok(mut tuner) = Tuner::new(space, config, reference) else {
            return reference;
        };
        tuner.also_consider(self.default);
        tuner.recall(recalled);
        // An answer to an ask of the last search is not one to this.
        tuner.asks = self.tuner.asks + 1;
        *self = Self {
            default: self.default,
            contests: self.contests,
            setting: self.setting,
            enters: self.enters,
            starting: self.starting,
            steps: self.steps,
            began: self.steps,
            retuned: Some(reason),
            retune_steps: self.retune_steps,
            measurements: take(&mut self.measurements),
            rechecks: take(&mut self.rechecks),
            warnings: take(&mut self.warnings),
            ..Self::of_tuner(tuner, self.config.clone())
        };
        reference
    }
}
