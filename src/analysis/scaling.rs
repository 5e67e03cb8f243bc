//! Runs of one job on 1, 2, 4, … ranks: speed-up, efficiency, and which part of the step eats the rest.
//!
//! Scaling is *weak*: every rank does the same work however many there are, as data-parallel training does with a
//! fixed batch per rank. So n ranks do n times the work of one in a step, the speed-up is n · step₁ / stepₙ, and the
//! efficiency step₁ / stepₙ; both are relative to the run with the fewest ranks.

use serde::{Deserialize, Serialize};

use super::Report;
use super::report::{PartKind, Quantiles};

/// One run of a series, from a timeline's report or from what `ronde bench --json` wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScalingRun {
    /// How the run is called, such as its file.
    pub label: String,
    /// Ranks; 1 or more.
    pub ranks: u32,
    /// Length of a steady step, milliseconds. From a benchmark: p10, p50, p90, mean; the rest is made of them.
    pub step_ms: Quantiles,
    /// Steps of the start-up, and their median length in milliseconds. None without one.
    pub startup: Option<(u64, f64)>,
    /// Payload a step, bytes.
    pub bytes: u64,
    /// Mean exposed milliseconds a step, in the order of [`PartKind::ALL`]. None from a benchmark.
    pub parts_ms: Option<[f64; PartKind::COUNT]>,
    /// What was run (the benchmark's model), if known: runs of different things do not make a series.
    pub what: Option<String>,
}

/// Why a run cannot be part of a series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScalingError {
    /// No step was found in the timeline.
    #[error("{label}: no step was found, so there is no step time to compare; record at least three steps")]
    NoSteps {
        /// The run.
        label: String,
    },
    /// The JSON is not what `ronde bench --json` writes.
    #[error(
        "{label}: this JSON has no number {field:?}, which `ronde bench --json` always writes; is it another program's?"
    )]
    NotABenchmark {
        /// The run.
        label: String,
        /// The missing field.
        field: String,
    },
}

/// A series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// Ranks of the run that the others are held against.
    pub base_ranks: u32,
    /// The runs, in order of ranks.
    pub rows: Vec<ScalingRow>,
    /// What it comes to.
    pub sentences: Vec<String>,
    /// What makes the runs hard to compare.
    pub warnings: Vec<String>,
}

/// One run held against the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScalingRow {
    /// The run.
    pub run: ScalingRun,
    /// Work done in the same time, over that of the base, times the base's ranks: ideal is `ranks`.
    pub speedup: f64,
    /// The base's step over this one: ideal is 1.
    pub efficiency: f64,
    /// What a step takes longer than the base's, milliseconds.
    pub lost_ms: f64,
    /// What each part takes longer than in the base, in the order of [`PartKind::ALL`]; they add up to the loss of the
    /// mean step. None unless both are timelines.
    pub parts_lost_ms: Option<[f64; PartKind::COUNT]>,
    /// The part that grew most.
    pub eaten_by: Option<PartKind>,
}

impl ScalingRun {
    /// From a timeline's report.
    ///
    /// # Errors
    /// [`ScalingError::NoSteps`].
    pub fn from_report(label: &str, report: &Report) -> Result<Self, ScalingError> {
        let _ = report;
        Err(ScalingError::NoSteps {
            label: label.to_owned(),
        })
    }

    /// From what `ronde bench --json` wrote.
    ///
    /// # Errors
    /// [`ScalingError::NotABenchmark`].
    pub fn from_bench(label: &str, json: &serde_json::Value) -> Result<Self, ScalingError> {
        let _ = json;
        Err(ScalingError::NoSteps {
            label: label.to_owned(),
        })
    }
}

/// Holds every run against the one with the fewest ranks.
pub fn scaling(runs: Vec<ScalingRun>) -> Scaling {
    let _ = runs;
    Scaling {
        base_ranks: 1,
        rows: Vec::new(),
        sentences: Vec::new(),
        warnings: Vec::new(),
    }
}
