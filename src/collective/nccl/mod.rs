//! NCCL collective for tensors on GPUs: one stream and one communicator for each process set, on
//! the device of this rank.
//!
//! A batch becomes a [`Program`]: the list of its work on the stream, equal on all ranks where
//! ranks must act alike. It is *launched*, not executed: the call returns when all work is on the
//! stream, after the events of the callers' data, and a thread that waits for the last event
//! ([`watch`]) reports the end. No call here waits for the device, except for the creation of a
//! communicator and for growing fusion buffers, which ranks do together ([`state`]), and for
//! hierarchical allreduces ([`hierarchical`]).
//!
//! Results are the same on all ranks. Unlike in host memory, they are not bit for bit independent
//! of fusion: NCCL adds in an order that depends on the size of a message.

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
    /// Joins the stages of two consecutive parts of a batch.
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

/// Device memory between inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scratch {
    /// The fusion buffer: [`Batch::buffer_bytes`] bytes on every rank.
    buffer: u64,
    /// Memory for data that a rank ignores, and for data that an absent rank contributes:
    /// [`Batch::sink_bytes`] bytes.
    sink: u64,
}

impl Batch<'_> {
    /// Returns the batch's work on the stream.
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

    /// Number formats of the elements of a reduction.
    fn travel(&self, set_rank: SetRank) -> Travel {
        let travel = Travel::new(self.reduction.dtype, self.reduction.op, set_rank.size);
        self.wire_dtype
            .map_or(travel, |dtype| travel.compressed(dtype))
    }

    /// Bytes of the fusion buffer that the batch needs; equal on all ranks.
    fn buffer_bytes(&self, set_rank: SetRank) -> usize {
        match self.kind {
            OpKind::Allreduce => reduce::buffer_bytes(self, set_rank),
            OpKind::Broadcast => gather::broadcast_bytes(self),
            OpKind::Allgather => gather::allgather_bytes(self, set_rank),
            OpKind::Reducescatter => scatter::buffer_bytes(self, set_rank),
            OpKind::Alltoall | OpKind::Join | OpKind::Barrier | OpKind::Agree => 0,
        }
    }

    /// Bytes of the sink that the batch needs on this rank.
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

    /// Returns a batch of some of its tensors.
    fn part(&self, tensors: std::ops::Range<usize>) -> Batch<'_> {
        let each = self.bytes.len() / self.spans.len().max(1);
        Batch {
            spans: &self.spans[tensors.clone()],
            bytes: &self.bytes[tensors.start * each..tensors.end * each],
            ..*self
        }
    }

    /// Splits the batch into parts that need at most `limit` bytes of the fusion buffer each, as
    /// far as single tensors allow.
    fn parts(&self, set_rank: SetRank, limit: usize) -> Vec<std::ops::Range<usize>> {
        let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
        for tensor in 0..self.spans.len() {
            let with_it = |part: &std::ops::Range<usize>| part.start..tensor + 1;
            let fits = |part: &std::ops::Range<usize>| {
                self.part(with_it(part)).buffer_bytes(set_rank) <= limit
            };
            match parts.last_mut() {
                Some(last) if fits(last) => *last = with_it(last),
                _ => parts.push(tensor..tensor + 1),
            }
        }
        parts
    }
}

/// Activity names of Horovod.
static ACTIVITIES: DeviceActivities = DeviceActivities {
    init: "INIT_NCCL",
    allreduce: "NCCL_ALLREDUCE",
    allgather: "NCCL_ALLGATHER",
    broadcast: "NCCL_BCAST",
    alltoall: "NCCL_ALLTOALL",
    reducescatter: "NCCL_REDUCESCATTER",
};
