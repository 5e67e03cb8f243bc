//! A tuning session: the state machine that a training loop drives with one call per step.
//!
//! ```text
//!  warm-up ─► default ─► ask ─► sample ─► ask ─► … ─► A/B windows ─► verdict
//!                         ▲        │
//!                         └────────┘
//! ```
//!
//! The caller reports each step's time and does what the returned [`Action`] says. A `Switch` is taken to be in force from the
//! next step on; the first steps after it are discarded. `Ask` means that the next proposal is to be computed, on any thread:
//! the training goes on at the setting in force meanwhile, its steps still count, and the answer comes back through
//! [`Session::propose`]. The session has no clock and no thread, so equal step times give equal decisions.
//!
//! Steps that are no measurement (not finite, not positive, or a stall) change nothing and are counted. A sample that is clearly
//! worse than the best so far is cut short after 1, 2 or 5 steps and kept with the variance that so few steps have.

use std::collections::VecDeque;

use crate::center::huber_center;
use crate::guard::{Arm, Decision, Guard, WINDOW_STEPS};
use crate::proposal::{Next, Proposal, ProposalJob};
use crate::tuner::{Tuner, TunerConfig};
use crate::verdict::{Measurement, Phase, Verdict};
use crate::window::{Fate, Window};
use crate::{Error, Point, Space, Warning};

mod config;
mod report;

pub use config::{Action, SessionConfig};

/// Most steps at the start that are taken for start-up.
const STARTUP_MAX: usize = 30;
/// Most steps per sample that can be asked for.
const STEPS_PER_SAMPLE_MAX: u32 = 100_000;
/// While a proposal is computed, at most this many samples' worth of extra steps is kept.
const EXTRA_SAMPLES_MAX: u32 = 4;
/// Measurements and warnings that wait to be fetched; older ones are dropped.
const UNREAD_MAX: usize = 256;
/// A discarded step and the one after it that are both slower than the best by this, in log step time, are a cliff: a factor of 2,
/// well above what a change of setting costs.
const CLIFF: f64 = std::f64::consts::LN_2;

/// A gain below this, in log step time, is not worth the A/B windows.
const GAIN_MIN: f64 = 0.005;

/// What the session waits for.
#[derive(Debug)]
enum Stage {
    /// Steps that are discarded at the user's wish.
    Warmup { left: u64 },
    /// The end of the default's sample.
    Default,
    /// The end of a proposed setting's sample.
    Sample { revisit: bool },
    /// A proposal; `extra` steps were kept meanwhile.
    Deciding { extra: u32 },
    /// The end of a window.
    Ab { guard: Guard, winner: Point },
    /// Nothing any more.
    Finished { verdict: Verdict },
}

/// A tuning session; see the module's header.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    tuner: Tuner,
    stage: Stage,
    /// The setting in force, and its window.
    setting: Point,
    window: Window,
    /// Index of the sample under way.
    sample: u32,
    /// Predicted log step time of the sample under way.
    predicted: Option<f64>,
    incumbent: Point,
    steps: u64,
    dropped: u64,
    stalled: u64,
    /// Setting and ln(time in ms) of the steps discarded after changes: they are part of the cost.
    discarded: Vec<(Point, f64)>,
    measurements: VecDeque<Measurement>,
    warnings: VecDeque<Warning>,
}

impl Session {
    /// A session that tunes `space`, starting from the setting in force, which is the default that must be beaten.
    ///
    /// # Errors
    /// A start point that is not one of the space, or a configuration out of range.
    pub fn new(space: Space, config: SessionConfig, start: Point) -> Result<Self, Error> {
        if !(1..=STEPS_PER_SAMPLE_MAX).contains(&config.steps_per_sample) {
            let value = f64::from(config.steps_per_sample);
            return Err(Error::Config {
                field: "steps_per_sample",
                value,
                expected: "1 to 100000",
            });
        }
        let SessionConfig {
            seed,
            max_samples,
            fixed_noise,
            ..
        } = config;
        let tuner = Tuner::new(
            space,
            TunerConfig {
                seed,
                max_samples,
                fixed_noise,
                ..TunerConfig::default()
            },
            start,
        )?;
        let left = u64::from(config.warmup_samples.unwrap_or(0)) * u64::from(config.steps_per_sample);
        Ok(Self {
            config,
            tuner,
            stage: if left > 0 {
                Stage::Warmup { left }
            } else {
                Stage::Default
            },
            setting: start,
            window: Window::default(),
            sample: 0,
            predicted: None,
            incumbent: start,
            steps: 0,
            dropped: 0,
            stalled: 0,
            discarded: Vec::new(),
            measurements: VecDeque::new(),
            warnings: VecDeque::new(),
        })
    }

