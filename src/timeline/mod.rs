//! The timeline: what a rank did and when, recorded nearly free, and the step metrics that the tuner lives on.
//!
//! Two paths leave the cycle. The [`Recorder`] puts whole cycles into a ring that a writer thread empties into a
//! file in [Horovod's format](horovod); it may drop cycles when the disk is slow. The [`StepMeter`] adds
//! up each batch as it is executed and drops nothing; what a step is, [`period`] finds out by watching which tensors
//! come back.

pub mod event;
pub mod horovod;
pub mod metrics;
pub mod period;
mod record;
pub mod recorder;
mod writer;

pub use event::{Activity, BatchRecord, Member, Order, TensorId};
pub use metrics::{ExecutedBatch, Interruption, Step, StepMeter, StepSample};
pub use period::{Item, Observation, Period, PeriodFinder};
pub use recorder::Recorder;

#[cfg(test)]
mod tests;
