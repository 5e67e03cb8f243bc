//! Ronde.
pub mod bench;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod collective;
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
pub mod tensor;
pub mod timeline;
pub mod transport;
