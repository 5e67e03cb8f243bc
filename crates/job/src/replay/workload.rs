//! Workload of a step, independent of the settings, and the settings that replay can change.

use serde::{Deserialize, Serialize};

use crate::fusion::Item;

/// Settings of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Fusion threshold, bytes; 0 = no fusion.
    pub fusion_threshold_bytes: u64,
    /// Cycle time: minimum time between the starts of two cycles, µs.
    pub cycle_us: f64,
    /// Whether allreduces are hierarchical.
    pub hierarchical: bool,
    /// Whether allgathers are hierarchical.
    #[serde(default)]
    pub hierarchical_allgather: bool,
    /// Whether the response cache is on.
    pub cache: bool,
}

/// Operation of the tensors of a class, as far as settings affect it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Allreduce.
    #[default]
    Allreduce,
    /// Allgather.
    Allgather,
    /// Operation that is never hierarchical.
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

/// Tensor of the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkTensor {
    /// Properties that the planner uses.
    pub item: Item,
    /// Time at which the first rank submits it, µs since the start of the step; at most `ready_us`.
    pub pending_us: f64,
    /// Time at which it is ready on all ranks, µs since the start of the step.
    pub ready_us: f64,
}

/// Step of the job. It begins at the end of the previous step, and ends `tail_us` after its last
/// result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Tensors, in the order of `ready_us`.
    pub tensors: Vec<WorkTensor>,
    /// Time from the last result to the end of the step, µs (mostly the optimizer).
    pub tail_us: f64,
}

impl Workload {
    /// Returns the payload of a step, bytes.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.item.bytes).sum()
    }
}
