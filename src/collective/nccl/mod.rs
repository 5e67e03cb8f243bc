//! Tensors on GPUs: one stream and one NCCL communicator for each process set, on the device of this rank.
//!
//! A batch becomes a [`Program`]: a pure list of what goes onto the stream, the same on all ranks where ranks must do the same. It is
//! *launched*, not executed: this returns when all of it is on the stream, behind the events that say when the callers' data is
//! ready, and `cycle/device.rs` hears from the last event when it is over. So no call here waits for the device, but for
//! making a communicator and for fusion buffers that grow, which ranks do together ([`state`]), and for hierarchical
//! allreduces ([`hierarchical`]).
//!
//! Results are the same on all ranks, but not, as in host memory, bit for bit whatever the fusion: NCCL adds in an order that
//! depends on the size of a message.

use std::sync::Arc;

use super::{InterNode, Reduction};
use crate::error::{DeviceError, Error};
use crate::gpu::{GpuError, Mark};
use crate::negotiation::OpKind;
use crate::tensor::{Dtype, Span};
use crate::transport::Transport;

mod exchange;
mod gather;
mod hierarchical;
mod layout;
#[doc(hidden)]
pub mod measure;
mod number;
mod program;
mod reduce;
mod scatter;
mod state;
#[cfg(test)]
mod tests;
mod track;

use number::Travel;
use program::Program;
pub(crate) use state::{NcclCollective, Trouble};

/// A batch of tensors on the GPU, as [`super::Collective`] describes batches.
pub(crate) struct Batch<'a> {
    pub(crate) kind: OpKind,
    pub(crate) spans: &'a [Span],
    /// Tables of lengths; see [`super::Collective`].
    pub(crate) bytes: &'a [usize],
    pub(crate) reduction: Reduction,
    /// Data type in which elements of a reduction are sent, if it is not their own or the one that NCCL requires.
    pub(crate) wire_dtype: Option<Dtype>,
    /// Of a broadcast: a place in the set.
    pub(crate) root: usize,
}

/// This rank's number in the process set, and the set's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetRank {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// A batch on the stream.
pub(crate) struct Launched {
    /// The stream has come to it, and the data is ready.
    pub(crate) began: Arc<Mark>,
    /// Contributions have been copied to the fusion buffer, if there was anything to copy.
    pub(crate) copied_in: Mark,
    /// The stages in between, if it was hierarchical.
    pub(crate) crossing: Option<Crossing>,
    /// The result is there.
    pub(crate) reduced: Mark,
    /// All is over.
    pub(crate) ended: Arc<Mark>,
}

/// Stages of a hierarchical allreduce.
pub(crate) struct Crossing {
    /// What NCCL did within the host before and after, in Horovod's words.
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

impl Crossing {
    /// Those of two parts of a batch, one after the other, as one.
    fn joined(first: Option<Self>, then: Option<Self>) -> Option<Self> {
        match (first, then) {
            (Some(first), Some(then)) => Some(Self {
                crossed: then.crossed,
                sent: then.sent,
                ..first
            }),
            (first, then) => first.or(then),
        }
    }
}

/// Memory of the device for what is between inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scratch {
    /// The fusion buffer: of [`Batch::buffer_bytes`], on every rank.
    buffer: u64,
    /// Where a rank puts what it has no use for, and finds what it has none of: of [`Batch::sink_bytes`].
    sink: u64,
}

impl Batch<'_> {
    /// What goes onto the stream.
    fn program(&self, set_rank: SetRank, scratch: Scratch) -> Program {
        match self.kind {
            OpKind::Allreduce => reduce::program(self, set_rank, scratch),
            OpKind::Broadcast => gather::broadcast(self, set_rank, scratch),
            OpKind::Allgather => gather::allgather(self, set_rank, scratch),
            OpKind::Alltoall => gather::alltoall(self, set_rank, scratch),
            OpKind::Reducescatter => scatter::program(self, set_rank, scratch),
            OpKind::Join | OpKind::Barrier | OpKind::Agree => Program::default(),
        }
    }

    /// How the elements of a reduction travel.
    fn travel(&self, set_rank: SetRank) -> Travel {
        let travel = Travel::new(self.reduction.dtype, self.reduction.op, set_rank.size);
        self.wire_dtype.map_or(travel, |dtype| travel.compressed(dtype))
    }

    /// What it wants of the fusion buffer; the same on all ranks.
    fn buffer_bytes(&self, set_rank: SetRank) -> usize {
        match self.kind {
            OpKind::Allreduce => reduce::buffer_bytes(self, set_rank),
            OpKind::Broadcast => gather::broadcast_bytes(self),
            OpKind::Allgather => gather::allgather_bytes(self, set_rank),
            OpKind::Reducescatter => scatter::buffer_bytes(self, set_rank),
            OpKind::Alltoall | OpKind::Join | OpKind::Barrier | OpKind::Agree => 0,
        }
    }

    /// What it wants of the sink on this rank.
    fn sink_bytes(&self, set_rank: SetRank) -> usize {
        match self.kind {
            OpKind::Allreduce => reduce::sink_bytes(self, set_rank),
            OpKind::Broadcast => gather::broadcast_sink(self),
            OpKind::Allgather => gather::allgather_sink(self, set_rank),
            OpKind::Alltoall => gather::alltoall_sink(self, set_rank),
            OpKind::Reducescatter => scatter::sink_bytes(self, set_rank),
            OpKind::Join | OpKind::Barrier | OpKind::Agree => 0,
        }
    }

    /// Some of its tensors, by themselves.
    fn part(&self, tensors: std::ops::Range<usize>) -> Batch<'_> {
        let each = self.bytes.len() / self.spans.len().max(1);
        Batch {
            spans: &self.spans[tensors.clone()],
            bytes: &self.bytes[tensors.start * each..tensors.end * each],
            ..*self
        }
    }

    /// The batch in parts that want no more than `limit` bytes of the fusion buffer each, as far as one tensor can do with it.
    fn parts(&self, set_rank: SetRank, limit: usize) -> Vec<std::ops::Range<usize>> {
        let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
        for tensor in 0..self.spans.len() {
            let with_it = |part: &std::ops::Range<usize>| part.start..tensor + 1;
            let fits =
                |part: &std::ops::Range<usize>| self.part(with_it(part)).buffer_bytes(set_rank) <= limit;
            match parts.last_mut() {
                Some(last) if fits(last) => *last = with_it(last),
                _ => parts.push(tensor..tensor + 1),
            }
        }
        parts
    }
}

/// An error of this rank's GPU.
pub(crate) fn gpu_error(rank: usize, error: GpuError) -> Error {
    Error::Device(DeviceError::Rank {
        rank,
        source: Arc::new(error),
    })
}

/// The set's ranks, for what they do together.
pub(crate) struct Company<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    /// Ranks of the job.
    pub(crate) members: &'a [usize],
    /// The inter-node stage, if allreduces are hierarchical.
    pub(crate) inter_node: Option<&'a mut dyn InterNode>,
}

/// Where the callers' data comes about.
pub(crate) struct Awaited<'a> {
    /// For each of the callers' streams, that which comes last.
    pub(crate) marks: &'a [&'a Mark],
}
