//! Log of a device: its executed work, in order.

use super::kernel::Launch;
use super::{Call, Communicator, Event, Stream};

/// Executed work, and its device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) device: usize,
    pub(crate) did: Did,
}

/// Kinds of work. Work on streams is logged when it is executed, not when it is put there.
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
    /// Copy without a kernel.
    Copied(Stream),
    /// Copies from pinned host memory, and to it.
    Uploaded(Stream),
    Downloaded(Stream),
    /// Write of a caller's own kernel.
    Wrote(Stream),
    /// Text of a test.
    Said(String),
}