    /// Takes the time of the step that just ended, in ms: the slowest rank's.
    pub fn on_step(&mut self, step_ms: f64) -> Action {
        if matches!(self.stage, Stage::Finished { .. }) {
            return Action::Keep;
        }
        if !(step_ms.is_finite() && step_ms > 0.0) {
            self.dropped += 1;
            return Action::Keep;
        }
        self.steps += 1;
        if let Stage::Warmup { left } = &mut self.stage {
            *left -= 1;
            if *left == 0 {
                self.stage = Stage::Default;
            }
            return Action::Keep;
        }
        match self.window.push(step_ms.ln()) {
            Fate::Discarded => self.discarded.push((self.setting, step_ms.ln())),
            Fate::Stalled => self.stalled += 1,
            Fate::Counted => return self.on_counted(step_ms.ln()),
        }
        Action::Keep
    }

    fn on_counted(&mut self, log_time: f64) -> Action {
        let full = self.config.steps_per_sample as usize;
        match &mut self.stage {
            Stage::Warmup { .. } | Stage::Finished { .. } => Action::Keep,
            Stage::Default => match self.startup() {
                Some(startup) => {
                    self.window.log_times.drain(..startup);
                    self.close_sample(false)
                }
                None => Action::Keep,
            },
            Stage::Sample { revisit } => {
                let revisit = *revisit;
                let done = self.window.steps() >= full;
                if done || (self.config.early_abort && !revisit && self.clearly_worse()) {
                    return self.close_sample(!done);
                }
                Action::Keep
            }
            Stage::Deciding { extra } => {
                if *extra < EXTRA_SAMPLES_MAX * self.config.steps_per_sample {
                    *extra += 1;
                    self.tuner.observe(self.setting, &[log_time]);
                } else {
                    // An answer that never comes must not make the window grow for ever.
                    self.window = Window::new(0, self.known(&self.setting));
                }
                Action::Keep
            }
            Stage::Ab { .. } if self.window.steps() >= WINDOW_STEPS as usize => self.close_window(),
            Stage::Ab { .. } => Action::Keep,
        }
    }

    /// How many leading steps of the first sample are start-up, once the sample is long enough after it.
    fn startup(&self) -> Option<usize> {
        let (steps, full) = (self.window.steps(), self.config.steps_per_sample as usize);
        let spare = steps.checked_sub(full)?;
        if self.config.warmup_samples.is_some() {
            return Some(0);
        }
        let startup = self.window.startup_steps(full);
        (startup <= spare || spare >= STARTUP_MAX).then_some(startup.min(spare))
    }

    /// Whether the steps so far exclude that this setting is the best: a gap of 100 % after 1 step if the discarded one had it too,
    /// of 10 % after 2 steps, of 3 % after 5, and noise excluded.
    fn clearly_worse(&self) -> bool {
        let log_times = &self.window.log_times;
        let noise = self.tuner.noise();
        let best = self
            .tuner
            .samples()
            .iter()
            .map(|sample| self.tuner.estimate(sample));
        let Some((center, variance)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return false;
        };
        // The minimum of two and the centre of five: neither is fooled by one spike.
        match *log_times.as_slice() {
            [first] => match self.discarded.last() {
                Some(&(point, discarded)) if point == self.setting => {
                    first.min(discarded) - center > (4.0 * (noise * noise + variance).sqrt()).max(CLIFF)
                }
                _ => false,
            },
            [first, second] => {
                first.min(second) - center > (4.0 * (0.75 * noise * noise + variance).sqrt()).max(0.10)
            }
            [_, _, _, _, _] => {
                huber_center(log_times) - center > (3.0 * (0.3 * noise * noise + variance).sqrt()).max(0.03)
            }
            _ => false,
        }
    }

