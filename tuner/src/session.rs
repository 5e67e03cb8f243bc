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
//! worse than the best so far is cut short after 2 or 5 steps and kept with the variance that so few steps have.

use std::collections::VecDeque;

use crate::center::{center_variance, huber_center, median};
use crate::guard::{Arm, Decision, Difference, Guard, ROUNDS_MAX, WINDOW_STEPS};
use crate::tuner::{IMPROVEMENT_MIN, Next, Proposal, ProposalJob, Tuner, TunerConfig};
use crate::verdict::{Best, Measurement, Phase, Progress, Verdict};
use crate::window::{Fate, STALL_FACTOR, Window};
use crate::{Error, Point, Space, Warning};

/// Most steps at the start that are taken for start-up.
const STARTUP_MAX: usize = 30;
/// Most steps per sample that can be asked for.
const STEPS_PER_SAMPLE_MAX: u32 = 100_000;
/// While a proposal is computed, at most this many samples' worth of extra steps is kept.
const EXTRA_SAMPLES_MAX: u32 = 4;
/// Measurements and warnings that wait to be fetched; older ones are dropped.
const UNREAD_MAX: usize = 256;
/// Samples of a typical search and rounds of a typical A/B phase, for the guess of the steps left.
const SAMPLES_TYPICAL: u32 = 16;
const ROUNDS_TYPICAL: u32 = 4;
/// Standard errors to either side in a 95 % interval.
const INTERVAL_95: f64 = 1.96;

/// What a session is told once.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Seed of every draw. Default 7.
    pub seed: u64,
    /// Steps discarded after each change of setting. Default 1.
    pub warmup_steps_per_change: u32,
    /// Samples' worth of steps discarded at the start; `None` (the default) detects the start-up in the first sample.
    pub warmup_samples: Option<u32>,
    /// Steps per sample, 1 to 100,000. Default 10.
    pub steps_per_sample: u32,
    /// Whether a sample that is clearly worse is cut short. Default true; a user who fixes the steps per sample wants false.
    pub early_abort: bool,
    /// Most settings that are sampled, the default among them; ≥ 1. Default 24.
    pub max_samples: u32,
    /// Standard deviation of a sample's value, as a fraction of it; `None` (the default) estimates it.
    pub fixed_noise: Option<f64>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        let tuner = TunerConfig::default();
        Self {
            seed: tuner.seed,
            warmup_steps_per_change: 1,
            warmup_samples: None,
            steps_per_sample: 10,
            early_abort: true,
            max_samples: tuner.max_samples,
            fixed_noise: tuner.fixed_noise,
        }
    }
}

