//! The timeline: records the operations of a rank with their times, and measures steps for the
//! tuner.
//!
//! The cycle reports to two recipients. A [`Track`] puts whole cycles into a ring that a writer
//! thread empties into files in [Horovod's format](horovod) and in [BytePS's](byteps); it may drop
//! cycles when the disk is slow. The `StepMeter` sums each batch as it is executed and drops
//! nothing; [`period`] detects steps from the repetition of tensors.
//!
//! A process has one [`Timeline`], and one track for each of its process sets. `control` starts and
//! stops recordings; `track`, `record` and `inbox` pass a record from a cycle to the `writer`;
//! `documents` selects the files for it; `document` and `sink` are a file in Horovod's format on
//! disk; `suspended` keeps the files at a reset of an elastic job; `line` converts times to rank
//! 0's clock; `steps` counts steps.

pub(crate) mod byteps;
mod control;
mod document;
mod documents;
pub(crate) mod event;
pub(crate) mod files;
pub(crate) mod horovod;
mod inbox;
mod line;
mod options;
mod record;
mod sink;
pub(crate) mod step_meter;
mod steps;
mod suspended;
mod text;
mod track;
mod writer;

pub(crate) use crate::command::TimelineCommand;
pub use control::Timeline;
pub use event::{Activity, BatchRecord, Member, TensorId};
pub use options::{BytepsOptions, Options};
pub(crate) use ronde_job::step as period;
pub use ronde_job::step::{Item, PeriodFinder};
pub use track::Track;

#[cfg(test)]
mod tests;
