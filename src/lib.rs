//! Ronde.
pub mod knobs;
