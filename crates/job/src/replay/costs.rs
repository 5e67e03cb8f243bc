//! Costs of the parts of a step: collectives, negotiation and copies.

use serde::{Deserialize, Serialize};

use super::{Operation, Setting};

/// Cost of a collective: a message of n bytes takes α + β n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collective {
    /// α, µs.
    pub alpha_us: f64,
    /// β, µs per byte.
    pub us_per_byte: f64,
}

/// Cost of negotiation: a cycle with n tensors takes `base_us` + n · `per_tensor_us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Negotiation {
    /// Time per cycle, µs.
    pub base_us: f64,
    /// Time per tensor, µs.
    pub per_tensor_us: f64,
}

/// Cost of copying a batch of several tensors into a fusion buffer, and back. Each direction takes
/// n · `per_tensor_us` + bytes · `us_per_byte` · (1 + `slowdown` · r² / (1 + r²)), with
/// r = bytes / `knee_bytes`: large buffers do not fit in the cache. All zero if data is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Copying {
    /// Time per tensor and direction, µs.
    pub per_tensor_us: f64,
    /// Time per byte and direction, µs.
    pub us_per_byte: f64,
    /// Slow-down of a buffer far larger than the knee, as a share.
    pub slowdown: f64,
    /// Buffer size with half of the slow-down, bytes.
    pub knee_bytes: f64,
    /// Whether copies of one batch overlap the collective of another.
    pub overlaps: bool,
}

/// Costs of a job's parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Negotiation through the response cache.
    pub cached: Negotiation,
    /// Negotiation through rank 0.
    pub uncached: Negotiation,
    /// Flat collectives, by class of tensors ([`crate::fusion::Item::class`]); the last entry
    /// applies to all further classes.
    pub flat: Vec<Collective>,
    /// Hierarchical collectives, by class in the same way.
    pub hierarchical: Vec<Collective>,
    /// Operation of each class, which determines whether settings make it hierarchical; classes
    /// without an entry are allreduces.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// Copies into and out of the fusion buffer.
    pub copying: Copying,
    /// Slow-down of the computation if cycles follow one another without a pause, as a share;
    /// proportionally less with pauses.
    pub polling: f64,
    /// Slow-down of the step for each µs of simultaneous communication and computation.
    pub contention: f64,
}

impl Copying {
    /// Returns the time to copy a batch in one direction, µs.
    pub fn way_us(&self, tensors: usize, bytes: f64) -> f64 {
        let mut us_per_byte = self.us_per_byte;
        if self.slowdown > 0.0 && self.knee_bytes > 0.0 {
            let squared = (bytes / self.knee_bytes).powi(2);
            us_per_byte *= 1.0 + self.slowdown * squared / (1.0 + squared);
        }
        self.per_tensor_us * tensors as f64 + us_per_byte * bytes
    }
}

impl Costs {
    /// Returns the cost of a collective of a class of tensors under `setting`.
    pub fn collective(&self, class: u32, setting: &Setting) -> Collective {
        let operation = self
            .operations
            .get(class as usize)
            .copied()
            .unwrap_or_default();
        let all = if setting.is_hierarchical(operation) {
            &self.hierarchical
        } else {
            &self.flat
        };
        let index = (class as usize).min(all.len().saturating_sub(1));
        all.get(index).copied().unwrap_or_default()
    }
}
