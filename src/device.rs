//! Device streams and marks: a mark is an event on a stream that can be polled and waited for.
//!
//! The owner of a device makes marks and implements their operations ([`Marks`]). Holders of a mark
//! need not know the kind of the device.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::GpuError;

/// Queue of work on the device, a `CUstream`; 0 is the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub(crate) u64);

impl Stream {
    /// The `CUstream`.
    pub fn raw(self) -> u64 {
        self.0
    }
}

/// Point in a stream, a `CUevent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event(pub(crate) u64);

/// A device that makes marks.
pub(crate) trait Marks: Send + Sync {
    /// Whether the stream has reached the event.
    ///
    /// # Errors
    /// The device has failed.
    fn has_come(&self, event: Event) -> Result<bool, GpuError>;

    /// Sleeps until the stream has reached the event.
    ///
    /// # Errors
    /// The device has failed.
    fn wait(&self, event: Event) -> Result<(), GpuError>;

    /// Makes later work on `stream` wait for the mark.
    ///
    /// # Errors
    /// The device has failed, or there is no such stream.
    fn precede(&self, mark: &Mark, stream: Stream) -> Result<(), GpuError>;

    /// Takes back the event of a mark that was dropped.
    fn retire(&self, event: Event, is_timed: bool);
}

/// A recorded event. Its device reuses it when the mark is dropped.
pub(crate) struct Mark {
    pub(crate) event: Event,
    device: Arc<dyn Marks>,
    /// Whether the device can report the time of the event.
    pub(crate) is_timed: bool,
    /// The device's count of recordings before and after this one.
    asked: u64,
    made: u64,
}

impl Mark {
    /// Mark that is about to be recorded: `asked` is the device's count of recordings.
    pub(crate) fn new(device: Arc<dyn Marks>, event: Event, is_timed: bool, asked: u64) -> Self {
        Self {
            event,
            device,
            is_timed,
            asked,
            made: 0,
        }
    }

    /// The event was recorded, and `made` is the device's count since.
    pub(crate) fn recorded(mut self, made: u64) -> Self {
        self.made = made;
        self
    }

    /// Number that no other recording on the device has.
    pub(crate) fn number(&self) -> u64 {
        self.made
    }

    /// Whether this mark was recorded before `other`; false if two threads recorded both at the
    /// same time.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.made < other.asked
    }

    /// Whether the stream has reached the mark.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) fn has_come(&self) -> Result<bool, GpuError> {
        self.device.has_come(self.event)
    }

    /// Sleeps until the stream has reached the mark.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        self.device.wait(self.event)
    }

    /// Makes later work on `stream`, of the same device, wait for the mark.
    ///
    /// # Errors
    /// The device has failed, or there is no such stream.
    pub(crate) fn precede(&self, stream: Stream) -> Result<(), GpuError> {
        self.device.precede(self, stream)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.device.retire(self.event, self.is_timed);
    }
}

/// Stream and events of a tensor in device memory, as submitted.
pub(crate) struct OnDevice {
    /// The device's number in this process.
    pub(crate) ordinal: u32,
    /// The caller's stream.
    pub(crate) stream: Stream,
    /// Mark at which the tensor's data is ready.
    pub(crate) ready: Mark,
    /// Whether the ticket completes when the batch is launched; the caller's stream then waits for
    /// the result.
    pub(crate) is_early: bool,
}

/// Returns, for each of the callers' streams, the latest mark; several if threads made them at the
/// same time. (The order of submission does not tell, because marks are made before it.)
pub(crate) fn latest<'a>(tensors: impl Iterator<Item = &'a OnDevice>) -> SmallVec<[&'a Mark; 2]> {
    let mut last: SmallVec<[(Stream, &Mark); 2]> = SmallVec::new();
    for on in tensors {
        let (stream, mark) = (on.stream, &on.ready);
        if last
            .iter()
            .any(|(known, later)| *known == stream && mark.is_before(later))
        {
            continue;
        }
        last.retain(|(known, earlier)| *known != stream || !earlier.is_before(mark));
        last.push((stream, mark));
    }
    last.into_iter().map(|(_, mark)| mark).collect()
}
