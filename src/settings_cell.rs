//! The settings of a job on one rank: one versioned cell that every change goes through.
//!
//! The tuner and the program (on rank 0) write the settings that they want. The set of all ranks
//! publishes them in its blocks; what its ranks agree on comes into force on all of them in the
//! same cycle, and is written here. Other process sets publish what is in force, so they follow:
//! their members switch together, too, as soon as one of them knows.

use std::sync::{Arc, Mutex};

use crate::settings::{Settings, Versioned};
use crate::sync::lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SettingsCell {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The newest settings that this rank knows.
    wanted: Versioned<Settings>,
    in_force: Versioned<Settings>,
    /// Whether all ranks have agreed on those in force. Before the first cycle they are what this
    /// rank's environment says.
    is_agreed: bool,
}

impl SettingsCell {
    /// With the settings of this rank's environment.
    pub(crate) fn new(environment: Settings) -> Self {
        let cell = Self::default();
        cell.begin_with(environment);
        cell
    }

    /// Replaces the settings of the environment, before the first cycle.
    pub(crate) fn begin_with(&self, settings: Settings) {
        let settings = Versioned {
            version: 0,
            value: settings,
        };
        let mut state = lock(&self.state);
        (state.wanted, state.in_force) = (settings, settings);
    }

    /// The settings in force on this rank.
    pub(crate) fn in_force(&self) -> Versioned<Settings> {
        lock(&self.state).in_force
    }

    /// Changes the newest settings; on rank 0.
    pub(crate) fn change(&self, change: impl FnOnce(&Settings) -> Settings) {
        let mut state = lock(&self.state);
        state.wanted = Versioned {
            version: state.wanted.version + 1,
            value: change(&state.wanted),
        };
    }
}

/// What a process set does with the cell.
#[derive(Clone, Debug)]
pub(crate) enum SettingsSource {
    /// The set of all ranks: publishes what is wanted, and brings into force what is agreed on.
    Decides(Arc<SettingsCell>),
    /// Another set: publishes what is in force.
    Follows(Arc<SettingsCell>),
}

impl SettingsSource {
    /// The settings to begin with, until the set's ranks have agreed.
    pub(crate) fn begin(&self) -> Versioned<Settings> {
        let (Self::Decides(cell) | Self::Follows(cell)) = self;
        Versioned {
            version: 0,
            value: cell.in_force().value,
        }
    }

    /// The settings to publish with the next block.
    pub(crate) fn newest(&self) -> Versioned<Settings> {
        match self {
            Self::Decides(cell) => lock(&cell.state).wanted,
            Self::Follows(cell) => {
                let state = *lock(&cell.state);
                Versioned {
                    // Newer than any rank's environment, once the job has agreed.
                    version: state.in_force.version + u64::from(state.is_agreed),
                    value: state.in_force.value,
                }
            }
        }
    }

    /// Takes over what the tuner or the program wants; a set that follows has neither.
    pub(crate) fn change(&self, change: impl FnOnce(&Settings) -> Settings) {
        if let Self::Decides(cell) = self {
            cell.change(change);
        }
    }

    /// The set's ranks have agreed on `settings`.
    pub(crate) fn agreed(&self, settings: Versioned<Settings>) {
        let Self::Decides(cell) = self else { return };
        let mut state = lock(&cell.state);
        (state.in_force, state.is_agreed) = (settings, true);
        if settings.version >= state.wanted.version {
            state.wanted = settings;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(cycle_time_ns: u64) -> Settings {
        Settings {
            cycle_time_ns,
            ..Settings::default()
        }
    }

    fn versioned(version: u64, cycle_time_ns: u64) -> Versioned<Settings> {
        Versioned {
            version,
            value: paced(cycle_time_ns),
        }
    }

    #[test]
    fn a_change_is_published_by_the_set_of_all_ranks_and_followed_once_agreed() {
        let cell = Arc::new(SettingsCell::new(paced(700)));
        let world = SettingsSource::Decides(Arc::clone(&cell));
        let set = SettingsSource::Follows(Arc::clone(&cell));
        assert_eq!(
            (set.begin(), set.newest()),
            (versioned(0, 700), versioned(0, 700))
        );
        // Rank 0's environment says otherwise than this rank's, and counts.
        world.agreed(versioned(0, 500));
        assert_eq!(
            (world.newest(), set.newest()),
            (versioned(0, 500), versioned(1, 500))
        );
        for cycle_time_ns in [550, 600] {
            world.change(|_| paced(cycle_time_ns));
        }
        set.change(|_| paced(1));
        assert_eq!(
            (world.newest(), set.newest()),
            (versioned(2, 600), versioned(1, 500))
        );
        assert_eq!(cell.in_force(), versioned(0, 500));
        // A change during a cycle that agrees on the one before is not lost.
        world.change(|settings| paced(settings.cycle_time_ns + 1));
        world.agreed(versioned(2, 600));
        assert_eq!(
            (world.newest(), cell.in_force()),
            (versioned(3, 601), versioned(2, 600))
        );
        assert_eq!(set.newest(), versioned(3, 600));
        world.agreed(versioned(3, 601));
        assert_eq!(
            (set.newest(), set.begin()),
            (versioned(4, 601), versioned(0, 601))
        );
    }
}