/// What the caller has to do after a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Put this setting in force before the next step.
    Switch(Point),
    /// Fetch [`Session::proposal_job`], run it anywhere, hand the result to [`Session::propose`]; keep reporting steps meanwhile.
    Ask,
    /// The session is over: put `chosen` of the verdict in force.
    Finished(Box<Verdict>),
}

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

    /// Whether the steps so far exclude that this setting is the best: a 10 % gap after 2 steps, 3 % after 5, and noise excluded.
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
        match log_times.len() {
            2 => {
                let low = log_times[0].min(log_times[1]);
                low - center > (4.0 * (0.75 * noise * noise + variance).sqrt()).max(0.10)
            }
            5 => huber_center(log_times) - center > (3.0 * (0.3 * noise * noise + variance).sqrt()).max(0.03),
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
        if proposal.incumbent_gain < IMPROVEMENT_MIN {
            let percent = 100.0 * (1.0 - (-proposal.incumbent_gain).exp());
            let reason =
                format!("default kept, nothing to gain: the best other setting promises only {percent:.1} %");
            return self.finish(None, reason);
        }
        self.predicted = None;
        self.stage = Stage::Ab {
            guard: Guard::new(self.tuner.noise()),
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

    fn record(&mut self, phase: Phase, sample: u32, aborted: bool) {
        let log_times = &self.window.log_times;
        let variance = center_variance(self.tuner.noise(), log_times.len());
        let step_ms = huber_center(log_times).exp();
        self.measurements.push_back(Measurement {
            phase,
            sample,
            setting: self.setting,
            steps: log_times.len(),
            step_ms_p50: median(log_times).exp(),
            step_ms,
            step_ms_ci95: INTERVAL_95 * variance.sqrt() * step_ms,
            predicted_step_ms: self.predicted.map(f64::exp),
            aborted,
        });
        if self.measurements.len() > UNREAD_MAX {
            self.measurements.pop_front();
        }
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

    /// The verdict for a confirmed winner or, without one, the default; none before the first measured step.
    fn verdict(&self, winner: Option<Point>, reason: String) -> Option<Verdict> {
        let start = self.tuner.start();
        let sampled = self.known(&start).or_else(|| self.window.center())?;
        let difference = self.difference().filter(|_| winner.is_some());
        let default_log = match &self.stage {
            Stage::Ab { guard, .. } if guard.rounds() > 0 => guard.center(Arm::Default),
            _ => sampled,
        };
        let steps_lost = self.steps_lost(sampled);
        Some(Verdict {
            kept_default: winner.is_none(),
            chosen: winner.unwrap_or(start),
            default_step_ms: default_log.exp(),
            chosen_step_ms: (default_log + difference.map_or(0.0, |d| d.mean)).exp(),
            gain_pct: difference.map_or([0.0; 2], |d| d.gain_pct()),
            steps_active: self.steps,
            steps_lost,
            payback_step: difference.and_then(|d| Verdict::payback(self.steps, steps_lost, d)),
            reason,
        })
    }

    fn difference(&self) -> Option<Difference> {
        if let Stage::Ab { guard, .. } = &self.stage {
            guard.difference()
        } else {
            None
        }
    }

    /// The excess over the default's centre of every step since the default was measured, in steps of the default. Measured
    /// steps count by their setting's centre, so that spikes, which the default has too, are not charged to the search.
    fn steps_lost(&self, default_log: f64) -> f64 {
        let excess = |log_time: f64| (log_time - default_log).exp() - 1.0;
        let measured = self.tuner.samples().iter();
        let measured: f64 = measured
            .map(|s| s.log_times.len() as f64 * excess(huber_center(&s.log_times)))
            .sum();
        // A stall in a discarded step is no more the search's fault than any other.
        let capped = |(point, log_time): &(Point, f64)| {
            log_time.min(
                self.known(point)
                    .map_or(f64::INFINITY, |known| known + STALL_FACTOR.ln()),
            )
        };
        let discarded: f64 = self.discarded.iter().map(|step| excess(capped(step))).sum();
        (measured + discarded).max(0.0)
    }

    /// The verdict if training stopped now: the final one, or that the default stays because nothing better was confirmed. None
    /// before the first measured step.
    pub fn verdict_if_stopped(&self) -> Option<Verdict> {
        if let Stage::Finished { verdict } = &self.stage {
            return Some(verdict.clone());
        }
        let reason = match self.best_so_far() {
            Some(best) if best.setting != self.tuner.start() => {
                let step_ms = best.step_ms;
                format!(
                    "default kept: training ended before a faster setting ({step_ms:.2} ms) was confirmed"
                )
            }
            _ => "default kept: training ended before a faster setting was found".into(),
        };
        self.verdict(None, reason)
    }

    /// The best setting so far; it is confirmed only by the verdict. None before the default is measured.
    pub fn best_so_far(&self) -> Option<Best> {
        let sample = self.tuner.sample(&self.incumbent)?;
        let (center, variance) = self.tuner.estimate(sample);
        let step_ms = center.exp();
        Some(Best {
            setting: self.incumbent,
            step_ms,
            step_ms_ci95: INTERVAL_95 * variance.sqrt() * step_ms,
        })
    }

    /// For a live progress line.
    pub fn progress(&self) -> Progress {
        let sample = match &self.stage {
            Stage::Ab { guard, .. } => guard.rounds(),
            _ => self.sample,
        };
        Progress {
            phase: self.phase(),
            sample,
            setting: self.setting,
            step_ms: self.window.center().map(f64::exp),
            best: self.best_so_far(),
            steps_left: self.steps_left(),
        }
    }

    fn phase(&self) -> Phase {
        match self.stage {
            Stage::Warmup { .. } | Stage::Default => Phase::Default,
            // The default's sample is closed, the first proposal is being computed.
            Stage::Deciding { .. } if self.sample == 0 => Phase::Default,
            Stage::Sample { .. } | Stage::Deciding { .. } => Phase::Sample,
            Stage::Ab { .. } => Phase::Ab,
            Stage::Finished { .. } => Phase::Final,
        }
    }

    fn steps_left(&self) -> u32 {
        let round = 2 * WINDOW_STEPS + self.config.warmup_steps_per_change;
        let (warmup, done) = match &self.stage {
            Stage::Finished { .. } => return 0,
            Stage::Ab { guard, .. } => {
                let rounds = if guard.rounds() < ROUNDS_TYPICAL {
                    ROUNDS_TYPICAL
                } else {
                    ROUNDS_MAX
                };
                return (rounds - guard.rounds()) * round;
            }
            Stage::Warmup { left } => (u32::try_from(*left).unwrap_or(u32::MAX), 0),
            Stage::Default | Stage::Sample { .. } => (0, self.window.steps() as u32),
            Stage::Deciding { .. } => (0, self.config.steps_per_sample),
        };
        let samples = if self.sample < SAMPLES_TYPICAL {
            SAMPLES_TYPICAL
        } else {
            self.sample + 1
        };
        let samples = samples.min(self.config.max_samples).saturating_sub(self.sample);
        let sampling =
            samples.saturating_mul(self.config.steps_per_sample + self.config.warmup_steps_per_change);
        warmup
            .saturating_add(sampling)
            .saturating_sub(done)
            .saturating_add(ROUNDS_TYPICAL * round)
    }

    /// The measurements that closed since the last call, oldest first: rows for a log.
    pub fn take_measurements(&mut self) -> Vec<Measurement> {
        self.measurements.drain(..).collect()
    }

    /// What went wrong inside and was survived since the last call.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.warnings.drain(..).collect()
    }

    /// The setting in force.
    pub fn setting(&self) -> Point {
        self.setting
    }

    /// The space that is tuned.
    pub fn space(&self) -> &Space {
        self.tuner.space()
    }

    /// Steps reported with an unusable time (not finite or not positive), and steps taken for stalls.
    pub fn steps_left_out(&self) -> (u64, u64) {
        (self.dropped, self.stalled)
    }
}
