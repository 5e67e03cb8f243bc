//! Streams and events: what waits to be done, and for what.

use std::collections::VecDeque;

use super::collective::Turn;
use super::kernel::Launch;
use super::{Call, Communicator, Event};

/// A stream.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) work: VecDeque<Work>,
    /// Destroyed, and not through.
    pub(super) is_doomed: bool,
}

/// Something on a stream.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Launch(Launch),
    Call {
        communicator: Communicator,
        turn: Turn,
        calls: Vec<Call>,
        has_arrived: bool,
    },
    /// Brings the event about for the `turn`th time.
    Record {
        event: Event,
        turn: u64,
    },
    /// Waits until it has come about so many times.
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
    /// From host memory that the device reads.
    Upload {
        to: u64,
        from: usize,
        bytes: usize,
    },
    /// To host memory that the device writes.
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
    /// Waits for the test.
    Hold(u64),
}

/// An event.
#[derive(Default)]
pub(super) struct Point {
    /// How often it was recorded, and how often that was done.
    pub(super) recorded: u64,
    pub(super) done: u64,
    pub(super) came_ns: Option<u64>,
    pub(super) is_destroyed: bool,
    pub(super) is_timed: bool,
}

impl Point {
    /// Whether it has come about as it was recorded last; one that never was has.
    pub(super) fn has_come(&self) -> bool {
        self.done >= self.recorded
    }
}
