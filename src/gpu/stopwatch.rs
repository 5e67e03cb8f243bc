//! How long work on a device takes, by the device's own clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Device, GpuError, Stream, devices};

/// A stream of its own, with events around the work that is put onto it.
pub struct Stopwatch {
    pub(crate) device: Arc<Device>,
    pub(crate) stream: Stream,
}

impl Stopwatch {
    /// On device `ordinal`.
    ///
    /// # Errors
    /// A device that cannot be had.
    pub fn new(ordinal: u32) -> Result<Self, GpuError> {
        let device = devices().get(ordinal)?;
        let stream = device.gpu.make_stream()?;
        Ok(Self { device, stream })
    }

    /// Its stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The time that `work` takes, which puts it onto the stream; waits until it is done.
    ///
    /// # Errors
    /// Those of `work`; what has gone wrong on the device.
    pub fn time<E: From<GpuError>>(&self, work: impl FnOnce(Stream) -> Result<(), E>) -> Result<Duration, E> {
        let began = self.device.mark(self.stream, true)?;
        work(self.stream)?;
        let ended = self.device.mark(self.stream, true)?;
        self.device.gpu.wait(ended.event)?;
        let ns = self.device.gpu.elapsed_ns(began.event, ended.event)?;
        Ok(Duration::from_nanos(ns.max(0) as u64))
    }

    /// What the host takes to record that a tensor's data is ready, as a submission does; on
    /// average over `count` tensors.
    ///
    /// # Errors
    /// What has gone wrong on the device.
    pub fn recording_time(&self, count: u32) -> Result<Duration, GpuError> {
        let mut marks = Vec::with_capacity(count as usize);
        let began = Instant::now();
        for _ in 0..count {
            self.device.gpu.is_capturing(self.stream)?;
            marks.push(self.device.mark(self.stream, false)?);
        }
        Ok(began.elapsed() / count.max(1))
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        self.device.gpu.destroy_stream(self.stream);
    }
}
