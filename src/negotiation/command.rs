//! Commands of rank 0, which every rank applies at the end of the same cycle.

use serde::{Deserialize, Serialize};

use crate::settings::SettingsChange;
use crate::timeline;

/// A command of rank 0, carried out by every rank when the cycle that brings it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobCommand {
    /// Start or stop the timeline.
    Timeline(timeline::TimelineCommand),
    /// Go on with other settings from the next cycle on.
    Settings(SettingsChange),
}
