//! The collective operations.

use serde::{Deserialize, Serialize};

/// The operations. Discriminants are those of Horovod's `Request::RequestType` (`horovod/common/message.h`), except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum OpKind {
    /// Combine over all ranks, result everywhere.
    Allreduce = 0,
    /// Everyone's rows one after another, everywhere; the numbers of rows may differ.
    Allgather = 1,
    /// Copy from one rank to all.
    Broadcast = 2,
    /// This rank has no more data.
    Join = 3,
    /// Some rows from each rank to each other.
    Alltoall = 5,
    /// Wait for all; moves nothing.
    Barrier = 6,
    /// Combine over all ranks, each keeps its share of the rows.
    Reducescatter = 7,
    /// All ranks say the same: how process sets are added and removed. Moves nothing and is on no timeline.
    Agree = 8,
}

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

    /// Name of the negotiation phase in timelines.
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

    /// Whether ranks may bring different numbers of rows.
    pub const fn has_own_rows(self) -> bool {
        matches!(self, Self::Allgather | Self::Alltoall)
    }

    /// Whether elements are combined.
    pub const fn is_reduction(self) -> bool {
        matches!(self, Self::Allreduce | Self::Reducescatter)
    }

    /// Numbers that each of `size` ranks contributes to the rows that all ranks agree on.
    pub const fn rows_each(self, size: usize) -> usize {
        match self {
            Self::Allgather => 1,
            Self::Alltoall => size,
            _ => 0,
        }
    }

    /// Whether the response cache keeps it. Broadcasts are rare and would only take the room of gradients.
    pub const fn is_cached(self) -> bool {
        !matches!(self, Self::Broadcast | Self::Join | Self::Agree)
    }

    /// Whether tensors travel.
    pub const fn moves_data(self) -> bool {
        !matches!(self, Self::Join | Self::Barrier | Self::Agree)
    }
}
