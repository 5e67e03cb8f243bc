//! Settings of a job on one rank: one versioned cell for all changes.
//!
//! The tuner and the program (on rank 0) write the settings that they request. The set of all ranks
//! publishes them in its blocks. The settings that its ranks agree on are in force on all of them
//! from the same cycle on, and are written here. Other process sets publish the settings in force,
//! and so follow: their members switch together, too, in the first cycle after one of them has the
//! new settings.

use std::sync::{Arc, Mutex};

use crate::settings::{Settings, Versioned};
use crate::sync::lock;

/// Settings in force on this rank, and the newest ones.
#[derive(Debug, Default)]
pub(crate) struct SettingsCell {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Newest settings that this rank knows.
    wanted: Versioned<Settings>,
    in_force: Versioned<Settings>,
    /// Whether all ranks have agreed on the settings in force. Before the first cycle they come
    /// from this rank's environment.
    is_agreed: bool,
}

impl SettingsCell {
    /// Makes a cell with the settings of this rank's environment.
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

    /// Returns the settings in force on this rank.
    pub(crate) fn in_force(&self) -> Versioned<Settings> {
        lock(&self.state).in_force
    }

    /// Changes the newest settings; called on rank 0.
    pub(crate) fn change(&self, change: impl FnOnce(&Settings) -> Settings) {
        let mut state = lock(&self.state);
        state.wanted = Versioned {
            version: state.wanted.version + 1,
            value: change(&state.wanted),
        };
    }
}

/// Access of a process set to the cell.
#[derive(Clone, Debug)]
pub(crate) enum SettingsSource {
    /// Set of all ranks: publishes the newest settings, and brings the agreed ones into force.
    Decides(Arc<SettingsCell>),
    /// Any other set: publishes the settings in force.
    Follows(Arc<SettingsCell>),
}

impl SettingsSource {
    /// Returns the settings to begin with, until the set's ranks have agreed.
    pub(crate) fn begin(&self) -> Versioned<Settings> {
        let (Self::Decides(cell) | Self::Follows(cell)) = self;
        Versioned {
            version: 0,
            value: cell.in_force().value,
        }
    }

    /// Returns the settings to publish with the next block.
    pub(crate) fn newest(&self) -> Versioned<Settings> {
        match self {
            Self::Decides(cell) => lock(&cell.state).wanted,
            Self::Follows(cell) => {
                let state = *lock(&cell.state);
                Versioned {
                    // Newer than the environment of any rank, once the job has agreed.
                    version: state.in_force.version + u64::from(state.is_agreed),
                    value: state.in_force.value,
                }
            }
        }
    }

    /// Changes the newest settings on behalf of the tuner or the program. Without effect in a set
    /// that follows.
    pub(crate) fn change(&self, change: impl FnOnce(&Settings) -> Settings) {
        if let Self::Decides(cell) = self {
            cell.change(change);
        }
    }

    /// Stores the `settings` that the set's ranks have agreed on.
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
        // Rank 0's environment differs from this rank's, and decides.
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
        // A change is not lost if it comes during a cycle that agrees on the previous settings.
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
