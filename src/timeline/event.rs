//! Events of a recording: types shared by the cycle, the ring and the writers of file formats.

use crate::clock::Nanos;
use crate::collective::Phases;
use crate::negotiation::OpKind;
use crate::tensor::Dtype;

/// A tensor registered with a [`Track`](super::Track), which numbers its own from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorId(pub(super) u32);

impl TensorId {
    /// Stands for every tensor beyond [`TENSORS_MAX`]: its events are left out.
    pub(super) const UNRECORDED: Self = Self(0);

    /// The number, to be kept beside the tensor.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The tensor with a number kept from [`number`](Self::number).
    pub(crate) fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Tensors that one track, and one file, can hold. Names with counters in them never end; a viewer gives up long
/// before this.
pub(crate) const TENSORS_MAX: u32 = 1 << 20;

/// Something that happened inside an operation, such as `SHM_ALLREDUCE`. The activities of one operation come in
/// order and do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Its name in the file: one of Horovod's (`horovod/common/common.h`) or `SHM_*`.
    pub name: &'static str,
    /// When it began.
    pub began: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// Whether it is the one that the batch's [`Phases`] were measured in.
    pub measured: bool,
}

/// What the members of one executed batch have in common.
#[derive(Clone, Copy, Debug)]
pub struct BatchRecord<'a> {
    /// The operation.
    pub op: OpKind,
    /// When the ranks had agreed on what the cycle moves.
    pub agreed: Nanos,
    /// When its execution began.
    pub began: Nanos,
    /// When its results were in place.
    pub ended: Nanos,
    /// What happened in between.
    pub activities: &'a [Activity],
    /// Where the collective's time went.
    pub phases: Phases,
}

/// One tensor of an executed batch.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The tensor.
    pub tensor: TensorId,
    /// When this rank submitted it; `None` if it has not: it has joined.
    pub submitted: Option<Nanos>,
    /// Element type and shape of the output; `None` where there is none (a barrier, the root of a broadcast).
    pub output: Option<(Dtype, &'a [usize])>,
}
