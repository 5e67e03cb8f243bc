//! Events of a recording: types shared by the cycle, the ring and the writers of file formats.

use crate::clock::Nanos;
use crate::collective::Phases;
use crate::negotiation::OpKind;
use crate::tensor::Dtype;

/// Tensor registered with a [`Track`](super::Track); each track numbers its tensors from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorId(pub(super) u32);

impl TensorId {
    /// Any tensor beyond [`TENSORS_MAX`]: its events are not recorded.
    pub(super) const UNRECORDED: Self = Self(0);

    /// Returns the number, to be stored with the tensor.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns the tensor of a number returned by [`number`](Self::number).
    pub(crate) fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Most tensors of one track, and of one file. A job whose names contain counters creates new ones
/// without end; a viewer fails long before this number.
pub(crate) const TENSORS_MAX: u32 = 1 << 20;

/// Part of an operation, such as `SHM_ALLREDUCE`. The activities of one operation are in order and
/// do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Name in the file: one of Horovod's (`horovod/common/common.h`) or `SHM_*`.
    pub name: &'static str,
    /// Start of the activity.
    pub began: Nanos,
    /// End of the activity.
    pub ended: Nanos,
    /// Whether the batch's [`Phases`] were measured in this activity.
    pub measured: bool,
}

/// Data that the members of one executed batch share.
#[derive(Clone, Copy, Debug)]
pub struct BatchRecord<'a> {
    /// Operation of the batch.
    pub op: OpKind,
    /// Time at which the ranks agreed on the tensors of the cycle.
    pub agreed: Nanos,
    /// Start of the execution.
    pub began: Nanos,
    /// Time at which the results were in place.
    pub ended: Nanos,
    /// Activities of the batch.
    pub activities: &'a [Activity],
    /// Time of the collective by phase.
    pub phases: Phases,
}

/// One tensor of an executed batch.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Number of the tensor.
    pub tensor: TensorId,
    /// Time at which this rank submitted it; `None` if it has joined and did not.
    pub submitted: Option<Nanos>,
    /// Element type and shape of the output; `None` where there is none (a barrier, the root of a
    /// broadcast).
    pub output: Option<(Dtype, &'a [usize])>,
}
