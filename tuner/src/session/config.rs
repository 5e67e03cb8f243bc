//! Configuration of a session, and the actions that it asks of its caller.

use crate::error::in_range;
use crate::{Drift, Error, Point, TunerConfig, Verdict};

/// Least expected improvement that is worth a sample, in log step time: the guard proves gains of a
/// percent.
const IMPROVEMENT_MIN: f64 = 0.003;
/// Most steps per sample that can be asked for.
const STEPS_PER_SAMPLE_MAX: u32 = 100_000;
/// Budget of a search where nothing is said, in steps of the start.
const BUDGET_STEPS: f64 = 20.0;
/// Share of a job of known length that a search may cost.
const BUDGET_SHARE: f64 = 0.02;

/// Configuration of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Seed of every draw. Default 7.
    pub seed: u64,
    /// Samples' worth of steps discarded at the start; `None` (the default) detects the start-up in
    /// the first sample.
    pub warmup_samples: Option<u32>,
    /// Steps per sample, 1 to 100,000. Default 10: many cheap samples say more than few precise
    /// ones.
    pub steps_per_sample: u32,
    /// Whether a sample ends early where it is clear that it is worse or better than the best.
    /// Default true; a user who fixes the steps per sample wants false.
    pub adaptive: bool,
    /// Largest number of settings that are sampled, the default among them; ≥ 1. Default 60.
    pub max_samples: u32,
    /// Standard deviation of a sample's value, as a fraction of it; `None` (the default) estimates
    /// it.
    pub fixed_noise: Option<f64>,
    /// Budget of a search: the excess of its steps over the start's, in steps of the start; ≥ 0.
    /// Default 20. It is not exceeded by more than the step that shows a setting to be far
    /// slower than predicted.
    pub budget_steps: f64,
    /// Whether an adopted setting is compared with the default again later, and reverted when it is
    /// slower. Default true.
    pub recheck: bool,
    /// Whether the session watches for drift after its verdict, and re-tunes. Default true.
    pub watch: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        let tuner = TunerConfig::default();
        Self {
            seed: tuner.seed,
            warmup_samples: None,
            steps_per_sample: 10,
            adaptive: true,
            max_samples: tuner.max_samples,
            fixed_noise: tuner.fixed_noise,
            budget_steps: BUDGET_STEPS,
            recheck: true,
            watch: true,
        }
    }
}

impl SessionConfig {
    /// For a job of `steps` steps: a search may cost 2 % of it.
    #[must_use]
    pub fn with_horizon(mut self, steps: u64) -> Self {
        self.budget_steps = BUDGET_SHARE * steps as f64;
        self
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let (steps, budget) = (self.steps_per_sample, self.budget_steps);
        let is_usable = (1..=STEPS_PER_SAMPLE_MAX).contains(&steps);
        in_range(
            "steps_per_sample",
            f64::from(steps),
            is_usable,
            "1 to 100000",
        )?;
        let is_usable = budget >= 0.0 && budget.is_finite();
        in_range("budget_steps", budget, is_usable, ">= 0 and finite")
    }

    pub(super) fn tuner(&self) -> TunerConfig {
        TunerConfig {
            seed: self.seed,
            max_samples: self.max_samples,
            fixed_noise: self.fixed_noise,
            improvement_min: IMPROVEMENT_MIN,
            sample_steps: Some(self.steps_per_sample),
            ..TunerConfig::default()
        }
    }
}

/// Action of the caller after a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Put this setting in force before the next step.
    Switch(Point),
    /// Fetch [`Session::proposal_job`](crate::Session::proposal_job), run it anywhere, hand the
    /// result to [`Session::propose`](crate::Session::propose); keep reporting steps meanwhile.
    Ask,
    /// The search is over: put `chosen` of the verdict in force, and go on reporting steps if drift
    /// is to be noticed.
    Finished(Box<Verdict>),
    /// The step time has changed since the verdict, and the session has begun to tune anew, from
    /// the setting in force. A model that the caller made before is no longer valid: pass a new one
    /// with the next ask.
    Drifted(Drift),
}
