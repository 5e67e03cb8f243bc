//! Collective operations ([`OpKind`]) and their properties.

use serde::{Deserialize, Serialize};

/// A collective operation. Discriminants are those of Horovod's `Request::RequestType`
/// (`horovod/common/message.h`), except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum OpKind {
    /// Reduces the tensors of all ranks; every rank gets the result.
    Allreduce = 0,
    /// Concatenates the rows of all ranks on every rank; the numbers of rows may differ.
    Allgather = 1,
    /// Copies a tensor from one rank to all.
    Broadcast = 2,
    /// Declares that this rank has no more data.
    Join = 3,
    /// Sends some rows from each rank to each other rank.
    Alltoall = 5,
    /// Waits for all ranks; transfers no data.
    Barrier = 6,
    /// Reduces the tensors of all ranks; each rank keeps its share of the rows.
    Reducescatter = 7,
    /// Compares a message on all ranks, to add and remove process sets. Transfers no tensor and is
    /// on no timeline.
    Agree = 8,
}

/// Name on timelines of the execution of an allreduce whose data the ranks exchanged in its
/// negotiation.
pub const ATTACHED_ALLREDUCE: &str = "ATTACHED_ALLREDUCE";

impl OpKind {
    /// Upper-case name, as in timelines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "ALLREDUCE",
            Self::Allgather => "ALLGATHER",
            Self::Broadcast => "BROADCAST",
            Self::Join => "JOIN",
            Self::Alltoall => "ALLTOALL",
            Self::Barrier => "BARRIER",
            Self::Reducescatter => "REDUCESCATTER",
            Self::Agree => "AGREE",
        }
    }

    /// Name of the negotiation phase on timelines.
    pub const fn negotiate_name(self) -> &'static str {
        match self {
            Self::Allreduce => "NEGOTIATE_ALLREDUCE",
            Self::Allgather => "NEGOTIATE_ALLGATHER",
            Self::Broadcast => "NEGOTIATE_BROADCAST",
            Self::Join => "NEGOTIATE_JOIN",
            Self::Alltoall => "NEGOTIATE_ALLTOALL",
            Self::Barrier => "NEGOTIATE_BARRIER",
            Self::Reducescatter => "NEGOTIATE_REDUCESCATTER",
            Self::Agree => "NEGOTIATE_AGREE",
        }
    }

    /// Whether ranks may submit different numbers of rows.
    pub const fn has_own_rows(self) -> bool {
        matches!(self, Self::Allgather | Self::Alltoall)
    }

    /// Whether the operation reduces elements.
    pub const fn is_reduction(self) -> bool {
        matches!(self, Self::Allreduce | Self::Reducescatter)
    }

    /// Number of values that each of `size` ranks contributes to the row counts that all ranks
    /// agree on.
    pub const fn rows_each(self, size: usize) -> usize {
        match self {
            Self::Allgather => 1,
            Self::Alltoall => size,
            _ => 0,
        }
    }

    /// Whether the response cache keeps the tensor. Broadcasts are rare and would only displace
    /// gradients.
    pub const fn is_cached(self) -> bool {
        !matches!(self, Self::Broadcast | Self::Join | Self::Agree)
    }

    /// Whether the operation transfers tensors.
    pub const fn moves_data(self) -> bool {
        !matches!(self, Self::Join | Self::Barrier | Self::Agree)
    }
}
