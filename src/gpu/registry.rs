//! Registry of the devices that this process uses; each is opened when it is first requested.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Device, Gpu, GpuError};
use crate::sync::lock;

/// Function that opens a device.
pub(crate) type Open = dyn Fn(u32) -> Result<Arc<dyn Gpu>, GpuError> + Send + Sync;

/// Devices that are open, and the function that opens them.
pub(crate) struct Registry {
    open: Box<Open>,
    count: fn() -> Result<u32, GpuError>,
    devices: Mutex<HashMap<u32, Arc<Device>>>,
}

impl Registry {
    pub(crate) fn new(open: Box<Open>, count: fn() -> Result<u32, GpuError>) -> Self {
        let devices = Mutex::default();
        Self {
            open,
            count,
            devices,
        }
    }

    /// Number of devices of the machine.
    pub(crate) fn count(&self) -> Result<u32, GpuError> {
        (self.count)()
    }

    /// Returns the device for a rank without GPU tensors: the ranks of a host take the devices in
    /// turn.
    ///
    /// # Errors
    /// No driver, no device.
    pub(crate) fn ordinal_of(&self, local_rank: usize) -> Result<u32, GpuError> {
        Ok(local_rank as u32 % self.count()?.max(1))
    }

    /// Returns device `ordinal`.
    ///
    /// # Errors
    /// The device cannot be opened; the next call tries again.
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
