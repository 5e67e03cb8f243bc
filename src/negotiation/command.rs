//! What rank 0 has every rank do at the end of the same cycle.

use serde::{Deserialize, Serialize};

use crate::settings::SettingsChange;
use crate::timeline;

/// An order of rank 0, carried out by every rank when the cycle that brings it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Start or stop the timeline.
    Timeline(timeline::Order),
    /// Go on with other settings from the next cycle on.
    Settings(SettingsChange),
}
