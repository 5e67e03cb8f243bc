//! Device binding: the GPU that a process set uses on this rank, which is the device of its first GPU tensor.

use std::sync::{Arc, OnceLock};

use super::{Device, GpuError, Registry, Stream};
use crate::device::OnDevice;
use crate::tensor;

/// See the module.
pub(crate) struct DeviceBinding {
    registry: Arc<Registry>,
    ordinal: OnceLock<u32>,
    /// Whether callers that can are answered early.
    answers_early: bool,
    /// Whether timestamps of device events are wanted now (by the timeline or the tuner).
    wants_times: Box<dyn Fn() -> bool + Send + Sync>,
    /// This rank among those of its host: which device is its own, if no tensor has said it.
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

    /// The same, where callers that can put a stream behind the result are answered before it is there, or not.
    pub(crate) fn answering_early(self, answers_early: bool) -> Self {
        Self {
            answers_early,
            ..self
        }
    }

    /// The same, where nobody wants to know times unless `wants_times` says so.
    pub(crate) fn telling_times(self, wants_times: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let wants_times = Box::new(wants_times);
        Self { wants_times, ..self }
    }

    /// Whether somebody wants to know now when things happen on the device.
    pub(crate) fn wants_times(&self) -> bool {
        (self.wants_times)()
    }

    /// Notes what a tensor on `device` waits for; nothing, if it is in host memory. `can_follow`: the caller can put a stream behind the
    /// result.
    ///
    /// # Errors
    /// A device that cannot be had or is not that of the tensors before, a stream under capture.
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

    /// The device: of a rank that has had no tensor on one, and takes part in what others do, its own on this host.
    pub(crate) fn device(&self) -> Result<Arc<Device>, GpuError> {
        if let Some(&ordinal) = self.ordinal.get() {
            return self.registry.get(ordinal);
        }
        let ordinal = self.registry.ordinal_of(self.local_rank)?;
        self.registry.get(*self.ordinal.get_or_init(|| ordinal))
    }
}
