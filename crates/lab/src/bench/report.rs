//! What a benchmark found: one JSON object for programs, a few lines for people.
//!
//! The object's keys are an interface (`docs/`, scripts and plots read them): see [`BenchReport`]. Times are those of the
//! slowest rank in each step. Bandwidth is bytes per step over the median step, in GB/s of 10⁹ bytes; it is left out when
//! a backward pass is pretended, for then the step's length says little about the collective.

use serde::Serialize;

use super::run::MpiPerStep;
use ronde::knobs::Link;
use ronde::settings::Settings;

mod autotune;
mod text;

pub use autotune::AutotuneSummary;
pub use ronde_job::percentile::percentile;

/// The result of one benchmark run; serialised, it is what `ronde bench --json` writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// The model's name, or the profile's file name.
    pub model: String,
    /// Number of ranks.
    pub np: usize,
    /// The backend that ran the collectives: `local`, `mpi`, `nccl`.
    pub backend: String,
    /// The network that the local backend was shaped to; `null` when it ran at full speed.
    pub link: Option<LinkReport>,
    /// Length of the pretended backward pass, in ms; 0 without one.
    pub compute_ms: f64,
    /// What that pass did: `sleep` or `spin`.
    pub compute_kind: &'static str,
    /// The rank that was made to compute longer; `null` if none was.
    pub slow_rank: Option<SlowRankReport>,
    /// Measured steps.
    pub steps: usize,
    /// Tensors per step.
    pub tensors: usize,
    /// Bytes reduced per step and rank.
    pub bytes_per_step: usize,
    /// The settings in force at the end.
    pub settings: SettingsReport,
    /// Step times.
    pub step_ms: StepSummary,
    /// Bytes per step over the median step; `null` when ranks compute in between.
    pub gb_per_s: Option<f64>,
    /// The same for a plain copy of the same tensors on all ranks at once, in the same run.
    pub memcpy_gb_per_s: f64,
    /// What a step sends over MPI; `null` over another backend.
    pub mpi: Option<MpiPerStep>,
    /// What the tuner did; `null` when it was off.
    pub autotune: Option<AutotuneSummary>,
}

/// A rank that was made to compute longer than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SlowRankReport {
    /// Which.
    pub rank: usize,
    /// By how much, in ms a step.
    pub ms: f64,
}

/// The network a run was shaped to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    /// Always true: these are not the machine's own speeds.
    pub shaped: bool,
    /// Latency of a message, in µs.
    pub alpha_us: f64,
    /// Bandwidth, in GB/s.
    pub gb_per_s: f64,
}

/// The runtime's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SettingsReport {
    /// Most bytes fused into one collective; 0 is no fusion.
    pub fusion_threshold_bytes: u64,
    /// Shortest time between the starts of two cycles, in ms.
    pub cycle_time_ms: f64,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: bool,
    /// Whether allgathers do.
    pub hierarchical_allgather: bool,
}

/// Step times in ms: percentiles and mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// A tenth of the steps were faster.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// A tenth of the steps were slower.
    pub p90: f64,
    /// The arithmetic mean.
    pub mean: f64,
}

impl From<Link> for LinkReport {
    fn from(link: Link) -> Self {
        Self {
            shaped: true,
            alpha_us: link.alpha_us,
            gb_per_s: link.gb_per_s,
        }
    }
}

impl From<Settings> for SettingsReport {
    fn from(settings: Settings) -> Self {
        Self {
            fusion_threshold_bytes: settings.fusion_threshold_bytes,
            cycle_time_ms: settings.cycle_time_ns as f64 / 1e6,
            hierarchical_allreduce: settings.hierarchical_allreduce,
            hierarchical_allgather: settings.hierarchical_allgather,
        }
    }
}

impl StepSummary {
    /// Summarises step times in ms; `None` without steps.
    pub fn new(step_ms: &[f64]) -> Option<Self> {
        let mut sorted = step_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            p10: percentile(&sorted, 0.1)?,
            p50: percentile(&sorted, 0.5)?,
            p90: percentile(&sorted, 0.9)?,
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        })
    }
}

/// GB/s of `bytes` in `ms`.
pub fn gb_per_s(bytes: usize, ms: f64) -> f64 {
    bytes as f64 / (ms * 1e6)
}

#[cfg(test)]
mod tests;
