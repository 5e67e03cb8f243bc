//! What a job was seen to do under one setting, as the fit wants it.

use super::{Operation, Setting};
use crate::fusion::Item;

/// Steps seen under one setting, on one rank (rank 0 knows every rank's ready times).
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The setting.
    pub setting: Setting,
    /// What the tensors of each class go through; allreduces, where it does not say.
    pub operations: Vec<Operation>,
    /// Whole, undisturbed steps.
    pub steps: Vec<TracedStep>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedStep {
    /// From the end of the step before to its own, µs.
    pub step_us: f64,
    /// In any order.
    pub tensors: Vec<TracedTensor>,
    /// In order of execution.
    pub cycles: Vec<TracedCycle>,
}

/// A tensor of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedTensor {
    /// The same in every step: a hash of the name, or the place in the step where names do not repeat.
    pub key: u64,
    /// What the planner knows of it.
    pub item: Item,
    /// When the first rank had it, µs since the step began.
    pub pending_us: f64,
    /// When all ranks had it, µs since the step began.
    pub ready_us: f64,
}

/// A cycle that moved something.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedCycle {
    /// When it began, µs since the step began.
    pub began_us: f64,
    /// What negotiation took by itself, waiting for late ranks left out as far as that is known, µs.
    pub negotiate_us: f64,
    /// Tensors that it moved, and how many of these were negotiated through the response cache.
    pub tensors: u32,
    /// See `tensors`.
    pub cached: u32,
    /// From the end of negotiation to the last result, µs. Less than the batches' sum where they overlap.
    pub moving_us: f64,
    /// In order of execution.
    pub batches: Vec<TracedBatch>,
}

/// A batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedBatch {
    /// As in [`Item::class`].
    pub class: u32,
    /// Payload.
    pub bytes: u64,
    /// Tensors.
    pub tensors: u32,
    /// What the collective took, µs, without waiting for peers that came late and without `copy_us`.
    pub collective_us: f64,
    /// Copying into and out of a fusion buffer, µs; 0 where data is streamed, that is, copied inside the collective.
    pub copy_us: f64,
}
