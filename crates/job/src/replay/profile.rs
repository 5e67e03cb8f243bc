//! A profile: what replay and `ronde bench --profile` need to know of a job.
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
//! `ready_us` counts from the beginning of the step on the reference rank, median over the steady steps; tensors stand
//! in its order. In `costs`, `alpha_us` and `us_per_mib` are the line fitted through the times of the commonest
//! allreduce by size, `copy` the microseconds a MiB of copying in and out, and the two of negotiation microseconds from
//! ready on all ranks to the batch's beginning. What the files do not tell is null. `replay` is the whole fit of a
//! recording, with covariances and with tensors that the benchmark cannot run; where it is there, replay goes by it alone. A
//! profile written by hand needs `ronde_profile`, `tensors` with name, dtype and elements, and as much else as is known.

use serde::{Deserialize, Serialize};

use super::Fit;
use crate::Dtype;

/// The profile version this reader understands.
pub const PROFILE_VERSION: u32 = 1;

/// Most tensors in one workload; the largest real models have a few thousand gradients.
pub const TENSORS_MAX: usize = 100_000;

/// Most elements in one tensor: 2³¹, which is 8 GiB of `float32`.
pub const ELEMENTS_MAX: u64 = 1 << 31;

/// The element types that can hold the pattern's values, negative ones too, for up to 64 ranks and with room to spare.
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

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Version of the format, 1.
    pub ronde_profile: u32,
    /// Ranks.
    #[serde(default)]
    pub np: Option<u32>,
    /// Median step.
    #[serde(default)]
    pub step_ms: Option<f64>,
    /// In force when it was recorded.
    #[serde(default)]
    pub cycle_time_ms: Option<f64>,
    /// Likewise.
    #[serde(default)]
    pub fusion_threshold_bytes: Option<u64>,
    /// In order of their ready times.
    pub tensors: Vec<ProfileTensor>,
    /// What parts of the step take.
    #[serde(default)]
    pub costs: ProfileCosts,
    /// Tensors that the benchmark cannot run.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Fit>,
}

/// A tensor of a profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProfileTensor {
    /// Its name.
    pub name: String,
    /// Its operation.
    #[serde(default)]
    pub op: Option<String>,
    /// Its type, such as `float32`.
    pub dtype: String,
    /// Its number of elements.
    pub elements: u64,
    /// Either every tensor has it or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_us: Option<f64>,
    /// Medians, as far as they are known.
    #[serde(default)]
    pub ready_us_by_rank: Vec<Option<f64>>,
    /// Half of the distance from the p10 to the p90.
    #[serde(default)]
    pub ready_jitter_us: f64,
}

/// Costs of a profile.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileCosts {
    /// α of the commonest allreduce.
    pub alpha_us: Option<f64>,
    /// Its β.
    pub us_per_mib: Option<f64>,
    /// Copying in and out, µs for a MiB.
    pub copy: Option<f64>,
    /// µs for a cycle of known tensors.
    pub negotiate_cached: Option<f64>,
    /// µs for a cycle of new ones.
    pub negotiate_uncached: Option<f64>,
}

/// A tensor that the benchmark cannot run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Its operation.
    pub op: String,
    /// Why.
    pub why: String,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is no JSON, or a field is missing or of another kind.
    #[error("line {}: {source}", source.line())]
    Json {
        /// What is wrong.
        #[from]
        source: serde_json::Error,
    },
    /// Another version.
    #[error(
        "ronde_profile is {found}; this ronde reads {PROFILE_VERSION}: make it again with `ronde timeline FILE --profile OUT`"
    )]
    Version {
        /// What the file says.
        found: u32,
    },
    /// Nothing to move.
    #[error("it has no tensors")]
    Empty,
    /// Too much.
    #[error("it has {count} tensors; at most {TENSORS_MAX} are supported")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// A tensor that cannot be.
    #[error("tensor `{name}`: {what}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A job of no ranks, or of more than there can be.
    #[error("np is {np}; give the number of ranks, 1 to {most}")]
    Ranks {
        /// What it says.
        np: u32,
        /// The largest that is taken.
        most: u32,
    },
    /// A number that cannot be.
    #[error("{field} is {value}; give a number from 0 to {most}")]
    Number {
        /// The field.
        field: &'static str,
        /// What it says.
        value: f64,
        /// The largest that is taken.
        most: f64,
    },
}

impl Profile {
    /// Reads the profile in `bytes`.
    ///
    /// # Errors
    /// [`ProfileError`] for what is none, or makes no sense.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Version {
            ronde_profile: u32,
        }
        // First, so that a later version's fields do not hide what is the matter.
        let Version { ronde_profile: found } = serde_json::from_slice(bytes)?;
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
