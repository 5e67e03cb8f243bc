//! Ronde.
pub mod clock;
pub mod collective;
pub mod error;
pub mod settings;
mod shm;
pub mod tensor;
pub mod transport;
