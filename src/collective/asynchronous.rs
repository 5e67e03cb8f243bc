//! Asynchronous collective interface: launches batches of tensors in device memory, and reports
//! their ends.
//!
//! A cycle opens an [`AsyncCollective`] on the rank's device for the first GPU tensor
//! ([`OpenDevice`]). It launches batches without waiting; [`Launched`] holds marks that can be
//! polled, and [`AsyncCollective::on_end`] reports each end on another thread. Batches run in the
//! order in which they were launched. Implementations: NCCL (`nccl`), and in tests a simulated one
//! (`simulated/device.rs`), whose batches take time on the simulator's clock.

use std::sync::Arc;
use std::time::Duration;

use super::{InterNode, Reduction};
use crate::clock::{Clock, Nanos};
use crate::delivery::Memory;
use crate::device::{Mark, OnDevice};
use crate::error::{Error, GpuError};
use crate::negotiation::OpKind;
use crate::tensor::{Dtype, Span};
use crate::transport::Transport;

/// The device of a process set on this rank.
pub(crate) trait OpenDevice: Send + Sync {
    /// Opens the set's collective on this rank's device, together with the set's other ranks.
    ///
    /// # Errors
    /// The device of this rank, or that of another, cannot be used.
    fn open(
        &self,
        set_rank: SetRank,
        peers: &mut Peers<'_>,
    ) -> Result<Box<dyn AsyncCollective>, LaunchError>;

    /// Whether the timeline or the tuner wants times of the device now.
    fn wants_times(&self) -> bool;
}

/// Launches batches on a device. All ranks of a set launch the same batches in the same order.
pub(crate) trait AsyncCollective: Send {
    /// Activity names for the timeline.
    fn activities(&self) -> &'static DeviceActivities;

    /// Allocates memory for a result that is launched next, and that is freed in the order of
    /// `tensor`'s stream; `None` if no memory is left.
    fn allocate(&self, dtype: Dtype, bytes: usize, tensor: &OnDevice) -> Option<Memory>;

    /// Launches `batch` after `inputs`, the marks of the callers' data, and returns before it has
    /// run. `is_timed`: the times of its marks will be requested. A hierarchical batch returns when
    /// its last byte has arrived from the other hosts.
    ///
    /// # Errors
    /// See [`LaunchError`].
    fn launch(
        &mut self,
        batch: &Batch<'_>,
        inputs: &[&Mark],
        is_timed: bool,
        peers: &mut Peers<'_>,
    ) -> Result<Launched, LaunchError>;

    /// Calls `then` on another thread when `ended` is reached, or the device has failed; in the
    /// order of these calls.
    fn on_end(&mut self, ended: Arc<Mark>, then: OnEnd);

    /// Checks the launched batches for errors.
    ///
    /// # Errors
    /// The device or the collective has failed.
    fn check(&self) -> Result<(), Error>;

    /// Aborts all launched batches; their results are then unspecified.
    fn abort(&mut self);

    /// Returns a mark after all launched batches; `None` if the device cannot make one any more.
    fn last(&self) -> Option<Mark>;

    /// Waits until `is_so`, at most about `patience`; returns whether it is.
    fn wait_until(&self, patience: Duration, is_so: &dyn Fn() -> bool) -> bool;
}

/// Callback at the end of a batch; it can ask for the times of the batch's marks.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<(), GpuError>, &mut dyn DeviceClock) + Send>;

/// Converts times of marks to the host's clock.
pub(crate) trait DeviceClock {
    /// Aligns the device's time with `clock`, if that is due; false if the device does not answer
    /// in time.
    fn align(&mut self, clock: &dyn Clock) -> bool;

    /// Returns the time of a mark that has been reached; `None` if the device has no time for it.
    fn time_of(&self, mark: &Mark) -> Option<Nanos>;
}

