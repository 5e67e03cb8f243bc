//! A device in use: its events are made once and lent.

use std::sync::{Arc, Mutex};

use super::{Event, Gpu, GpuError, Stream};
use crate::queue::lock;

/// A device and its events.
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) gpu: Arc<dyn Gpu>,
    idle: Mutex<Vec<Event>>,
}

/// An event that is somebody's; it goes back when dropped.
pub(crate) struct Mark {
    pub(crate) event: Event,
    device: Arc<Device>,
}

impl Device {
    pub(crate) fn new(ordinal: u32, gpu: Arc<dyn Gpu>) -> Self {
        let idle = Mutex::default();
        Self { ordinal, gpu, idle }
    }

    /// Marks the point that `stream` has come to.
    pub(crate) fn mark(self: &Arc<Self>, stream: Stream) -> Result<Mark, GpuError> {
        let idle = lock(&self.idle).pop(); // not locked while the driver is called
        let mark = Mark {
            event: match idle {
                Some(event) => event,
                None => self.gpu.make_event()?,
            },
            device: Arc::clone(self),
        };
        self.gpu.record(mark.event, stream)?;
        Ok(mark)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for event in std::mem::take(self.idle.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)) {
            self.gpu.destroy_event(event);
        }
    }
}

impl Mark {
    /// The device it is on.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        lock(&self.device.idle).push(self.event);
    }
}
