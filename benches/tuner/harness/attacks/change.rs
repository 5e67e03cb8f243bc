//! A permanent change of the step time after the verdict, and long runs without one.

use ronde_tuner::{Action, Error, Phase};

use super::{Job, Process};

/// Steps after which a search counts as endless.
const SEARCH_MOST: u64 = 20_000;
/// Steps between the verdict and the change, and steps that are evaluated after it.
const CALM_STEPS: u64 = 400;
const AFTER_STEPS: u64 = 600;

/// A run whose steps get slower for good.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// Steps until it was noticed, and from then on until the new verdict.
    pub(super) noticed: Option<u64>,
    pub(super) tuned: Option<u64>,
}

impl Process {
    /// Simulates a run whose steps take `factor` times as long from 400 steps after the verdict.
    pub(crate) fn changed(&self, factor: f64, seed: u64) -> Result<Change, Error> {
        let mut job = Job::new(self, seed)?;
        job.search();
        for _ in 0..CALM_STEPS {
            job.step();
        }
        job.search(); // after a false alarm
        job.scale = factor;
        let mut change = Change::default();
        for after in 1..=AFTER_STEPS {
            match job.step().action {
                Action::Drifted(_) => change.noticed = change.noticed.or(Some(after)),
                Action::Finished(_) => {
                    let since = change.noticed.map(|noticed| after - noticed);
                    change.tuned = change.tuned.or(since);
                }
                Action::Keep | Action::Ask | Action::Switch(_) => {}
            }
        }
        Ok(change)
    }

    /// Number of drift alarms in `steps` steps in which nothing changes.
    pub(crate) fn false_alarms(&self, steps: u64, seed: u64) -> Result<u64, Error> {
        let mut job = Job::new(self, seed)?;
        let alarms = (0..steps).filter(|_| matches!(job.step().action, Action::Drifted(_)));
        Ok(alarms.count() as u64)
    }
}

impl Job {
    /// Takes steps until no search is under way.
    fn search(&mut self) {
        for _ in 0..SEARCH_MOST {
            if self.phase() == Phase::Final {
                return;
            }
            self.step();
        }
    }
}
