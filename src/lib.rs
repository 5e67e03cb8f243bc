//! Ronde: collective communication for data-parallel training, with tensor fusion that tunes itself.
//!
//! Every rank submits its gradients as they become ready. A background thread agrees with the other ranks on which
//! tensors are ready everywhere (*negotiation*), packs them up to the *fusion threshold*, allreduces each pack and
//! hands the results back; at the latest once per *cycle time*. What Horovod's users set as `HOROVOD_*` means the
//! same here, and `HOROVOD_AUTOTUNE=1` finds better values while the job runs.
//!
//! ```
//! use ronde::{Context, ReduceOp};
//!
//! // In a job: `Context::from_env()`, in every process that `ronde run -np 4 -- …` has started.
//! let context = Context::builder().alone().build()?;
//! let handles: Vec<_> = (0..3)
//!     .map(|layer| context.allreduce(&format!("layer{layer}"), vec![0.5f32; 1000], ReduceOp::Average))
//!     .collect::<Result<_, _>>()?;
//! for handle in handles {
//!     let gradient: Vec<f32> = handle.wait()?;
//!     assert_eq!(gradient, [0.5; 1000]);
//! }
//! # Ok::<(), ronde::Error>(())
//! ```
//!
//! # Modules
//! - [`Context`] and what it hands out: [`context`]. Settings: [`knobs`]. Who am I: [`identity`].
//! - The heart: `cycle/` (one step: collect, negotiate, plan, execute, finish), [`negotiation`], [`fusion`].
//! - Interfaces, each with a simulated implementation: [`clock`], [`transport`] (control), [`collective`] (data).
//! - What is recorded: [`timeline`]; what it would have been otherwise: [`replay`]; what is tuned by both: the crate
//!   `ronde-tuner`.
//! - What a tuner's log tells: [`review`].
//! - The program `ronde`: `cli`, [`mod@bench`].
//!
//! Linux only. Results are bit-identical on all ranks, and whatever the fusion and the order of arrival.

pub mod adasum;
mod autotune;
mod backend;
mod buffer;
pub mod clock;
pub mod collective;
mod command;
pub mod context;
mod cycle;
mod delivery;
pub mod error;
pub mod gpu;
pub mod identity;
pub mod knobs;
pub mod logging;
#[cfg(feature = "mpi")]
mod mpi;
pub mod negotiation;
mod observer;
mod queue;
mod ready;
mod settings_cell;
mod shm;
#[cfg(test)]
mod simulation;
mod sync;
mod telemetry;
pub mod tensor;
pub mod timeline;
pub mod transport;

pub use ronde_job::settings;
use ronde_job::{fusion, fusion_class, percentile, replay};

pub use autotune::{AutotuneReport, AutotuneVerdict, NotTuned};
pub use backend::MpiTraffic;
#[doc(hidden)]
pub use collective::nccl::measure as gpu_measure;
pub use context::{
    Buffer, Builder, Context, Failed, Gathered, GroupHandle, Handle, Operation, ProcessSet, RawHandle,
    RawOutput, RawTensor, Reduce, Scope, ScopedHandle,
};
pub use delivery::{Delivery, Memory};
pub use error::{
    ArgumentError, DeviceError, Error, LimitError, NegotiationError, PeerError, ProcessSetError,
    SettingsError, StartError,
};
pub use gpu::{CudaVec, GpuError, nccl_version};
pub use settings::{Settings, Versioned};
pub use tensor::{Device, Dtype, Element, ReduceOp};

/// The README's program must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
