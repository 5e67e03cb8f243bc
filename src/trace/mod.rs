//! Recorded timelines read back: Horovod's and Ronde's own files, BytePS's `comm.json`, PyTorch's profiler traces, in
//! one [model].
//!
//! A file is read once from front to back; what it tells goes to a [`Visitor`], so that memory is bounded by what
//! the visitor keeps, not by the file.

mod byteps;
mod complaint;
mod detect;
mod error;
mod event;
mod files;
mod horovod;
mod input;
mod json;
mod kineto;
pub mod model;
mod names;
mod read;
mod reader;
mod scan;
#[cfg(test)]
mod scan_tests;
mod sniff;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use error::ReadError;
pub use files::files;
pub use input::Input;
pub use read::{read, read_input};

pub use model::{
    Activity, Clock, Format, Kind, Mark, MarkKind, NameId, Operation, Phase, PhaseSums, Source, Span, Tick,
    Visitor,
};
