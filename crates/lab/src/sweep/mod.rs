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
    Level, Noise, Outcome, Stray, Tally, Verdict, verdict, verdict_with,
};

use serde::{Deserialize, Serialize};

pub use crate::bench::report::StepSummary;
pub use ronde_job::point::{Point, PointKey};

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
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// All steps were measured.
    Done,
    /// Ended early: the point is clearly worse than the best.
    Cut,
    /// Failed, with the reason.
    Failed(String),
}

/// One measurement of a point, or a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The point.
    pub point: Point,
    /// Phase of the sweep.
    pub phase: Phase,
    /// Number of the block, from 0; drift of the machine is common to a block.
    pub block: u32,
    /// End of the measurement.
    pub status: Status,
    /// Number of timed steps; 0 in a prediction, or if it failed.
    pub steps: u32,
    /// Step times, each of the slowest rank; `None` if it failed. The median of a prediction is
    /// its best estimate.
    pub times: Option<StepSummary>,
    /// Seconds from the start of the sweep to the end of the measurement, over all its runs.
    pub at_s: f64,
}
