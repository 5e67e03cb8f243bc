//! What a step consists of, whatever the settings; and what can be set.

use serde::{Deserialize, Serialize};

use crate::fusion::Item;

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Bytes that one batch may hold; 0 = no fusion.
    pub fusion_threshold_bytes: u64,
    /// Least time between the starts of two cycles, µs.
    pub cycle_us: f64,
    /// Whether allreduces are hierarchical.
    pub hierarchical: bool,
    /// Whether allgathers do.
    #[serde(default)]
    pub hierarchical_allgather: bool,
    /// Whether known tensors are negotiated by the response cache.
    pub cache: bool,
}

/// What the tensors of a class go through, as far as settings make a difference to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// An allreduce.
    #[default]
    Allreduce,
    /// An allgather.
    Allgather,
    /// One that is never hierarchical.
    Other,
}

impl Setting {
    /// Whether `operation` is hierarchical.
    pub fn is_hierarchical(&self, operation: Operation) -> bool {
        match operation {
            Operation::Allreduce => self.hierarchical,
            Operation::Allgather => self.hierarchical_allgather,
            Operation::Other => false,
        }
    }
}

/// A tensor of the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkTensor {
    /// What the planner knows of it.
    pub item: Item,
    /// When the first rank has it, µs since the step began; ≤ `ready_us`.
    pub pending_us: f64,
    /// When all ranks have it, µs since the step began.
    pub ready_us: f64,
}

/// A step of the job. It begins when the one before it ends, and ends `tail_us` after its last result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// In order of `ready_us`.
    pub tensors: Vec<WorkTensor>,
    /// From the last result to the step's end, µs (the optimizer, mostly).
    pub tail_us: f64,
}

impl Workload {
    /// Payload of a step.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.item.bytes).sum()
    }
}
