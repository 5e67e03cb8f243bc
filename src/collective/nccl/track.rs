//! A rank's private stream, and the waiting that is done for it on the host: never without a look at the peers, for what is on the stream
//! may need them.

use std::sync::Arc;
use std::time::Duration;

use crate::collective::asynchronous::LaunchError;
use crate::error::{DeviceError, Error};
use crate::gpu::{Communicator, Device, GpuError, Mark, Stream};
use crate::transport::Transport;

/// How often it is asked whether a communicator is there. Making one takes tenths of seconds.
const POLL: Duration = Duration::from_micros(200);

/// How often it is asked whether the stream has come to something that the host goes on with.
const SHORT_POLL: Duration = Duration::from_micros(20);

/// See the module.
pub(super) struct Track {
    pub(super) device: Arc<Device>,
    pub(super) stream: Stream,
    /// This rank in the job.
    pub(super) rank: usize,
}

impl Track {
    pub(super) fn new(device: Arc<Device>, rank: usize) -> Result<Self, GpuError> {
        let stream = device.gpu.make_stream()?;
        Ok(Self { device, stream, rank })
    }

    pub(super) fn error(&self, error: GpuError) -> Error {
        DeviceError::of_rank(self.rank, error).into()
    }

    pub(super) fn fatal(&self, error: GpuError) -> LaunchError {
        LaunchError::Rank(self.error(error))
    }

    /// Marks the point that the stream has come to.
    pub(super) fn mark(&self, is_timed: bool) -> Result<Mark, LaunchError> {
        let mark = self.device.mark(self.stream, is_timed);
        mark.map_err(|error| self.fatal(error))
    }

    /// Puts what follows behind the callers' data.
    pub(super) fn follow(&self, inputs: &[&Mark]) -> Result<(), LaunchError> {
        let followed = inputs
            .iter()
            .try_for_each(|mark| self.device.gpu.follow(self.stream, mark.event));
        followed.map_err(|error| self.fatal(error))
    }

    /// Whether all is well with a communicator.
    ///
    /// # Errors
    /// What NCCL has found out meanwhile.
    pub(super) fn check(&self, communicator: Option<Communicator>) -> Result<(), Error> {
        let ready = communicator.map(|communicator| self.device.gpu.is_ready(communicator));
        ready.transpose().map(drop).map_err(|error| self.error(error))
    }

    /// Waits until NCCL has done on the host what it was asked to: mostly it has. The first calls make connections, and a rank that does
    /// not come must not be waited for.
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

    /// Waits until the stream has come to `mark`.
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

    /// Waits until nothing is on the stream: memory is given back when the device is idle, and where that waits for a rank that is
    /// lost, it must not be the driver that does so.
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
    /// Nothing is in flight, or it has been aborted.
    fn drop(&mut self) {
        self.device.gpu.destroy_stream(self.stream);
    }
}
