//! Ronde.
#[cfg(feature = "cli")]
pub mod cli;
pub mod identity;
pub mod knobs;
pub mod logging;
