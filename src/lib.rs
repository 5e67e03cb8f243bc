//! Ronde.
pub mod identity;
pub mod knobs;
pub mod logging;
