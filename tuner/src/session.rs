//! A tuning session: the state machine that a training loop drives with one call per step.
//!
//! ```text
//!  warm-up ─► default ─► ask ─► sample ─► ask ─► … ─► comparison ──► verdict ─► watch
//!                │        ▲        │                    │                         │
//!                │        └────────┴─ kept, or dropped ◄─┘                         │
//!                └◄────────────────────── drift, or retune() ◄───────────────────┘
//! ```
//!
//! The caller reports each step's time and does what the returned [`Action`] says. A `Switch` is
//! taken to be in force from the next step on; the first step after it is discarded. `Ask` means
//! that the next proposal is to be computed, on any thread: the training goes on at the setting in
//! force meanwhile, its steps still count, and the answer comes back through [`Session::propose`].
//! The session has no clock and no thread, so equal step times give equal decisions.
//!
//! Steps that are not finite or not positive are ignored. A stall is no measurement, but its cost
//! counts (`guard::stall`). A sample that is clearly worse than the best so far is cut short after
//! 1, 2 or 5 steps and kept with the variance that so few steps have; from a setting that is twice
//! as slow the session goes back before it asks. No sample is begun whose expected cost does not
//! fit into what is left of the budget ([`SessionConfig::budget_steps`]), and none continues that
//! exceeds it.
//!
//! After the verdict the session watches for drift, and tunes anew when it has seen one: from the
//! setting in force, with a new budget, and with the first default still a candidate.

use std::collections::VecDeque;

use crate::center::{huber_center, median};
use crate::guard::Arm;
use crate::guard::promise::{Promise, Recheck};
use crate::guard::stall::Ledger;
use crate::session::drift::{Drift, Watch};
use crate::session::verdict::{Measurement, Phase, Verdict};
use crate::session::window::{Fate, Window};
use crate::state::StateSample;
use crate::tuner::Tuner;
use crate::tuner::sample::Seen;
use crate::{Error, Point, Space, Warning};

mod ask;
mod budget;
mod config;
mod contest;
pub(crate) mod drift;
mod finalists;
mod report;
mod resume;
mod sample;
mod stop;
pub(crate) mod verdict;
mod watch;
pub(crate) mod window;

pub use config::{Action, SessionConfig};
pub use resume::Scored;

use budget::CLIFF;
use contest::Contest;

/// Most steps at the start that are taken for start-up.
const STARTUP_MAX: usize = 30;
/// Most measurements, checks or warnings that wait to be fetched; older ones are dropped.
const LATEST_MAX: usize = 256;
/// Steps of the start's sample: all of them cost what the best setting would gain. A start-up
/// that ends among them is cut off; a longer one is part of the sample, which is no evidence in a
/// comparison.
const DEFAULT_STEPS: usize = 5;

/// Stage of a session, by what it waits for.
#[derive(Clone, Debug)]
enum Stage {
    /// Steps that are discarded at the user's request.
    Warmup { left: u64 },
    /// The end of the sample of the setting in force.
    Default,
    /// The end of a proposed setting's sample.
    Sample,
    /// The end of a short visit to a finalist, before the comparison.
    Entry,
    /// A proposal; `extra` steps were kept meanwhile.
    Deciding { extra: u32 },
    /// The end of a visit of the comparison.
    Ab,
    /// The start is in force, since stalls of other settings have cost too much.
    Rest { is_contest: bool },
    /// A drift, or a loss against the default.
    Finished {
        verdict: Box<Verdict>,
        watch: Box<Watch>,
        promise: Option<Box<Promise>>,
    },
}

/// A tuning session; see the module's header. A copy is a search of its own from then on.
#[derive(Clone, Debug)]
pub struct Session {
    config: SessionConfig,
    /// The setting in force when the session began: a candidate for ever.
    default: Point,
    /// This search began with another setting, which a comparison has confirmed.
    start_is_proved: bool,
    tuner: Tuner,
    stage: Stage,
    contest: Option<Contest>,
    /// Cost of this search before the job was reset.
    cost_before: f64,
    /// Winners that lost.
    rejected: Vec<Point>,
    /// Comparisons that the job has begun, those of earlier runs and of other step signatures
    /// included: they share one error.
    contests: u32,
    ledger: Ledger,
    /// Measurement of the default by an earlier run, at its final setting: log step time, and date.
    recorded_default: Option<(f64, String)>,
    /// The setting in force, and its window.
    setting: Point,
    window: Window,
    /// Entries of this search before a comparison.
    entries: usize,
    /// The setting was changed since its last steps were added to its sample.
    enters: bool,
    /// The job may still be starting up.
    starting: bool,
    /// The next step is to be answered with an ask.
    asks_next: bool,
    /// Index of the sample under way.
    sample: u32,
    /// Predicted log step time of the sample under way.
    predicted: Option<f64>,
    incumbent: Point,
    steps: u64,
    /// The step at which this search began.
    began: u64,
    /// Setting and ln(time in ms) of the steps discarded after changes: they are part of the cost.
    discarded: Vec<(Point, f64)>,
    /// Measurements of the same job's last run: each stays in the state until it is repeated, or
    /// the job changes.
    inherited: Vec<StateSample>,
    /// Why this search began, if it is not the first.
    retuned: Option<String>,
    retune_steps: u64,
    /// A drift that has to wait, since the last search was begun a moment ago.
    postponed: Option<Drift>,
    measurements: VecDeque<Measurement>,
    rechecks: VecDeque<Recheck>,
    warnings: VecDeque<Warning>,
}

