//! What a device has done, in the order in which it was done.

use super::kernel::Launch;
use super::{Call, Communicator, Event, Stream};

/// Something that was done, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) device: usize,
    pub(crate) did: Did,
}

/// What was done. Work on streams is noted when it is done, not when it is put there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Did {
    MadeStream(Stream),
    DestroyedStream(Stream),
    MadeEvent(Event),
    DestroyedEvent(Event),
    Allocated {
        address: u64,
        bytes: usize,
    },
    Freed {
        address: u64,
    },
    Joined(Communicator),
    Aborted(Communicator),
    Launched(Stream, Launch),
    Called(Stream, Vec<Call>),
    /// The communicator was aborted.
    GaveUp(Stream, Vec<Call>),
    Recorded(Stream, Event),
    Followed(Stream, Event),
    /// Without a kernel.
    Copied(Stream),
    /// From host memory, and to it.
    Uploaded(Stream),
    Downloaded(Stream),
    /// By a caller.
    Wrote(Stream),
    /// By a test.
    Said(String),
}
