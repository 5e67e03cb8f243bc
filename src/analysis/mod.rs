//! What a recorded job spent its time on: steps, phases, stragglers, fusion, bandwidth, and what to change.
//!
//! Reads [`crate::trace`]'s model, knows no file format, and yields a [`Report`].

pub mod report;

pub use report::Report;
