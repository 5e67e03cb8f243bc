//! Device binding: the GPU that a process set uses on this rank, which is the device of its first
//! GPU tensor.

use std::sync::{Arc, OnceLock};

use super::{Device, GpuError, Registry, Stream};
use crate::device::OnDevice;
use crate::tensor;

/// Device of a process set on this rank; set by its first GPU tensor.
pub(crate) struct DeviceBinding {
    registry: Arc<Registry>,
    ordinal: OnceLock<u32>,
    /// Whether tickets complete at the launch, for callers whose streams can wait for the result.
    answers_early: bool,
    /// Whether timestamps of device events are wanted now (by the timeline or the tuner).
    wants_times: Box<dyn Fn() -> bool + Send + Sync>,
    /// This rank's local rank: selects the device if no tensor has done so.
    local_rank: usize,
}

impl DeviceBinding {
    pub(crate) fn new(registry: Arc<Registry>, local_rank: usize) -> Self {
        Self {
            registry,
            answers_early: false,
            wants_times: Box::new(|| true),
            ordinal: OnceLock::new(),
            local_rank,
        }
    }

    /// Sets whether tickets complete at the launch, for callers whose streams can wait for the
    /// result.
    pub(crate) fn answering_early(self, answers_early: bool) -> Self {
        Self {
            answers_early,
            ..self
        }
    }

    /// Sets the function that tells whether times of the device are wanted.
    pub(crate) fn telling_times(
        self,
        wants_times: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let wants_times = Box::new(wants_times);
        Self {
            wants_times,
            ..self
        }
    }

    /// Whether the timeline or the tuner wants times of the device now.
    pub(crate) fn wants_times(&self) -> bool {
        (self.wants_times)()
    }

    /// Records the mark of a tensor's data on `device`; `None` if it is in host memory.
    /// `can_follow`: the caller's stream can wait for the result.
    ///
    /// # Errors
    /// The device cannot be opened or is not that of earlier tensors, or the stream is capturing a
    /// graph.
    pub(crate) fn submit(
        &self,
        device: tensor::Device,
        can_follow: bool,
    ) -> Result<Option<OnDevice>, GpuError> {
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
        let ready = device.mark(stream, self.wants_times())?;
        Ok(Some(OnDevice {
            ordinal,
            stream,
            ready,
            is_early: can_follow && self.answers_early,
        }))
    }

    /// Returns the device. If this rank had no GPU tensor and takes part in another rank's
    /// operation, it is the one that its local rank selects.
    pub(crate) fn device(&self) -> Result<Arc<Device>, GpuError> {
        if let Some(&ordinal) = self.ordinal.get() {
            return self.registry.get(ordinal);
        }
        let ordinal = self.registry.ordinal_of(self.local_rank)?;
        self.registry.get(*self.ordinal.get_or_init(|| ordinal))
    }
}
