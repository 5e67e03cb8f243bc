//! Ronde.
pub mod clock;
pub mod collective;
pub mod error;
pub mod settings;
pub mod timeline;
pub mod fusion;
pub mod negotiation;
mod shm;
pub mod tensor;
pub mod transport;
