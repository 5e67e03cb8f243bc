//! Profile of a job in JSON: input of replay and of `ronde bench --profile`.
//!
//! ```json
//! {"ronde_profile": 1, "np": 4, "step_ms": 51.3, "cycle_time_ms": 1.0, "fusion_threshold_bytes": 134217728,
//!  "tensors": [{"name": "fc.bias", "op": "allreduce", "dtype": "float32", "elements": 1000, "ready_us": 812.5,
//!               "ready_us_by_rank": [812.5, 830.1, null, 811.0], "ready_jitter_us": 12.0}],
//!  "costs": {"alpha_us": 20.1, "us_per_mib": 410.0, "copy": 96.0, "negotiate_cached": 55.0, "negotiate_uncached": 140.0},
//!  "left_out": [{"name": "loss", "op": "allgather", "why": "not an allreduce"}],
//!  "replay": {"workload": {}, "costs": {}, "spread": {}, "rules": {}, "place": {}}}
//! ```
//!
//! `ready_us` counts from the start of the step on the reference rank and is the median over the
//! steady steps; tensors are sorted by it. In `costs`, `alpha_us` and `us_per_mib` are the line
//! fitted to the times of the most frequent class of allreduces by size; `copy` is the time of
//! copying in and out, in µs per MiB; the two negotiation costs are the time from ready on all
//! ranks to the start of the batch, in µs. Values that the files do not contain are null. `replay`
//! contains the whole fit of a recording, with covariances and with tensors that the benchmark
//! cannot run; if it is present, replay uses only it. `withheld` is the reason if the recording
//! supports no recommendation. A profile written by hand needs
//! `ronde_profile`, `tensors` with name, dtype and elements, and all other values that are known.

use serde::{Deserialize, Serialize};

use super::Fit;
use crate::Dtype;
use crate::gate::Withheld;

/// Version of the profile format that this reader supports.
pub const PROFILE_VERSION: u32 = 1;

/// Maximum number of tensors in one workload; the largest real models have a few thousand
/// gradients.
pub const TENSORS_MAX: usize = 100_000;

/// Maximum number of elements in one tensor: 2³¹, which is 8 GiB of `float32`.
pub const ELEMENTS_MAX: u64 = 1 << 31;

/// Element types that can hold the benchmark's test values, including negative ones, for at least
/// 64 ranks.
pub const PROFILE_DTYPES: [Dtype; 7] = [
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::F32,
    Dtype::F64,
    Dtype::Bf16,
];

mod check;
mod fit;

pub use check::ranks;

/// Profile of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the format, 1.
    pub ronde_profile: u32,
    /// Number of ranks, from 1.
    #[serde(default, deserialize_with = "ranks")]
    pub np: Option<u32>,
    /// Median step time, ms.
    #[serde(default)]
    pub step_ms: Option<f64>,
    /// Cycle time during the recording, ms.
    #[serde(default)]
    pub cycle_time_ms: Option<f64>,
    /// Fusion threshold during the recording, bytes.
    #[serde(default)]
    pub fusion_threshold_bytes: Option<u64>,
    /// Threshold of host memory during the recording, bytes, if the lower one of GPUs was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_threshold_bytes: Option<u64>,
    /// Whether the recorded allreduces are hierarchical.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hierarchical: bool,
    /// Tensors, in the order of their ready times.
    pub tensors: Vec<ProfileTensor>,
    /// Costs of the parts of a step.
    #[serde(default)]
    pub costs: ProfileCosts,
    /// Tensors that the benchmark cannot run.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Fit of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Fit>,
    /// Reason why the recording supports no recommendation, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
}

/// Tensor of a profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileTensor {
    /// Name.
    pub name: String,
    /// Operation.
    #[serde(default)]
    pub op: Option<String>,
    /// Element type, such as `float32`.
    pub dtype: String,
    /// Number of elements.
    pub elements: u64,
    /// Ready time, µs; either every tensor has it or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_us: Option<f64>,
    /// Median ready time of each rank, µs, if known.
    #[serde(default)]
    pub ready_us_by_rank: Vec<Option<f64>>,
    /// Half of the distance between the 10th and the 90th percentile of the ready time, µs.
    #[serde(default)]
    pub ready_jitter_us: f64,
}

/// Costs of a profile.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileCosts {
    /// α of the most frequent class of allreduces, µs.
    pub alpha_us: Option<f64>,
    /// β of the most frequent class of allreduces, µs per MiB.
    pub us_per_mib: Option<f64>,
    /// Copying in and out, µs per MiB.
    pub copy: Option<f64>,
    /// Cycle with cached tensors, µs.
    pub negotiate_cached: Option<f64>,
    /// Cycle with new tensors, µs.
    pub negotiate_uncached: Option<f64>,
}

/// Tensor that the benchmark cannot run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// Name.
    pub name: String,
    /// Operation.
    pub op: String,
    /// Reason.
    pub why: String,
}

/// Error of a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The JSON is invalid, or a field is missing or has another type.
    #[error("line {}: {source}", source.line())]
    Json {
        /// Error of the parser.
        #[from]
        source: serde_json::Error,
    },
    /// The version is not supported.
    #[error(
        "ronde_profile is {found}; this ronde reads {PROFILE_VERSION}: make it again with `ronde timeline FILE --profile OUT`"
    )]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// The profile has no tensors.
    #[error("it has no tensors")]
    Empty,
    /// The profile has too many tensors.
    #[error("it has {count} tensors; at most {TENSORS_MAX} are supported")]
    TooMany {
        /// Number of tensors.
        count: usize,
    },
    /// A tensor is invalid.
    #[error("tensor `{name}`: {what}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Fault of the tensor.
        what: String,
    },
    /// The number of ranks is 0 or too large.
    #[error("np is {np}; give the number of ranks, 1 to {most}")]
    Ranks {
        /// Number in the profile.
        np: u32,
        /// Maximum number.
        most: u32,
    },
    /// The value of a numeric field is invalid.
    #[error("{field} is {value}; give a number from 0 to {most}")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// Value in the profile.
        value: f64,
        /// Maximum value.
        most: f64,
    },
}

impl Profile {
    /// Parses the profile in `bytes`.
    ///
    /// # Errors
    /// [`ProfileError`] if it is not a profile or is inconsistent.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Version {
            ronde_profile: u32,
        }
        // First, so that fields of a later version do not cause a less helpful error.
        let Version {
            ronde_profile: found,
        } = serde_json::from_slice(bytes)?;
        if found != PROFILE_VERSION {
            return Err(ProfileError::Version { found });
        }
        let profile: Self = serde_json::from_slice(bytes)?;
        profile.check()?;
        Ok(profile)
    }
}

#[cfg(test)]
mod tests;
