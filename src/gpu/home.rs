//! Where a process set's tensors on GPUs live on this rank: one device, that of the first.

use std::sync::{Arc, OnceLock};

use super::{Device, GpuError, Mark, Registry, Stream};
use crate::tensor;

/// See the module.
pub(crate) struct Home {
    registry: Arc<Registry>,
    ordinal: OnceLock<u32>,
    /// Whether callers that can are answered early.
    completes_early: bool,
    /// This rank among those of its host: which device is its own, if no tensor has said it.
    local_rank: usize,
}

/// A tensor's place on a device, as it was submitted.
pub(crate) struct OnDevice {
    pub(crate) device: Arc<Device>,
    /// The caller's stream.
    pub(crate) stream: Stream,
    /// The tensor's data is ready.
    pub(crate) ready: Mark,
    /// The caller gets its answer when the tensor is on the device's list, and puts its stream behind the result.
    pub(crate) is_early: bool,
}

impl Home {
    pub(crate) fn new(registry: Arc<Registry>, local_rank: usize, completes_early: bool) -> Self {
        Self {
            registry,
            completes_early,
            ordinal: OnceLock::new(),
            local_rank,
        }
    }

    /// Notes what a tensor on `device` waits for; nothing, if it is in host memory. `can_follow`: the caller can put a stream behind the
    /// result.
    ///
    /// # Errors
    /// A device that cannot be had or is not that of the tensors before, a stream under capture.
    pub(crate) fn submit(&self, device: tensor::Device, can_follow: bool) -> Result<Option<OnDevice>, GpuError> {
        let tensor::Device::Cuda { ordinal, stream } = device else {
            return Ok(None);
        };
        let stream = Stream(stream);
        let device = self.registry.get(ordinal)?;
        let bound = *self.ordinal.get_or_init(|| ordinal);
        if bound != ordinal {
            return Err(GpuError::OtherDevice {
                bound,
                found: ordinal,
            });
        }
        if device.gpu.is_capturing(stream)? {
            return Err(GpuError::Capturing);
        }
        let ready = device.mark(stream)?;
        Ok(Some(OnDevice {
            device,
            stream,
            ready,
            is_early: can_follow && self.completes_early,
        }))
    }

    /// The device: of a rank that has had no tensor on one, and takes part in what others do, its own on this host.
    pub(crate) fn device(&self) -> Result<Arc<Device>, GpuError> {
        if let Some(&ordinal) = self.ordinal.get() {
            return self.registry.get(ordinal);
        }
        let ordinal = self.registry.ordinal_of(self.local_rank)?;
        self.registry.get(*self.ordinal.get_or_init(|| ordinal))
    }
}
