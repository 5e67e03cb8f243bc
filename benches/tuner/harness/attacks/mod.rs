//! Step-time processes that may mislead a tuner's guard: modes, neighbours, periods, correlated
//! noise, stalls, growth, effects that depend on how long a setting has been in force.
//!
//! All settings except the start share one effect. A run drives a session for a fixed number of
//! steps, as `ronde tune` does, and records the cost for a job. Tests of the crate `ronde-tuner`
//! include this folder, so it depends only on that crate and on `rand`.

mod change;
mod drawn;
mod lists;
mod log;
mod source;
mod tables;

use ronde_tuner::{Action, Error, Parameter, Phase, Point, Session, SessionConfig, Space};

pub(crate) use change::Change;
pub(crate) use drawn::{ENVIRONMENTS, LEAVING, Leaving};
pub(crate) use lists::{APART, CHOSEN, DRIFT, FLAT, GAINS};
use source::{Effect, Environment, Source, Stay};
pub(crate) use tables::{coverage, drawn, drift, flat, gains, processes};

/// Slow-down of the first step after a change of setting, as a share.
const CHANGE: f64 = 0.25;
/// Number of steps of a run, and the step at which its state is reported.
const STEPS: u64 = 3000;

/// A step-time process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// Name in tables.
    pub(crate) name: &'static str,
    environment: Environment,
    other: Effect,
    /// Standard deviation of ln(step time) beside the environment.
    noise: f64,
    steps: u64,
    /// Step times are multiples of this, ms; 0 for no rounding.
    resolution_ms: f64,
}

/// State of a run after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether another setting than the start is in force, apart from the visits of a check.
    pub(crate) is_away: bool,
    /// Whether a search or a comparison is under way.
    pub(crate) is_searching: bool,
}

impl State {
    /// Whether the run is at the start and stays there.
    fn is_settled_at_start(self) -> bool {
        self == Self::default()
    }
}

/// Results of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// State at step 3,000 and at the end.
    pub(crate) state: State,
    pub(crate) end: State,
    /// Whether a verdict ever left the start; guard steps until the first that did.
    pub(crate) left: bool,
    pub(crate) left_after: Option<u64>,
    /// Whether a verdict reverted to the start.
    pub(crate) reverted: bool,
    /// Cost of 3,000 steps relative to the start, as a share.
    pub(crate) paid: f64,
    /// Number of verdicts that left the start; of those whose gain's interval is above 0; of
    /// intervals without the true mean gain.
    pub(crate) intervals: u32,
    pub(crate) claims: u32,
    pub(crate) missed: u32,
    /// Number of steps of the comparisons, and of drift alarms.
    pub(crate) guard_steps: u64,
    pub(crate) alarms: u32,
}

/// A job of a process and its session.
struct Job {
    session: Session,
    source: Source,
    start: Point,
    setting: Point,
    stay: Stay,
    resolution_ms: f64,
    /// Factor on all steps.
    scale: f64,
}

/// A step of a job.
struct Step {
    /// Its time, which the session sees rounded, and that of the start setting in the same
    /// environment, ms.
    step_ms: f64,
    start_ms: f64,
    action: Action,
}

impl Job {
    fn new(process: &Process, seed: u64) -> Result<Self, Error> {
        let space = Space::new(vec![
            Parameter::log("fusion_mb", 0.0625, 256.0, 16).with_zero(),
            Parameter::log("cycle_ms", 0.1, 100.0, 13),
        ])?;
        let start = space.point(&[128.0, 1.0])?;
        let config = SessionConfig {
            seed,
            ..SessionConfig::default()
        };
        Ok(Self {
            session: Session::new(space, config, start)?,
            source: Source::new(*process, seed),
            start,
            setting: start,
            stay: Stay {
                is_start: true,
                age: 0,
                was_changed: false,
            },
            resolution_ms: process.resolution_ms,
            scale: 1.0,
        })
    }

    /// Takes a step and does what the session says.
    fn step(&mut self) -> Step {
        let (start_ms, factor) = self.source.step(self.stay);
        let is_first = self.stay.was_changed && self.stay.age == 0;
        let change = if is_first { 1.0 + CHANGE } else { 1.0 };
        let start_ms = self.scale * start_ms;
        let step_ms = start_ms * factor * change;
        let mut action = self.session.on_step(self.rounded(step_ms));
        if action == Action::Ask {
            action = self.session.propose(self.session.proposal_job().run());
        }
        let next = match &action {
            Action::Switch(point) => *point,
            Action::Finished(verdict) => verdict.chosen,
            Action::Keep | Action::Ask | Action::Drifted(_) => self.setting,
        };
        self.stay.age += 1;
        if next != self.setting {
            self.setting = next;
            self.stay = Stay {
                is_start: next == self.start,
                age: 0,
                was_changed: true,
            };
        }
        Step {
            step_ms,
            start_ms,
            action,
        }
    }

    fn rounded(&self, step_ms: f64) -> f64 {
        if self.resolution_ms > 0.0 {
            (step_ms / self.resolution_ms).round().max(1.0) * self.resolution_ms
        } else {
            step_ms
        }
    }

    fn phase(&self) -> Phase {
        self.session.progress().phase
    }

    fn state(&self) -> State {
        let is_searching = self.phase() != Phase::Final;
        State {
            is_away: settled(&self.session) != self.start,
            is_searching,
        }
    }
}

/// Returns the setting of the verdict, which is not in force during the visits of a check; the
/// setting in force if there is no verdict.
pub(crate) fn settled(session: &Session) -> Point {
    let verdict = session.verdict_if_stopped();
    let verdict = verdict.filter(|_| session.progress().phase == Phase::Final);
    verdict.map_or(session.setting(), |verdict| verdict.chosen)
}

impl Process {
    /// Mean gain of leaving the start, as a percentage of its step time; `None` if it changes
    /// during a run.
    fn gain_pct(&self) -> Option<f64> {
        self.other.gain_pct(self.environment)
    }

    /// Simulates one run; equal seeds give equal runs.
    pub(crate) fn run(&self, seed: u64) -> Result<Run, Error> {
        let mut job = Job::new(self, seed)?;
        let mut run = Run::default();
        let (mut spent, mut base) = (0.0, 0.0);
        let mut compared = None;
        for number in 1..=self.steps {
            run.guard_steps += u64::from(job.phase() == Phase::Ab);
            let step = job.step();
            if number <= STEPS {
                (spent, base) = (spent + step.step_ms, base + step.start_ms);
            }
            match step.action {
                Action::Finished(verdict) if !verdict.kept_default => {
                    let [low, high] = verdict.gain_pct;
                    let holds = |gain| (low..=high).contains(&gain);
                    run.left = true;
                    run.left_after = run.left_after.or(Some(run.guard_steps));
                    run.claims += u32::from(low > 0.0);
                    // A setting that returns does so with the interval of its comparison.
                    if let Some(gain) = self.gain_pct()
                        && compared.replace(verdict.gain_pct) != Some(verdict.gain_pct)
                    {
                        run.intervals += 1;
                        run.missed += u32::from(!holds(gain));
                    }
                }
                Action::Finished(verdict) => run.reverted |= verdict.reverted,
                Action::Drifted(_) => run.alarms += 1,
                Action::Keep | Action::Ask | Action::Switch(_) => {}
            }
            if number == STEPS {
                run.state = job.state();
            }
        }
        run.end = job.state();
        run.paid = spent / base - 1.0;
        Ok(run)
    }
}
