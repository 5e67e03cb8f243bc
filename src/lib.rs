//! Ronde: collective communication for data-parallel training, with automatically tuned tensor
//! fusion.
//!
//! Every rank submits its gradients as they become ready. A background thread negotiates with the
//! other ranks which tensors are ready on all of them (*negotiation*). It packs these tensors up to
//! the *fusion threshold*, allreduces each batch and returns the results. The *cycle time* is the
//! shortest time between two such cycles, unless all ranks are ready earlier. Horovod's variables
//! `HOROVOD_*` have the same meaning here, and `HOROVOD_AUTOTUNE=1` finds better values while the
//! job runs.
//!
//! ```
//! use ronde::{Context, ReduceOp};
//!
//! // In a job: `Context::from_env()`, in every process that `ronde run -np 4 -- …` has started.
//! let context = Context::builder().alone().build()?;
//! let handles: Vec<_> = (0..3)
//!     .map(|layer| {
//!         let name = format!("layer{layer}");
//!         context.allreduce(&name, vec![0.5f32; 1000], ReduceOp::Average)
//!     })
//!     .collect::<Result<_, _>>()?;
//! for handle in handles {
//!     let gradient: Vec<f32> = handle.wait()?;
//!     assert_eq!(gradient, [0.5; 1000]);
//! }
//! # Ok::<(), ronde::Error>(())
//! ```
//!
//! # Modules
//! - [`Context`] and its process sets and handles: [`context`]. Settings read at the start:
//!   [`knobs`]; those that change while a job runs: [`settings`]. Tensors: [`tensor`]. Errors:
//!   [`error`].
//! - Private: `cycle` (one step: collect, negotiate, plan, execute, finish), `negotiation`;
//!   `clock`, `transport` (control) and `collective` (data), each a trait with a simulated
//!   implementation; `timeline` (recording), `autotune`, `prometheus` (metrics), `dash` (live
//!   page).
//! - Other packages: `ronde_job` (fusion plan, replay), `ronde_tuner`, `ronde_trace` (readers and
//!   analysis of timelines), `ronde_lab` (benchmark, sweep, review), `ronde_cli` (the program
//!   `ronde`).
//!
//! # Features
//! `dash`: the live page of a job and its server, 0.6 MB. `nccl`: tensors on NVIDIA GPUs; needs no
//! CUDA to build. Both are on by default.
//!
//! Linux only. All ranks get the same bits, whatever the fusion and the order of arrival.

// Types of programs that hold these derive `Debug`, and `unwrap_err` needs it.
#![warn(missing_debug_implementations)]

mod adasum;
mod autotune;
mod backend;
mod buffer;
mod clock;
mod collective;
mod command;
pub mod context;
mod cycle;
mod dash;
mod delivery;
mod device;
pub mod error;
mod gpu;
mod hosts;
mod identity;
pub mod knobs;
mod listening;
mod logging;
mod mpi;
mod negotiation;
mod observer;
mod prometheus;
mod queue;
mod rank_times;
mod ready;
mod rendezvous;
mod settings_cell;
mod shm;
#[cfg(test)]
mod simulation;
mod sync;
mod telemetry;
pub mod tensor;
mod timeline;
mod traffic;
mod transport;

pub use ronde_job::settings;
use ronde_job::{fusion, fusion_class, hold, percentile, replay};

pub use autotune::{AutotunePhase, AutotuneReport, AutotuneVerdict, NotTuned};
pub use context::{
    Buffer, Builder, Context, Failed, Gathered, GroupHandle, Handle, Operation, ProcessSet,
    RawHandle, RawOutput, RawTensor, Reduce, Scope, ScopedHandle,
};
pub use delivery::{Delivery, Memory};
pub use error::GpuError;
pub use error::{
    ArgumentError, DeviceError, Error, LimitError, NegotiationError, PeerError, ProcessSetError,
    SettingsError, StartError,
};
pub use gpu::{CudaVec, nccl_version};
pub use mpi::{MpiFound, mpi_libraries};
pub use settings::{Settings, Versioned};
pub use tensor::{Device, Dtype, Element, ReduceOp};
pub use traffic::MpiTraffic;

/// Items that other packages of this workspace use beside the public interface. They may change at
/// any time.
#[doc(hidden)]
pub mod internal {
    pub mod adasum {
        pub use crate::adasum::{Scale, combine};
    }

    pub mod autotune {
        pub use crate::autotune::memory::{learn, revision, told};
    }

    pub mod clock {
        pub use crate::clock::{Clock, MonotonicClock, Nanos};
    }

    pub mod collective {
        pub use crate::collective::{Collective, Phases, Reduction, local};
    }

    pub mod gpu {
        pub use crate::gpu::{CudaVec, GpuError, Shuttle, Stopwatch, Stream, check, ordinal_of};
    }

    pub mod hosts {
        pub use crate::hosts::tcp::missing_ranks;
    }

    pub mod identity {
        pub use crate::identity::{
            HostFacts, IDENTITY_VARIABLES, Identity, IdentityError, MAX_RANKS, Process,
            ProcessTable, Processes, Source, environment, host_key, job_key, random_job_key,
        };
    }

    pub mod logging {
        pub use crate::logging::rank;
    }

    pub mod mpi {
        pub use crate::mpi::has_mpi_plugin;
    }

    pub mod net {
        pub use ronde_net::fuzz::frames;
    }

    pub mod timeline {
        pub use crate::timeline::{
            Activity, BatchRecord, BytepsOptions, Item, Member, Options, PeriodFinder, TensorId,
            Timeline, Track,
        };
    }
}

/// The README's program must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
