//! A device in use: its events are made once and lent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{Event, Gpu, GpuError, Stream};
use crate::sync::lock;

/// A device and its events.
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) gpu: Arc<dyn Gpu>,
    /// Without times, and with.
    idle: [Mutex<Vec<Event>>; 2],
    /// Counts what happens to marks.
    moments: AtomicU64,
    /// The stream that was put behind a mark last, and when that was made.
    followed: Mutex<Option<(Stream, u64)>>,
}

/// An event that is somebody's; it goes back when dropped.
pub(crate) struct Mark {
    pub(crate) event: Event,
    device: Arc<Device>,
    /// Whether the device can tell when it came about.
    pub(crate) is_timed: bool,
    /// The moments before and after it was made.
    asked: u64,
    made: u64,
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

    /// Marks the point that `stream` has come to. To note the time, too, takes the driver half as long again.
    pub(crate) fn mark(self: &Arc<Self>, stream: Stream, is_timed: bool) -> Result<Mark, GpuError> {
        let idle = lock(&self.idle[usize::from(is_timed)]).pop(); // not locked while the driver is called
        let next = || self.moments.fetch_add(1, Ordering::SeqCst);
        let mut mark = Mark {
            event: match idle {
                Some(event) => event,
                None => self.gpu.make_event(is_timed)?,
            },
            device: Arc::clone(self),
            is_timed,
            asked: next(),
            made: 0,
        };
        self.gpu.record(mark.event, stream)?;
        mark.made = next();
        Ok(mark)
    }

    /// Puts what comes onto `stream` from here on behind `mark`: once, where all tensors of a batch ask for it one after another.
    pub(crate) fn follow(&self, stream: Stream, mark: &Mark) -> Result<(), GpuError> {
        let mut followed = lock(&self.followed);
        if *followed != Some((stream, mark.made)) {
            self.gpu.follow(stream, mark.event)?;
            *followed = Some((stream, mark.made));
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

impl Mark {
    /// Whether it was made before `other`, for certain: not while that was made, by another thread.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.made < other.asked
    }

    /// The device it is on.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        lock(&self.device.idle[usize::from(self.is_timed)]).push(self.event);
    }
}
