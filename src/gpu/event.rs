//! Device in use: creates events once and lends them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{Event, Gpu, GpuError, Stream};
use crate::device::{Mark, Marks};
use crate::sync::lock;

/// A device and its events.
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) gpu: Arc<dyn Gpu>,
    /// Unused events, without and with times.
    idle: [Mutex<Vec<Event>>; 2],
    /// Counts recordings of marks.
    moments: AtomicU64,
    /// The last stream that was made to wait for a mark, and the mark's number.
    followed: Mutex<Option<(Stream, u64)>>,
}

impl Device {
    pub(crate) fn new(ordinal: u32, gpu: Arc<dyn Gpu>) -> Self {
        Self {
            ordinal,
            gpu,
            idle: Default::default(),
            moments: AtomicU64::new(0),
            followed: Mutex::default(),
        }
    }

    /// Marks the current end of `stream`. With the time, the driver takes 1.5 times as long.
    pub(crate) fn mark(self: &Arc<Self>, stream: Stream, is_timed: bool) -> Result<Mark, GpuError> {
        let idle = lock(&self.idle[usize::from(is_timed)]).pop(); // unlocked before calls of the driver
        let next = || self.moments.fetch_add(1, Ordering::SeqCst);
        let event = match idle {
            Some(event) => event,
            None => self.gpu.make_event(is_timed)?,
        };
        let mark = Mark::new(Arc::clone(self) as Arc<dyn Marks>, event, is_timed, next());
        self.gpu.record(mark.event, stream)?;
        Ok(mark.recorded(next()))
    }

    /// Makes later work on `stream` wait for `mark`: one call, if all tensors of a batch ask for it
    /// one after another.
    fn follow(&self, stream: Stream, mark: &Mark) -> Result<(), GpuError> {
        let mut followed = lock(&self.followed);
        if *followed != Some((stream, mark.number())) {
            self.gpu.follow(stream, mark.event)?;
            *followed = Some((stream, mark.number()));
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for idle in &self.idle {
            std::mem::take(&mut *lock(idle))
                .into_iter()
                .for_each(|event| self.gpu.destroy_event(event));
        }
    }
}

impl Marks for Device {
    fn has_come(&self, event: Event) -> Result<bool, GpuError> {
        self.gpu.has_come(event)
    }

    fn wait(&self, event: Event) -> Result<(), GpuError> {
        self.gpu.wait(event)
    }

    fn precede(&self, mark: &Mark, stream: Stream) -> Result<(), GpuError> {
        self.follow(stream, mark)
    }

    fn retire(&self, event: Event, is_timed: bool) {
        lock(&self.idle[usize::from(is_timed)]).push(event);
    }
}
