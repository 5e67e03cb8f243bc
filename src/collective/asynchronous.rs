//! The asynchronous data interface: launches batches of tensors in device memory, and tells when
//! they have ended.
//!
//! A cycle opens an [`AsyncCollective`] on the rank's device when the first such tensor comes
//! ([`OpenDevice`]). It launches batches and goes on; [`Launched`] holds marks that can be polled,
//! and [`AsyncCollective::on_end`] reports each end on another thread. Batches run in the order in
//! which they were launched. Implementations: NCCL (`nccl`), and in tests a simulated one
//! (`simulated/device.rs`), whose batches take their time on the simulator's clock.

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
    /// The device, or that of another rank, cannot be used.
    fn open(&self, set_rank: SetRank, peers: &mut Peers<'_>)
    -> Result<Box<dyn AsyncCollective>, LaunchError>;

    /// Whether the timeline or the tuner wants to know now when things happen on the device.
    fn wants_times(&self) -> bool;
}

/// Launches batches on a device. All ranks of a set launch the same batches in the same order.
pub(crate) trait AsyncCollective: Send {
    /// Names on the timeline.
    fn activities(&self) -> &'static DeviceActivities;

    /// Memory for a result that is launched next, given back by way of the stream of `tensor`;
    /// `None` if there is none left.
    fn allocate(&self, dtype: Dtype, bytes: usize, tensor: &OnDevice) -> Option<Memory>;

    /// Launches `batch` behind `inputs`, the marks of the callers' data, and returns before it has
    /// run. `is_timed`: the times of its marks will be asked for. A hierarchical batch is waited
    /// for until its last byte has come from the other hosts.
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

    /// Looks for errors of what was launched.
    ///
    /// # Errors
    /// What has gone wrong meanwhile.
    fn check(&self) -> Result<(), Error>;

    /// Ends what was launched, whether it has run or not; its results are then unspecified.
    fn abort(&mut self);

    /// A mark behind all that was launched; `None` if the device makes none any more.
    fn last(&self) -> Option<Mark>;

    /// Waits until `is_so`, for about `patience` at most; whether it is.
    fn wait_until(&self, patience: Duration, is_so: &dyn Fn() -> bool) -> bool;
}

/// What follows the end of a batch; it can ask for the times of the batch's marks.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<(), GpuError>, &mut dyn DeviceClock) + Send>;

/// Tells on the host's clock when marks were reached.
pub(crate) trait DeviceClock {
    /// Aligns the device's time with `clock`, if that is due; false if the device does not answer
    /// in time.
    fn align(&mut self, clock: &dyn Clock) -> bool;

    /// When a mark that has been reached was; `None` if the device cannot tell.
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
    /// Of a broadcast: a rank of the set.
    pub(crate) root: usize,
}

/// This rank's number in the process set, and the set's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetRank {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// The set's other ranks, for what ranks do together before a launch.
pub(crate) struct Peers<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    /// Ranks of the job.
    pub(crate) members: &'a [usize],
    /// The inter-node stage, if allreduces are hierarchical.
    pub(crate) inter_node: Option<&'a mut dyn InterNode>,
}

/// Why a batch was not launched.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// Every rank knows, and goes on without the batch.
    Batch(Error),
    /// This rank cannot go on.
    Rank(Error),
}

/// A batch on the device, as marks in the order in which they are reached.
pub(crate) struct Launched {
    /// The batch has begun: earlier batches have ended and its data is ready.
    pub(crate) began: Arc<Mark>,
    /// Contributions are in the fusion buffer, if there was anything to copy.
    pub(crate) copied_in: Mark,
    /// Stages of a hierarchical batch.
    pub(crate) crossing: Option<Crossing>,
    /// The result is there.
    pub(crate) reduced: Mark,
    /// The result is in the outputs.
    pub(crate) ended: Arc<Mark>,
}

/// Stages of a hierarchical allreduce.
pub(crate) struct Crossing {
    /// Names of the intra-node stages before and after the inter-node stage.
    pub(crate) names: [&'static str; 2],
    /// The host's own sums are there.
    pub(crate) reduced: Mark,
    /// The first piece of this rank's share is in host memory.
    pub(crate) fetched: Mark,
    /// All have come from the other hosts.
    pub(crate) crossed: Mark,
    /// The last one is on the device.
    pub(crate) sent: Mark,
}

/// Names on the timeline.
pub(crate) struct DeviceActivities {
    /// Creation of the communicator.
    pub(crate) init: &'static str,
    pub(crate) allreduce: &'static str,
    pub(crate) allgather: &'static str,
    pub(crate) broadcast: &'static str,
    pub(crate) alltoall: &'static str,
    pub(crate) reducescatter: &'static str,
    /// The inter-node stage of a hierarchical allreduce.
    pub(crate) inter_node: &'static str,
}

impl DeviceActivities {
    /// The name of an operation; `None` for one that moves no data.
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
    fn open(&self, _: SetRank, peers: &mut Peers<'_>) -> Result<Box<dyn AsyncCollective>, LaunchError> {
        let rank = peers.members[peers.transport.rank()];
        Err(LaunchError::Rank(
            crate::error::DeviceError::of_rank(rank, GpuError::NotBuilt).into(),
        ))
    }

    fn wants_times(&self) -> bool {
        false
    }
}
