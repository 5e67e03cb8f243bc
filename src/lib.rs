//! Ronde.
mod autotune;
pub mod bench;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod collective;
pub mod context;
mod cycle;
mod drive;
pub mod error;
pub mod fusion;
pub mod identity;
pub mod knobs;
pub mod logging;
pub mod negotiation;
mod queue;
pub mod settings;
mod shm;
#[cfg(test)]
mod simulation;
mod telemetry;
pub mod tensor;
pub mod timeline;
pub mod transport;

pub use autotune::{AutotuneReport, AutotuneVerdict};
pub use context::{Allreduce, Buffer, Builder, Context, Failed, Handle, RawHandle, Scope, ScopedHandle};
pub use error::Error;
pub use settings::Settings;
pub use tensor::{Device, Dtype, Element, ReduceOp};
