//! Commands that the program gives on rank 0 while the job runs; one cycle delivers each of them to
//! every rank.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::PartialSettings;

/// Command of rank 0 for the timeline, applied by all ranks in the same cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimelineCommand {
    /// Starts a recording into this file on rank 0, and into files beside it on ranks that record
    /// too. A running recording is closed first; a recording into the same file continues.
    Start {
        /// File of rank 0.
        #[serde(with = "path_bytes")]
        path: PathBuf,
        /// Whether to record the start of each cycle.
        mark_cycles: bool,
    },
    /// Closes the file.
    Stop,
}

/// Command that rank 0 submits to its queue beside tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Sent with rank 0's response, applied at the end of the cycle.
    Timeline(TimelineCommand),
    /// Becomes the newest settings of rank 0, which its next block carries.
    Settings(PartialSettings),
}

/// Serializes a path as bytes, because a path on Linux need not be UTF-8.
mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Ok(OsString::from_vec(bytes).into())
    }
}
