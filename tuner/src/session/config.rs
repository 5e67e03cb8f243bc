//! What a session is told, and what it tells its caller to do.

use crate::{Point, TunerConfig, Verdict};

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
    /// Fetch [`Session::proposal_job`](crate::Session::proposal_job), run it anywhere, hand the result to
    /// [`Session::propose`](crate::Session::propose); keep reporting steps meanwhile. After an aborted sample the setting in force
    /// is a bad one: a caller that can wait some milliseconds for the proposal saves a bad step.
    Ask,
    /// The session is over: put `chosen` of the verdict in force.
    Finished(Box<Verdict>),
}
