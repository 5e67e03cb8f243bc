//! Report of a benchmark: one JSON object for programs, and text for users.
//!
//! The keys of the object are an interface (`docs/`, scripts and plots read them): see
//! [`BenchReport`]. The time of a step is that of its slowest rank. Bandwidth is bytes per step
//! over the median step, in GB/s of 10⁹ bytes; it is omitted with a simulated backward pass,
//! because the duration of a step then does not measure the collective.

use serde::Serialize;

use super::run::MpiPerStep;
use ronde::knobs::Link;
use ronde::settings::Settings;

mod autotune;
mod text;

pub use autotune::AutotuneSummary;
pub use ronde_job::percentile::percentile;

/// Result of one benchmark run; serialised, it is the output of `ronde bench --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// Name of the model or of the profile's file.
    pub model: String,
    /// Number of ranks.
    pub np: usize,
    /// Backend that ran the collectives: `local`, `mpi`, `tcp`, `nccl`.
    pub backend: String,
    /// Simulated network; `null` at full speed.
    pub link: Option<LinkReport>,
    /// Duration of the simulated backward pass, in ms; 0 without one.
    pub compute_ms: f64,
    /// Activity during that pass: `sleep` or `spin`.
    pub compute_kind: &'static str,
    /// Rank with a longer computation; `null` if there is none.
    pub slow_rank: Option<SlowRankReport>,
    /// Number of measured steps.
    pub steps: usize,
    /// Number of tensors per step.
    pub tensors: usize,
    /// Bytes reduced per step and rank.
    pub bytes_per_step: usize,
    /// Settings in force at the end.
    pub settings: SettingsReport,
    /// Step times.
    pub step_ms: StepSummary,
    /// Bytes per step over the median step; `null` with a simulated backward pass.
    pub gb_per_s: Option<f64>,
    /// Bandwidth of a plain copy of the same tensors on all ranks simultaneously, in the same run.
    pub memcpy_gb_per_s: f64,
    /// Messages of a step over MPI or TCP; `null` with another backend.
    pub mpi: Option<MpiPerStep>,
    /// Summary of the tuner; `null` if it was off.
    pub autotune: Option<AutotuneSummary>,
}

/// Rank that computes longer than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SlowRankReport {
    /// The rank.
    pub rank: usize,
    /// Additional computation per step, in ms.
    pub ms: f64,
}

/// Simulated network of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    /// Always true: the speeds are not those of the machine.
    pub shaped: bool,
    /// Latency of a message, in µs.
    pub alpha_us: f64,
    /// Bandwidth, in GB/s.
    pub gb_per_s: f64,
}

/// Settings of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SettingsReport {
    /// Fusion threshold, bytes; 0 is no fusion.
    pub fusion_threshold_bytes: u64,
    /// Minimum time between the starts of two cycles, in ms.
    pub cycle_time_ms: f64,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: bool,
    /// Whether allgathers are hierarchical.
    pub hierarchical_allgather: bool,
}

/// Step times in ms: percentiles and mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Arithmetic mean.
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

/// Returns the bandwidth, in GB/s, of `bytes` in `ms`.
pub fn gb_per_s(bytes: usize, ms: f64) -> f64 {
    bytes as f64 / (ms * 1e6)
}

#[cfg(test)]
mod tests;
