//! Tensors on GPUs: one stream and one NCCL communicator for each process set, on the device of
//! this rank.
//!
//! A batch becomes a [`Program`]: a pure list of what goes onto the stream, the same on all ranks
//! where ranks must do the same. It is *launched*, not executed: this returns when all of it is on
//! the stream, behind the events that say when the callers' data is ready, and a thread that waits
//! for the last event ([`watch`]) reports when it is over. So no call here waits for the device,
//! but for making a communicator and for fusion buffers that grow, which ranks do together
//! ([`state`]), and for hierarchical allreduces ([`hierarchical`]).
//!
//! Results are the same on all ranks, but not, as in host memory, bit for bit whatever the fusion:
//! NCCL adds in an order that depends on the size of a message.

use super::asynchronous::{Batch, Crossing, DeviceActivities, SetRank};
use crate::negotiation::OpKind;

mod anchor;
mod exchange;
mod gather;
mod hierarchical;
mod number;
mod program;
mod reduce;
mod scatter;
mod state;
#[cfg(test)]
mod tests;
mod track;
mod watch;

use number::Travel;
use program::Program;

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
    /// Where a rank puts what it has no use for, and finds what it has none of: of
    /// [`Batch::sink_bytes`].
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

    /// The batch in parts that want no more than `limit` bytes of the fusion buffer each, as far as
    /// one tensor can do with it.
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

/// Horovod's names.
static ACTIVITIES: DeviceActivities = DeviceActivities {
    init: "INIT_NCCL",
    allreduce: "NCCL_ALLREDUCE",
    allgather: "NCCL_ALLGATHER",
    broadcast: "NCCL_BCAST",
    alltoall: "NCCL_ALLTOALL",
    reducescatter: "NCCL_REDUCESCATTER",
    inter_node: "MPI_ALLREDUCE",
};
