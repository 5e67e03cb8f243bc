//! What the parts of a step take.

use serde::{Deserialize, Serialize};

use super::{Operation, Setting};

/// A message of n bytes takes α + β n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collective {
    /// α, µs.
    pub alpha_us: f64,
    /// β.
    pub us_per_byte: f64,
}

/// A cycle that negotiates n tensors takes `base_us` + n · `per_tensor_us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Negotiation {
    /// µs for each cycle.
    pub base_us: f64,
    /// µs for each tensor.
    pub per_tensor_us: f64,
}

/// Copying a batch of several tensors into a fusion buffer, and back: each way n · `per_tensor_us` + bytes ·
/// `us_per_byte` · (1 + `slowdown` · r² / (1 + r²)), with r = bytes / `knee_bytes`: large buffers fall out of the cache.
/// All zero where data is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Copying {
    /// µs for each tensor and way.
    pub per_tensor_us: f64,
    /// µs for each byte and way.
    pub us_per_byte: f64,
    /// What is added for a buffer far larger than the knee, as a share.
    pub slowdown: f64,
    /// Where the slow-down is half of that.
    pub knee_bytes: f64,
    /// Whether copies of one batch overlap the collective of another.
    pub overlaps: bool,
}

/// The costs of a job's parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Through the response cache.
    pub cached: Negotiation,
    /// Through rank 0.
    pub uncached: Negotiation,
    /// Flat collectives, by class of tensors ([`crate::fusion::Item::class`]); the last stands for all that follow.
    pub flat: Vec<Collective>,
    /// Hierarchical ones, likewise.
    pub hierarchical: Vec<Collective>,
    /// What each class goes through, which settings make hierarchical or not; allreduces, where it does not say.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// The fusion buffer.
    pub copying: Copying,
    /// How much longer the computation takes where cycles follow one another without a pause, as a share; in
    /// proportion less where there are pauses.
    pub polling: f64,
    /// How much longer the step takes for each µs in which communication and computation run at once.
    pub contention: f64,
}

impl Copying {
    /// What it takes to copy a batch one way, µs.
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
    /// Of a class of tensors under `setting`.
    pub fn collective(&self, class: u32, setting: &Setting) -> Collective {
        let operation = self.operations.get(class as usize).copied().unwrap_or_default();
        let all = if setting.is_hierarchical(operation) {
            &self.hierarchical
        } else {
            &self.flat
        };
        let index = (class as usize).min(all.len().saturating_sub(1));
        all.get(index).copied().unwrap_or_default()
    }
}
