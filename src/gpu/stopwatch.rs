//! Stopwatch: durations of work on a device, by the device's clock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Device, GpuError, Stream, devices};

/// A private stream, with events around the measured work.
pub struct Stopwatch {
    pub(crate) device: Arc<Device>,
    pub(crate) stream: Stream,
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopwatch")
            .field("device", &self.device.ordinal)
            .finish_non_exhaustive()
    }
}

impl Stopwatch {
    /// Makes a stopwatch on device `ordinal`.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn new(ordinal: u32) -> Result<Self, GpuError> {
        let device = devices().get(ordinal)?;
        let stream = device.gpu.make_stream()?;
        Ok(Self { device, stream })
    }

    /// Its stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Returns the duration of the work that `work` puts on the stream; waits until it is done.
    ///
    /// # Errors
    /// Those of `work`; the device has failed.
    pub fn time<E: From<GpuError>>(
        &self,
        work: impl FnOnce(Stream) -> Result<(), E>,
    ) -> Result<Duration, E> {
        let began = self.device.mark(self.stream, true)?;
        work(self.stream)?;
        let ended = self.device.mark(self.stream, true)?;
        self.device.gpu.wait(ended.event)?;
        let ns = self.device.gpu.elapsed_ns(began.event, ended.event)?;
        Ok(Duration::from_nanos(ns.max(0) as u64))
    }

    /// Time in which the host records that a tensor's data is ready, as a submission does; the
    /// average over `count` tensors.
    ///
    /// # Errors
    /// The device has failed.
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
