//! x
pub mod period;
