//! Trace reader and [`analysis`]: reads timelines of Horovod and Ronde, BytePS's
//! `comm.json` and PyTorch's profiler traces into one [model].
//!
//! A file is read once from front to back, and its content is passed to a [`Visitor`], so that
//! memory depends on the visitor, not on the file. The files of BytePS and PyTorch are not sorted:
//! a few tens of bytes for each of their events are kept until the end. Damaged parts are skipped
//! and reported in [`Source::warnings`].
//!
//! ```no_run
//! use ronde_trace::{Mark, NameId, Operation, Visitor};
//!
//! #[derive(Default)]
//! struct Executed(u64);
//!
//! impl Visitor for Executed {
//!     fn name(&mut self, _: NameId, _: &str) {}
//!     fn operation(&mut self, operation: &Operation) {
//!         self.0 += operation.execution.map_or(0, |span| span.ns());
//!     }
//!     fn mark(&mut self, _: Mark) {}
//! }
//!
//! let mut executed = Executed::default();
//! for file in ronde_trace::files(&["traces".into()])? {
//!     let source = ronde_trace::read(&file, &mut executed, &mut |_bytes| {})?;
//!     println!("{:?}: {} events, {:?}", source.format, source.events, source.warnings);
//! }
//! # Ok::<(), ronde_trace::ReadError>(())
//! ```

pub mod analysis;
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
mod merge;
pub mod model;
mod names;
#[cfg(test)]
mod properties;
mod read;
mod reader;
mod scan;
mod sniff;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use error::ReadError;
pub use files::files;
pub use input::Input;
pub use merge::{MergeError, merge};
pub use read::{read, read_input};

pub(crate) use model::WALL_CLOCK_MIN_NS;
pub use model::{
    Activity, Clock, Format, Kind, Mark, MarkKind, NameId, Operation, Phase, PhaseSums, Source,
    Span, Tick, Visitor, Work,
};
