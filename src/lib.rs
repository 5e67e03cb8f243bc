//! Ronde.
pub mod bench;
pub mod clock;
pub mod collective;
pub mod error;
pub mod fusion;
pub mod negotiation;
pub mod settings;
mod shm;
pub mod tensor;
pub mod transport;
