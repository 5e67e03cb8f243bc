//! Names of the operations between hosts on the timeline: those of Horovod, with the name of the
//! library that moves the bytes.

use crate::collective::{Activities, Stages};

/// Names of flat and of hierarchical operations.
pub(super) struct Names {
    pub(super) flat: Activities,
    /// The successive parts of a batch have Horovod's names. Reductions within hosts use shared
    /// memory here and NCCL in Horovod. There is no `ALLOCATE_SHARED_BUFFER`: the ring is allocated
    /// at the start.
    pub(super) hierarchical: Activities,
}

macro_rules! names {
    ($carrier:literal) => {{
        let flat = Activities {
            allreduce: Stages::streamed(concat!($carrier, "_ALLREDUCE")),
            allgather: Stages::streamed(concat!($carrier, "_ALLGATHER")),
            broadcast: Stages::streamed(concat!($carrier, "_BCAST")),
            alltoall: Stages::streamed(concat!($carrier, "_ALLTOALL")),
            reducescatter: Stages::streamed(concat!($carrier, "_REDUCESCATTER")),
        };
        Names {
            hierarchical: Activities {
                allreduce: Stages {
                    lead_in: "SHM_REDUCESCATTER",
                    collective: concat!($carrier, "_ALLREDUCE"),
                    tail_out: "SHM_ALLGATHER",
                },
                allgather: Stages {
                    lead_in: "MEMCPY_IN_SHARED_BUFFER",
                    collective: concat!($carrier, "_CROSS_ALLGATHER"),
                    tail_out: "MEMCPY_OUT_FUSION_BUFFER",
                },
                ..flat
            },
            flat,
        }
    }};
}

/// Names over MPI.
pub(super) static MPI: Names = names!("MPI");
/// Names over TCP.
pub(super) static TCP: Names = names!("TCP");