    fn close_sample(&mut self, aborted: bool) -> Action {
        let phase = self.phase();
        self.tuner.observe(self.setting, &self.window.log_times);
        self.record(phase, self.sample, aborted);
        self.window = Window::new(0, self.known(&self.setting));
        if self.tuner.candidates() == 1 {
            return self.finish(
                None,
                "default kept, nothing to tune: every parameter is fixed".into(),
            );
        }
        self.stage = Stage::Deciding { extra: 0 };
        Action::Ask
    }

    /// The computation of the next proposal; run it on any thread and hand the result to [`propose`](Self::propose).
    pub fn proposal_job(&self) -> ProposalJob {
        self.tuner.job()
    }

    /// Takes the proposal that an [`Action::Ask`] asked for. One that nobody waits for is ignored.
    pub fn propose(&mut self, proposal: Proposal) -> Action {
        if !matches!(self.stage, Stage::Deciding { .. }) || !self.tuner.accept(&proposal) {
            return Action::Keep;
        }
        self.incumbent = proposal.incumbent;
        self.warnings.extend(proposal.warnings);
        let unread = self.warnings.len().saturating_sub(UNREAD_MAX);
        self.warnings.drain(..unread);
        if let Next::Sample(point) = proposal.next {
            self.sample += 1;
            self.predicted = Some(proposal.prediction.0).filter(|p| p.is_finite());
            self.stage = Stage::Sample {
                revisit: self.tuner.sample(&point).is_some(),
            };
            return self.go_to(point);
        }
        if proposal.incumbent == self.tuner.start() {
            return self.finish(
                None,
                "default kept, nothing to gain: no other setting looks faster".into(),
            );
        }
        if proposal.gain.0 < GAIN_MIN {
            let percent = 100.0 * (1.0 - (-proposal.gain.0).exp());
            let reason =
                format!("default kept, nothing to gain: the best other setting promises only {percent:.1} %");
            return self.finish(None, reason);
        }
        self.predicted = None;
        self.stage = Stage::Ab {
            guard: Guard::new(self.tuner.noise(), 10),
            winner: proposal.incumbent,
        };
        self.go_to(self.tuner.start())
    }

    fn close_window(&mut self) -> Action {
        let log_times = self.window.log_times.clone();
        self.tuner.observe(self.setting, &log_times);
        let Stage::Ab { guard, winner } = &mut self.stage else {
            return Action::Keep;
        };
        let round = guard.rounds();
        guard.push(log_times);
        let (decision, arm, winner, rounds) = (guard.decision(), guard.next_arm(), *winner, guard.rounds());
        self.record(Phase::Ab, round, false);
        match decision {
            Decision::Undecided => self.go_to(if arm == Arm::Winner {
                winner
            } else {
                self.tuner.start()
            }),
            Decision::KeepWinner => self.finish(
                Some(winner),
                format!("kept: faster than the default in {rounds} interleaved rounds"),
            ),
            Decision::KeepDefault => {
                let [low, high] = self.difference().map_or([f64::NAN; 2], |d| d.gain_pct());
                let reason = format!(
                    "default kept, nothing to gain: the best other setting's gain of {low:.1} to {high:.1} % did not pass the A/B rule"
                );
                self.finish(None, reason)
            }
        }
    }

    /// Continues at `point`, with a fresh window.
    fn go_to(&mut self, point: Point) -> Action {
        let changed = point != self.setting;
        let discard = if changed {
            self.config.warmup_steps_per_change
        } else {
            0
        };
        self.window = Window::new(discard, self.known(&point));
        self.setting = point;
        if changed {
            Action::Switch(point)
        } else {
            Action::Keep
        }
    }

    fn known(&self, point: &Point) -> Option<f64> {
        self.tuner
            .sample(point)
            .map(|sample| huber_center(&sample.log_times))
    }

    fn finish(&mut self, winner: Option<Point>, reason: String) -> Action {
        let Some(verdict) = self.verdict(winner, reason) else {
            return Action::Keep;
        };
        self.setting = verdict.chosen;
        self.incumbent = verdict.chosen;
        self.stage = Stage::Finished {
            verdict: verdict.clone(),
        };
        Action::Finished(Box::new(verdict))
    }
}
