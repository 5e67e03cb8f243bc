//! The devices that this process uses, opened when they are first asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Device, Gpu, GpuError};
use crate::sync::lock;

/// How a device is opened.
pub(crate) type Open = dyn Fn(u32) -> Result<Arc<dyn Gpu>, GpuError> + Send + Sync;

/// See the module.
pub(crate) struct Registry {
    open: Box<Open>,
    count: fn() -> Result<u32, GpuError>,
    devices: Mutex<HashMap<u32, Arc<Device>>>,
}

impl Registry {
    pub(crate) fn new(open: Box<Open>, count: fn() -> Result<u32, GpuError>) -> Self {
        let devices = Mutex::default();
        Self { open, count, devices }
    }

    /// Number of devices that there are.
    pub(crate) fn count(&self) -> Result<u32, GpuError> {
        (self.count)()
    }

    /// The device of a rank that nothing else has said it of: the ranks of a host take them in turn.
    ///
    /// # Errors
    /// No driver, no device.
    pub(crate) fn ordinal_of(&self, local_rank: usize) -> Result<u32, GpuError> {
        Ok(local_rank as u32 % self.count()?.max(1))
    }

    /// Device `ordinal`.
    ///
    /// # Errors
    /// It cannot be had; asked again, it is tried again.
    pub(crate) fn get(&self, ordinal: u32) -> Result<Arc<Device>, GpuError> {
        let mut devices = lock(&self.devices);
        if let Some(device) = devices.get(&ordinal) {
            return Ok(Arc::clone(device));
        }
        let device = Arc::new(Device::new(ordinal, (self.open)(ordinal)?));
        devices.insert(ordinal, Arc::clone(&device));
        Ok(device)
    }
}
