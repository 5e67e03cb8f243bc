//! Random search on the lattice; the best score wins.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::IndexedRandom;

use super::super::job::Job;
use super::super::sampling::Sampling;
use super::super::truth::Setting;
use super::Tuner;

/// Largest number of samples.
const SAMPLES_MOST: usize = 80;

/// Random search.
#[derive(Debug)]
pub(crate) struct Random;

impl Tuner for Random {
    fn name(&self) -> String {
        "random".into()
    }

    fn tune(&self, job: &mut Job<'_>, seed: u64) -> Setting {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let lattice = Setting::lattice();
        let mut sampling = Sampling::default();
        sampling.sample(job, &Setting::DEFAULT);
        for _ in 1..SAMPLES_MOST {
            if sampling.is_done() {
                break;
            }
            let setting = lattice.choose(&mut rng).unwrap_or(&Setting::DEFAULT);
            sampling.sample(job, setting);
        }
        sampling.best().unwrap_or(Setting::DEFAULT)
    }
}
