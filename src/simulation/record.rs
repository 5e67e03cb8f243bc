//! What one member of a simulated set saw of its cycles.

use std::sync::{Arc, Mutex};

use crate::observer::{CycleEnd, Executed, Observer};
use crate::queue::lock;
use crate::settings::Settings;

/// What one rank saw in one set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Log {
    /// The names of each batch's tensors.
    pub(super) batches: Vec<Vec<String>>,
    /// Settings version in force in each cycle.
    pub(super) versions: Vec<u64>,
}

/// Writes the log; on set rank 0 it also changes the settings.
pub(super) struct Recorder {
    pub(super) log: Arc<Mutex<Log>>,
    /// Changes them after every so many cycles; 0 = never.
    pub(super) retune_every: u64,
    pub(super) cycles: u64,
}

impl Observer for Recorder {
    fn executed(&mut self, batch: &Executed<'_>) {
        let names = batch
            .members
            .iter()
            .map(|member| member.submission.tensor.name.to_string())
            .collect();
        lock(&self.log).batches.push(names);
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        lock(&self.log).versions.push(cycle.settings.version);
        self.cycles += 1;
        let retune = self.retune_every > 0 && self.cycles.is_multiple_of(self.retune_every);
        retune.then(|| Settings {
            fusion_threshold_bytes: 64 * self.cycles,
            ..cycle.settings
        })
    }
}
