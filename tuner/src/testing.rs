//! Simulated training job for tests: log-normal noise, spikes, a slow first step after a change, and
//! a slow drift.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A job whose every 33rd step or so takes half as long again, over a slow drift (AR(1), 0.99).
pub(crate) struct Job {
    rng: Xoshiro256PlusPlus,
    noise: f64,
    drift_sd: f64,
    drift: f64,
}

impl Job {
    pub(crate) fn new(seed: u64, noise: f64, drift_sd: f64) -> Self {
        let mut job = Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            noise,
            drift_sd,
            drift: 0.0,
        };
        job.drift = drift_sd * job.normal();
        job
    }

    /// Box and Muller's, cheaper than the quantile function.
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.rng.random_range(1e-12..1.0), self.rng.random());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// The log time of the next step, under a setting of this log step time.
    pub(crate) fn step(&mut self, center: f64) -> f64 {
        self.drift =
            0.99 * self.drift + (1.0f64 - 0.99 * 0.99).sqrt() * self.drift_sd * self.normal();
        let spike = if self.rng.random_bool(0.03) {
            1.5f64.ln()
        } else {
            0.0
        };
        center + self.drift + self.noise * self.normal() + spike
    }
}
