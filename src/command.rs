//! Commands that the program gives on rank 0 while the job runs. A cycle brings each to every rank.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::PartialSettings;

/// A command of rank 0 for the timeline, applied by all ranks in the same cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimelineCommand {
    /// Record into this file (rank 0; the others into its neighbours, if they record at all) from here on. A recording
    /// under way is closed first; one into the same file goes on.
    Start {
        /// Rank 0's file.
        #[serde(with = "path_bytes")]
        path: PathBuf,
        /// Whether to mark where cycles begin.
        mark_cycles: bool,
    },
    /// Close the file.
    Stop,
}

/// What rank 0 submits to its queue beside tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Travels in rank 0's answer, and is applied at the end of the cycle.
    Timeline(TimelineCommand),
    /// Becomes the newest settings of rank 0, which its next block carries.
    Settings(PartialSettings),
}

/// A path as its bytes: on Linux it need not be UTF-8.
mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Ok(OsString::from_vec(bytes).into())
    }
}
