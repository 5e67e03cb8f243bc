//!
//! Two paths leave the cycle. The [`Recorder`] puts whole cycles into a ring that a writer thread empties into a
//! file in [Horovod's format](horovod); it may drop cycles when the disk is slow. The
//! [`StepMeter`] adds up each batch as it is executed and drops nothing. Both rest on what a step is:

pub mod event;
pub mod horovod;
mod record;
pub mod recorder;
mod writer;

pub use event::{Activity, BatchRecord, Member, TensorId};
pub use recorder::Recorder;

#[cfg(test)]
mod tests;
