//! Sweeps: repeated measurements of many settings, and their statistical comparison.
//!
//! A [`Point`] is one combination of knobs; a [`Row`] is one measurement of it (or a prediction), a
//! line of `sweep.csv`.

mod design;
mod machine;
pub mod order;
mod prune;
pub(crate) mod statistics;
pub mod store;
#[cfg(test)]
mod testing;
mod verdict;

pub use design::Design;
pub use machine::Machine;
pub use prune::SoFar;
pub use verdict::{
    Basis, Conclusion, Ending, Estimate, Finding, Jobs, Knob, KnobEffect, LEVEL, LEVEL_PREDICTED,
    Level, Noise, Outcome, Stray, Tally, Verdict, settings_to_json, verdict, verdict_with,
};

use serde::{Deserialize, Serialize};

use crate::bench::report::StepSummary;
use ronde::settings::Settings;

/// Combination of knobs to measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Number of ranks.
    pub np: u32,
    /// Fusion threshold, bytes; 0 = no fusion.
    pub fusion_threshold_bytes: u64,
    /// Cycle time, ms: minimum time between the starts of two cycles.
    pub cycle_time_ms: f64,
    /// Whether the response cache is on.
    pub cache: bool,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: bool,
}

impl Point {
    /// Returns the default settings for this number of ranks.
    pub fn default_of(np: u32) -> Self {
        let settings = Settings::default();
        Self {
            np,
            fusion_threshold_bytes: settings.fusion_threshold_bytes,
            cycle_time_ms: settings.cycle_time_ns as f64 / 1e6,
            cache: settings.cache,
            hierarchical_allreduce: false,
        }
    }

    /// Whether the point is the default of its number of ranks.
    pub fn is_default(&self) -> bool {
        *self == Self::default_of(self.np)
    }

    /// Returns the threshold in MiB, the unit of the flags.
    pub fn fusion_mb(&self) -> f64 {
        self.fusion_threshold_bytes as f64 / f64::from(1 << 20)
    }

    /// Returns the distance: the number of different knobs, then the ratios of their values.
    pub fn distance(&self, other: &Self) -> f64 {
        let ratio = |a: f64, b: f64| (a.max(1e-2) / b.max(1e-2)).ln().abs();
        let fusion = ratio(self.fusion_mb(), other.fusion_mb());
        let cycle = ratio(self.cycle_time_ms, other.cycle_time_ms);
        let numbers = u8::from(fusion > 0.0) + u8::from(cycle > 0.0);
        let hierarchical = self.hierarchical_allreduce != other.hierarchical_allreduce;
        let switches = u8::from(self.cache != other.cache) + u8::from(hierarchical);
        100.0 * f64::from(numbers + switches) + fusion + cycle
    }
}

/// Phase of a sweep to which a row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A repeat of the whole grid.
    Grid,
    /// The best points and the default in turns, after the grid.
    Confirm,
    /// Not measured: the prediction of a replay of a recording.
    Predicted,
    /// The points with the best predictions and the default in turns.
    Verify,
}

/// End of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All steps were measured.
    Done,
    /// Ended early: the point is clearly worse than the best.
    Cut,
    /// Failed, with the reason.
    Failed(String),
}

/// Step times, ms; each step takes the time of its slowest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Number of timed steps; 0 in a prediction.
    pub steps: u32,
    /// 10th percentile.
    pub p10: f64,
    /// Median; in a prediction the best estimate.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Mean.
    pub mean: f64,
}

impl StepTimes {
    /// Summarises the times of `steps` steps, or the predictions of several jobs; `None` if empty.
    pub fn of(step_ms: &[f64], steps: usize) -> Option<Self> {
        let summary = StepSummary::new(step_ms)?;
        Some(Self {
            steps: steps as u32, // at most the requested number
            p10: summary.p10,
            p50: summary.p50,
            p90: summary.p90,
            mean: summary.mean,
        })
    }
}

/// One measurement of a point, or a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The point.
    pub point: Point,
    /// Phase of the sweep.
    pub phase: Phase,
    /// Number of the block, from 0; drift of the machine is common to a block.
    pub block: u32,
    /// End of the measurement.
    pub status: Status,
    /// Step times; `None` if it failed.
    pub times: Option<StepTimes>,
    /// Seconds from the start of the sweep to the end of the measurement, over all its runs.
    pub at_s: f64,
}
