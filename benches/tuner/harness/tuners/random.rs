//! Random search on the logarithmic scale; the best score wins.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::super::job::Job;
use super::super::truth::Setting;
use super::{Tuner, median};

/// Number of settings, and of steps for each.
#[derive(Debug)]
pub(crate) struct Random {
    name: &'static str,
    samples: usize,
    /// Sub-samples, and steps of each; the score is the median of their means.
    parts: usize,
    steps: usize,
    /// Steps discarded after a change.
    discarded: usize,
}

impl Random {
    /// 80 samples of the median of 10 steps.
    pub(crate) fn short() -> Self {
        Self {
            name: "random10",
            samples: 80,
            parts: 10,
            steps: 1,
            discarded: 1,
        }
    }

    /// 24 samples of 50 steps, as Horovod takes them.
    pub(crate) fn long() -> Self {
        Self {
            name: "random",
            samples: 24,
            parts: 5,
            steps: 10,
            discarded: 0,
        }
    }
}

/// Steps at the default before the search.
const WARMUP_STEPS: usize = 30;

impl Tuner for Random {
    fn name(&self) -> String {
        self.name.into()
    }

    fn tune(&self, job: &mut Job<'_>, seed: u64) -> Setting {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        job.run_us(&Setting::DEFAULT, WARMUP_STEPS);
        let mut best = (f64::INFINITY, Setting::DEFAULT);
        for _ in 0..self.samples {
            let setting = Setting {
                hierarchical: rng.random(),
                allgather: rng.random(),
                cache: rng.random(),
                ..Setting::at(rng.random(), rng.random())
            };
            job.run_us(&setting, self.discarded);
            let means = (0..self.parts)
                .map(|_| job.run_us(&setting, self.steps).iter().sum::<f64>() / self.steps as f64);
            let score = median(means.collect());
            if score < best.0 {
                best = (score, setting);
                job.incumbent(&setting);
            }
        }
        best.1
    }
}
