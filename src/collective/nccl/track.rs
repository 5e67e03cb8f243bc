//! Private stream of a rank, and waits of the host for it, which always check the peers too: work
//! on the stream may need them.

use std::sync::Arc;
use std::time::Duration;

use crate::collective::asynchronous::LaunchError;
use crate::error::{DeviceError, Error};
use crate::gpu::{Communicator, Device, GpuError, Mark, Stream};
use crate::transport::Transport;

/// Interval of checks whether a communicator is ready. Its creation takes tenths of seconds.
const POLL: Duration = Duration::from_micros(200);

/// Interval of checks whether the stream has reached a mark for which the host waits.
const SHORT_POLL: Duration = Duration::from_micros(20);

/// Private stream of a process set on this rank's device.
pub(super) struct Track {
    pub(super) device: Arc<Device>,
    pub(super) stream: Stream,
    /// This rank's number in the job.
    pub(super) rank: usize,
}

impl Track {
    pub(super) fn new(device: Arc<Device>, rank: usize) -> Result<Self, GpuError> {
        let stream = device.gpu.make_stream()?;
        Ok(Self {
            device,
            stream,
            rank,
        })
    }

    pub(super) fn error(&self, error: GpuError) -> Error {
        DeviceError::of_rank(self.rank, error).into()
    }

    pub(super) fn fatal(&self, error: GpuError) -> LaunchError {
        LaunchError::Rank(self.error(error))
    }

    /// Marks the current end of the stream.
    pub(super) fn mark(&self, is_timed: bool) -> Result<Mark, LaunchError> {
        let mark = self.device.mark(self.stream, is_timed);
        mark.map_err(|error| self.fatal(error))
    }

    /// Makes later work on the stream wait for the callers' data.
    pub(super) fn follow(&self, inputs: &[&Mark]) -> Result<(), LaunchError> {
        let followed = inputs
            .iter()
            .try_for_each(|mark| self.device.gpu.follow(self.stream, mark.event));
        followed.map_err(|error| self.fatal(error))
    }

    /// Checks a communicator for errors.
    ///
    /// # Errors
    /// An error that NCCL has found since.
    pub(super) fn check(&self, communicator: Option<Communicator>) -> Result<(), Error> {
        let ready = communicator.map(|communicator| self.device.gpu.is_ready(communicator));
        ready
            .transpose()
            .map(drop)
            .map_err(|error| self.error(error))
    }

    /// Waits until NCCL's calls have finished on the host, which usually they have. The first calls
    /// make connections, and the wait must end if a rank is lost.
    pub(super) fn settle(
        &self,
        communicator: Communicator,
        transport: &mut dyn Transport,
    ) -> Result<(), LaunchError> {
        while !self
            .device
            .gpu
            .is_ready(communicator)
            .map_err(|error| self.fatal(error))?
        {
            transport.check_peers().map_err(LaunchError::Rank)?;
            self.device.gpu.pause(POLL);
        }
        Ok(())
    }

    /// Waits until the stream has reached `mark`.
    pub(super) fn reach(
        &self,
        mark: &Mark,
        communicator: Option<Communicator>,
        transport: &mut dyn Transport,
    ) -> Result<(), LaunchError> {
        while !self
            .device
            .gpu
            .has_come(mark.event)
            .map_err(|error| self.fatal(error))?
        {
            self.check(communicator)
                .and_then(|()| transport.check_peers())
                .map_err(LaunchError::Rank)?;
            self.device.gpu.pause(SHORT_POLL);
        }
        Ok(())
    }

    /// Waits until the stream is empty. Memory is freed when the device is idle; if that needs a
    /// rank that is lost, the driver must not be the one that waits.
    pub(super) fn drain(
        &self,
        communicator: Option<Communicator>,
        transport: &mut dyn Transport,
    ) -> Result<(), LaunchError> {
        let last = self.mark(false)?;
        self.reach(&last, communicator, transport)
    }
}

impl Drop for Track {
    /// No work is in flight, or it has been aborted.
    fn drop(&mut self) {
        self.device.gpu.destroy_stream(self.stream);
    }
}
