//! Ronde.
pub mod bench;