/// A batch of tensors in device memory, as [`super::Collective`] describes batches.
pub(crate) struct Batch<'a> {
    pub(crate) kind: OpKind,
    pub(crate) spans: &'a [Span],
    /// Tables of lengths; see [`super::Collective`].
    pub(crate) bytes: &'a [usize],
    pub(crate) reduction: Reduction,
    /// Data type in which elements of a reduction are sent, if it is not their own.
    pub(crate) wire_dtype: Option<Dtype>,
    /// Root of a broadcast: a rank of the set.
    pub(crate) root: usize,
}

/// This rank's set rank, and the set's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetRank {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// Transport to the set's other ranks, for exchanges before a launch.
pub(crate) struct Peers<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    /// Job ranks of the set.
    pub(crate) members: &'a [usize],
    /// The inter-node stage, if allreduces are hierarchical.
    pub(crate) inter_node: Option<&'a mut dyn InterNode>,
}

/// Reason why a batch was not launched.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// All ranks have the error, and continue without the batch.
    Batch(Error),
    /// This rank cannot continue.
    Rank(Error),
}

impl LaunchError {
    /// Adds the name of the first tensor on a device, for which the device was opened: a rank that
    /// has joined submitted none itself.
    pub(crate) fn of_first(self, tensor: &str) -> Self {
        match self {
            Self::Rank(Error::Device(error)) => Self::Rank(error.of_tensor(tensor.into()).into()),
            other => other,
        }
    }
}

/// Launched batch: its marks, in the order in which they are reached.
pub(crate) struct Launched {
    /// The batch has begun: earlier batches have ended and its data is ready.
    pub(crate) began: Arc<Mark>,
    /// Contributions are in the fusion buffer, if any were copied.
    pub(crate) copied_in: Mark,
    /// Stages of a hierarchical batch.
    pub(crate) crossing: Option<Crossing>,
    /// The result is in the fusion buffer, or in the output.
    pub(crate) reduced: Mark,
    /// The result is in the outputs.
    pub(crate) ended: Arc<Mark>,
}

/// Stages of a hierarchical allreduce.
pub(crate) struct Crossing {
    /// Activity names of the intra-node stages before and after the inter-node stage.
    pub(crate) names: [&'static str; 2],
    /// Activity name of the inter-node stage.
    pub(crate) inter_node: &'static str,
    /// The host's own sums are complete.
    pub(crate) reduced: Mark,
    /// The first piece of this rank's share is in host memory.
    pub(crate) fetched: Mark,
    /// All pieces have arrived from the other hosts.
    pub(crate) crossed: Mark,
    /// The last piece is on the device.
    pub(crate) sent: Mark,
}

/// Activity names for the timeline.
pub(crate) struct DeviceActivities {
    /// Creation of the communicator.
    pub(crate) init: &'static str,
    pub(crate) allreduce: &'static str,
    pub(crate) allgather: &'static str,
    pub(crate) broadcast: &'static str,
    pub(crate) alltoall: &'static str,
    pub(crate) reducescatter: &'static str,
}

impl DeviceActivities {
    /// Returns the activity name of an operation; `None` for one that moves no data.
    pub(crate) fn name(&self, kind: OpKind) -> Option<&'static str> {
        match kind {
            OpKind::Allreduce => Some(self.allreduce),
            OpKind::Allgather => Some(self.allgather),
            OpKind::Broadcast => Some(self.broadcast),
            OpKind::Alltoall => Some(self.alltoall),
            OpKind::Reducescatter => Some(self.reducescatter),
            OpKind::Join | OpKind::Barrier | OpKind::Agree => None,
        }
    }
}

/// For tests whose tensors are all in host memory.
#[cfg(test)]
pub(crate) struct NoDevice;

#[cfg(test)]
impl OpenDevice for NoDevice {
    fn open(
        &self,
        _: SetRank,
        peers: &mut Peers<'_>,
    ) -> Result<Box<dyn AsyncCollective>, LaunchError> {
        let rank = peers.members[peers.transport.rank()];
        Err(LaunchError::Rank(
            crate::error::DeviceError::of_rank(rank, GpuError::NotBuilt).into(),
        ))
    }

    fn wants_times(&self) -> bool {
        false
    }
}
