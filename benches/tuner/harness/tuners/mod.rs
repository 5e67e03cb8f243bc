//! Tuners of the comparison.

mod horovod;
mod minimize;
mod ours;
mod random;

use std::sync::Arc;

use super::job::Job;
use super::truth::Setting;

pub(crate) use horovod::Horovod;
pub(crate) use ours::{Driven, Event, Ours};
pub(crate) use random::Random;

/// A tuner.
pub(crate) trait Tuner: Send + Sync {
    /// Name in the table.
    fn name(&self) -> String;

    /// Whether it uses rank 0's view of the job.
    fn wants_traces(&self) -> bool {
        false
    }

    /// Tunes a job; returns the final setting.
    fn tune(&self, job: &mut Job<'_>, seed: u64) -> Setting;
}

/// Never changes the setting.
#[derive(Debug)]
pub(crate) struct Stay;

impl Tuner for Stay {
    fn name(&self) -> String {
        "default".into()
    }

    fn tune(&self, job: &mut Job<'_>, _seed: u64) -> Setting {
        job.setting()
    }
}

/// Returns every tuner by its name.
pub(crate) fn all() -> Vec<Arc<dyn Tuner>> {
    vec![
        Arc::new(Ours::with_model()),
        Arc::new(Ours::cold()),
        Arc::new(Stay),
        Arc::new(Random),
        Arc::new(Horovod::numbers()),
        Arc::new(Horovod::chain()),
    ]
}
