//! Trace of a job under one setting, as input of the fit.

use super::{Operation, Setting};
use crate::fusion::Item;

/// Steps recorded under one setting on one rank (rank 0 knows the ready times of all ranks).
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Setting in force.
    pub setting: Setting,
    /// Operation of each class of tensors; classes without an entry are allreduces.
    pub operations: Vec<Operation>,
    /// Complete, undisturbed steps.
    pub steps: Vec<TracedStep>,
}

/// One recorded step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedStep {
    /// Time from the end of the previous step to the end of this one, µs.
    pub step_us: f64,
    /// Tensors, in any order.
    pub tensors: Vec<TracedTensor>,
    /// Cycles, in the order of execution.
    pub cycles: Vec<TracedCycle>,
}

/// Tensor of a recorded step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedTensor {
    /// Key of the tensor in every step: a hash of the name, or the position in the step if names do
    /// not repeat.
    pub key: u64,
    /// Properties that the planner uses.
    pub item: Item,
    /// Time at which the first rank submitted it, µs since the start of the step.
    pub pending_us: f64,
    /// Time at which it was ready on all ranks, µs since the start of the step.
    pub ready_us: f64,
}

/// Cycle that moved at least one tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedCycle {
    /// Start of the cycle, µs since the start of the step.
    pub began_us: f64,
    /// Duration of the negotiation, µs, without waiting for late ranks if that is known.
    pub negotiate_us: f64,
    /// Number of tensors that it moved.
    pub tensors: u32,
    /// Number of these tensors that were negotiated through the response cache.
    pub cached: u32,
    /// Time from the end of the negotiation to the last result, µs. Less than the sum of the
    /// batches if they overlap.
    pub moving_us: f64,
    /// Batches, in the order of execution.
    pub batches: Vec<TracedBatch>,
}

/// Recorded batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedBatch {
    /// Class of its tensors, as in [`Item::class`].
    pub class: u32,
    /// Payload, bytes.
    pub bytes: u64,
    /// Number of tensors.
    pub tensors: u32,
    /// Duration of the collective, µs, without waiting for late peers and without `copy_us`.
    pub collective_us: f64,
    /// Time of copying into and out of a fusion buffer, µs; 0 if data is streamed, that is, copied
    /// inside the collective.
    pub copy_us: f64,
}
