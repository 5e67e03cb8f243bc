//! Simulated streams and events: queues of work, and the events that it waits for.

use std::collections::VecDeque;

use super::collective::Turn;
use super::kernel::Launch;
use super::{Call, Communicator, Event};

/// A stream.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) work: VecDeque<Work>,
    /// Destroyed, with work left.
    pub(super) is_doomed: bool,
}

/// One piece of work on a stream.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Launch(Launch),
    Call {
        communicator: Communicator,
        turn: Turn,
        calls: Vec<Call>,
        has_arrived: bool,
    },
    /// Completes the `turn`th recording of the event.
    Record {
        event: Event,
        turn: u64,
    },
    /// Waits until this many recordings are complete.
    Follow {
        event: Event,
        turn: u64,
    },
    Allocate {
        address: u64,
    },
    Free {
        address: u64,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    /// Copy from pinned host memory.
    Upload {
        to: u64,
        from: usize,
        bytes: usize,
    },
    /// Copy to pinned host memory.
    Download {
        to: usize,
        from: u64,
        bytes: usize,
    },
    /// A caller's own kernel.
    Write {
        to: u64,
        bytes: Vec<u8>,
    },
    /// Waits until the test releases it.
    Hold(u64),
}

/// An event.
#[derive(Default)]
pub(super) struct Point {
    /// Number of recordings, and number of those that are complete.
    pub(super) recorded: u64,
    pub(super) done: u64,
    pub(super) came_ns: Option<u64>,
    pub(super) is_destroyed: bool,
    pub(super) is_timed: bool,
}

impl Point {
    /// Whether the last recording is complete; true if there was none.
    pub(super) fn has_come(&self) -> bool {
        self.done >= self.recorded
    }
}
