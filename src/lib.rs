//! Ronde.
