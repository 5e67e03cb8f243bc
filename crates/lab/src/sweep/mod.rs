//! Sweeps: many settings of the knobs, each measured several times, and what may be concluded from that.
//!
//! A [`Point`] is one combination of knobs; a [`Row`] is one measurement of it (or a prediction), a line of `sweep.csv`.

mod design;
mod machine;
pub mod order;
mod prune;
mod statistics;
pub mod store;
#[cfg(test)]
mod testing;
mod verdict;

pub use design::Design;
pub use machine::Machine;
pub use prune::{CLEARLY, best_so_far, stop_above_ms};
pub use verdict::{
    Basis, Conclusion, Ending, Estimate, Finding, GAIN_THAT_MATTERS, Knob, KnobEffect, LEVEL,
    LEVEL_PREDICTED, Level, Noise, Outcome, Stray, Tally, Verdict, compare_jobs, verdict,
};

use serde::{Deserialize, Serialize};

use crate::bench::report::StepSummary;
use ronde::settings::Settings;

/// A combination of knobs to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Ranks.
    pub np: u32,
    /// Bytes that one batch may hold; 0 = no fusion.
    pub fusion_threshold_bytes: u64,
    /// Least time between the starts of two cycles, ms.
    pub cycle_time_ms: f64,
    /// Whether known tensors are negotiated through the response cache.
    pub cache: bool,
    /// Whether allreduces are hierarchical.
    pub hierarchical_allreduce: bool,
}

impl Point {
    /// What is in force where nobody sets anything.
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

    /// Whether it is the default of its number of ranks.
    pub fn is_default(&self) -> bool {
        *self == Self::default_of(self.np)
    }

    /// The threshold in MiB, as flags have it.
    pub fn fusion_mb(&self) -> f64 {
        self.fusion_threshold_bytes as f64 / f64::from(1 << 20)
    }
}

/// What a row was measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// One of the repeats of the whole grid.
    Grid,
    /// The best few and the default in turns, after the grid.
    Confirm,
    /// Not measured: what a replay of a recording says.
    Predicted,
    /// The best of the predicted and the default in turns.
    Verify,
}

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should.
    Done,
    /// Early: the point is clearly worse than the best.
    Cut,
    /// Without a result, and why.
    Failed(String),
}

/// Step times, ms, each step on its slowest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Timed steps; 0 in a prediction.
    pub steps: u32,
    /// 10th percentile.
    pub p10: f64,
    /// Median; in a prediction its best guess.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Mean.
    pub mean: f64,
}

impl StepTimes {
    /// Of the times of `steps` steps, or of what several jobs are predicted to take; none of nothing.
    pub fn of(step_ms: &[f64], steps: usize) -> Option<Self> {
        let StepSummary { p10, p50, p90, mean } = StepSummary::new(step_ms)?;
        let steps = steps as u32; // no more than were asked for
        Some(Self {
            steps,
            p10,
            p50,
            p90,
            mean,
        })
    }
}

/// One measurement of a point, or a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub point: Point,
    /// What for.
    pub phase: Phase,
    /// Which repeat, from 0; drift of the machine is common to a block.
    pub block: u32,
    /// How it ended.
    pub status: Status,
    /// What it took; none if it failed.
    pub times: Option<StepTimes>,
    /// Seconds since the sweep began, at the end of the measurement; time spent before a `--resume` counts.
    pub at_s: f64,
}
