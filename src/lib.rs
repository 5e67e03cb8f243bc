//! Ronde.
pub mod identity;
pub mod knobs;
