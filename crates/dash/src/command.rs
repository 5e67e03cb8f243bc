//! Commands of a user, from the controls of the page.

use ronde_job::settings::PartialSettings;

/// Command of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// End tuning and keep the settings in force.
    StopTuning,
    /// Change settings; the values are within their ranges.
    Set(PartialSettings),
    /// Start a timeline in this file, which is relative to the job's folder and has no `..` in it.
    StartTimeline {
        /// Path of the file.
        path: String,
    },
    /// Stop the timeline.
    StopTimeline,
}