impl Session {
    /// A session that tunes `space`, starting from the setting in force, which is the default that
    /// must be beaten.
    ///
    /// # Errors
    /// A start point that is not one of the space, or a configuration out of range.
    pub fn new(space: Space, config: SessionConfig, start: Point) -> Result<Self, Error> {
        config.check()?;
        let tuner = Tuner::new(space, config.tuner(), start)?;
        let left =
            u64::from(config.warmup_samples.unwrap_or(0)) * u64::from(config.steps_per_sample);
        let mut session = Self::of_tuner(tuner, config);
        if left > 0 {
            session.stage = Stage::Warmup { left };
        }
        Ok(session)
    }

    /// A session at the beginning of a search.
    fn of_tuner(tuner: Tuner, config: SessionConfig) -> Self {
        let start = tuner.start();
        Self {
            starting: config.warmup_samples.is_none(),
            config,
            default: start,
            start_is_proved: false,
            tuner,
            stage: Stage::Default,
            contest: None,
            cost_before: 0.0,
            rejected: Vec::new(),
            contests: 0,
            ledger: Ledger::default(),
            recorded_default: None,
            setting: start,
            window: Window::default(),
            entries: 0,
            enters: true,
            asks_next: false,
            sample: 0,
            predicted: None,
            incumbent: start,
            steps: 0,
            began: 0,
            discarded: Vec::new(),
            inherited: Vec::new(),
            retuned: None,
            retune_steps: watch::RETUNE_STEPS,
            postponed: None,
            measurements: VecDeque::new(),
            rechecks: VecDeque::new(),
            warnings: VecDeque::new(),
        }
    }

    /// Takes the time of the step that just ended, in ms: the slowest rank's.
    pub fn on_step(&mut self, step_ms: f64) -> Action {
        if !(step_ms.is_finite() && step_ms > 0.0) {
            return Action::Keep;
        }
        self.steps += 1;
        if let Stage::Warmup { left } = &mut self.stage {
            *left -= 1;
            if *left > 0 {
                return Action::Keep;
            }
            if self.contest.is_some() {
                self.stage = Stage::Ab;
                return self.go_to(self.next_visit());
            }
            self.stage = Stage::Default;
            return Action::Keep;
        }
        let log_time = step_ms.ln();
        if !self.window.discards && !matches!(self.stage, Stage::Finished { .. }) {
            self.note_stall(log_time);
            if let Stage::Rest { is_contest } = self.stage {
                return self.on_rest(is_contest);
            }
        }
        let is_compared = !self.starting && !self.window.discards;
        let action = match self.stage {
            Stage::Ab if is_compared => self.on_contest_step(step_ms),
            Stage::Finished { .. } if is_compared => self.on_watched(step_ms),
            _ => match self.window.push(log_time) {
                Fate::Discarded => self.on_discarded(log_time),
                Fate::Stalled => Action::Keep,
                Fate::Counted => self.on_counted(log_time),
            },
        };
        if action == Action::Keep && std::mem::take(&mut self.asks_next) {
            return Action::Ask;
        }
        action
    }

    /// Adds a step to the ledger of stalls. The start counts as the default.
    fn note_stall(&mut self, log_time: f64) {
        let Some(start) = self.start_log() else {
            return;
        };
        // The first steps at a setting show whether it is slow, which is no stall.
        let usual = self.known(&self.setting).unwrap_or_else(|| {
            let first: Vec<f64> = [&self.window.log_times[..], &[log_time]].concat();
            median(&first)
        });
        let arm = if [self.default, self.tuner.start()].contains(&self.setting) {
            Arm::Default
        } else {
            Arm::Candidate
        };
        self.ledger.push(arm, (log_time - usual.max(start)).exp());
    }

    /// Takes a step of the start while the search rests.
    fn on_rest(&mut self, is_contest: bool) -> Action {
        match self.ledger.resumes() {
            None => Action::Keep,
            Some(true) if is_contest => {
                self.stage = Stage::Ab;
                self.go_to(self.next_visit())
            }
            Some(true) => self.ask_from(self.setting),
            Some(false) => {
                // A comparison of the start has an account of its own.
                self.ledger = Ledger::default();
                self.keep_start(
                    "default kept: stalls at other settings cost more than the search may",
                )
            }
        }
    }

    /// A step right after a change is no measurement, unless it alone exceeds the budget.
    fn on_discarded(&mut self, log_time: f64) -> Action {
        if matches!(self.stage, Stage::Finished { .. }) {
            return Action::Keep;
        }
        self.discarded.push((self.setting, log_time));
        if let (Stage::Ab, Some(contest)) = (&self.stage, &mut self.contest) {
            contest.guard.discarded();
        }
        let far_slower = self.is_slower(Some(log_time), CLIFF);
        if matches!(self.stage, Stage::Sample) && far_slower && self.left() < 0.0 {
            self.discarded.pop();
            self.window.log_times.push(log_time);
            return self.close_sample(true);
        }
        Action::Keep
    }

