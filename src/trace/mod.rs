//! Recorded timelines read back: Horovod's and Ronde's own files, BytePS's `comm.json`, PyTorch's profiler traces, in
//! one [model].
//!
//! A file is read once from front to back; what it tells goes to a [`Visitor`], so that memory is bounded by what
//! the visitor keeps, not by the file.

pub mod model;

pub use model::{
    Activity, Clock, Format, Kind, Mark, MarkKind, NameId, Operation, Phase, PhaseSums, Source, Span, Tick,
    Visitor,
};