    fn on_counted(&mut self, log_time: f64) -> Action {
        match self.stage {
            Stage::Warmup { .. } | Stage::Rest { .. } => Action::Keep,
            Stage::Sample => self.on_sample(),
            Stage::Entry => self.on_entry(),
            Stage::Deciding { extra } => self.on_extra(log_time, extra),
            Stage::Default | Stage::Ab | Stage::Finished { .. } => self.on_first_step(),
        }
    }

    /// Takes a step of the start's sample. A job that resumes has none: its start-up is cut off
    /// before the first visit, or before its steps are watched.
    fn on_first_step(&mut self) -> Action {
        if !self.left_startup() {
            return Action::Keep;
        }
        match self.stage {
            Stage::Default => return self.close_sample(false),
            Stage::Ab => return self.go_to(self.next_visit()),
            _ => self.window = Window::default(),
        }
        Action::Keep
    }

    /// Whether the window has the steps of the start's sample after the start-up, which is then cut
    /// off. They are fewer than of other samples, unless the user has fixed these or the warm-up.
    fn left_startup(&mut self) -> bool {
        let steps = match self.config.adaptive && self.config.warmup_samples.is_none() {
            true => DEFAULT_STEPS,
            false => self.config.steps_per_sample as usize,
        };
        let Some(spare) = self.window.steps().checked_sub(steps) else {
            return false;
        };
        let startup = if self.starting {
            self.window.startup_steps(steps)
        } else {
            0
        };
        if startup > spare && spare < STARTUP_MAX {
            return false;
        }
        self.window.log_times.drain(..startup.min(spare));
        self.starting = false;
        true
    }

    /// Continues at `point`, with a fresh window. Visits of a comparison discard steps even if they
    /// change nothing: then the times of its pairs do not depend on their orders.
    fn go_to(&mut self, point: Point) -> Action {
        let changed = point != self.setting;
        let discards = changed || matches!(self.stage, Stage::Ab);
        self.window = Window::new(discards, self.known(&point));
        self.enters |= changed;
        self.setting = point;
        if changed {
            Action::Switch(point)
        } else {
            Action::Keep
        }
    }

    /// Whether the next step will not count, because a setting is entered, or entered again.
    pub fn discards_next(&self) -> bool {
        self.window.discards
    }

    /// Comparisons that the job has begun.
    pub fn contests(&self) -> u32 {
        self.contests
    }

    /// Tells the session of the comparisons of the job's other sessions, for steps of other
    /// signatures: all share one error.
    pub fn share_contests(&mut self, contests: u32) {
        self.contests = self.contests.max(contests);
    }

    /// Adds step times to the sample of the setting in force.
    fn observe(&mut self, log_times: &[f64]) {
        let enters = std::mem::take(&mut self.enters);
        self.tuner.add_steps(self.setting, log_times, enters);
    }

    /// Adds the window to the sample of the setting in force, and to the log.
    fn close_window(&mut self, phase: Phase, number: u32) {
        self.observe(&self.window.log_times.clone());
        self.record(phase, number);
        self.window = Window::new(false, self.known(&self.setting));
    }

    /// Centre of the log step times of `point`, if it was measured.
    fn known(&self, point: &Point) -> Option<f64> {
        let sample = self.tuner.sample(point)?;
        Some(huber_center(&sample.log_times))
    }

    fn warn(&mut self, warning: Warning) {
        push_latest(&mut self.warnings, warning);
    }

    /// Ends the search without an adoption: no setting is checked afterwards.
    fn finish(&mut self, reason: String) -> Action {
        self.end_with(self.verdict(None, reason), None)
    }

    /// Puts the setting of a verdict in force and watches it.
    fn end_with(&mut self, verdict: Option<Verdict>, promise: Option<Promise>) -> Action {
        let Some(verdict) = verdict else {
            return Action::Keep;
        };
        if self.retuned.is_some() {
            self.retune_steps = if verdict.chosen == self.tuner.start() {
                (2 * self.retune_steps).min(watch::RETUNE_STEPS_MAX)
            } else {
                watch::RETUNE_STEPS
            };
        }
        self.incumbent = verdict.chosen;
        let _ = self.go_to(verdict.chosen);
        let verdict = Box::new(verdict);
        self.stage = Stage::Finished {
            verdict: verdict.clone(),
            watch: Box::default(),
            promise: promise.map(Box::new),
        };
        Action::Finished(verdict)
    }

    /// Measurements of this search.
    fn seen(&self) -> Vec<Seen> {
        let estimates = self.tuner.estimates().into_iter();
        estimates.map(|(_, seen)| seen).collect()
    }
}

/// Adds an item; the oldest one is dropped if there are too many.
fn push_latest<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == LATEST_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}
