//! Two runs beside each other: what changed, by how much, and whether by more than the runs vary in themselves.

use serde::{Deserialize, Serialize};

use super::Report;

/// What changed from run A to run B.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Run A: its first file.
    pub a: String,
    /// Run B: its first file.
    pub b: String,
    /// Everything that was measured in either run, group by group.
    pub changes: Vec<Change>,
    /// Settings and circumstances that are not the same.
    pub settings: Vec<SettingChange>,
    /// The changes that matter as sentences, the step's first.
    pub sentences: Vec<String>,
    /// What makes the runs hard to compare.
    pub warnings: Vec<String>,
}

/// One quantity in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What it is about.
    pub group: ChangeGroup,
    /// What it is, such as `step` or `collective`.
    pub name: String,
    /// Its unit: `ms`, `GB/s`, `bytes`, `%`, or nothing for a count.
    pub unit: String,
    /// Median in run A. None if it was not measured there.
    pub a: Option<f64>,
    /// Median in run B.
    pub b: Option<f64>,
    /// `b − a`. None unless both are there.
    pub difference: Option<f64>,
    /// `b / a − 1`. None as well if `a` is zero.
    pub relative: Option<f64>,
    /// How much the runs vary in themselves: the root of the sum of the squares of both [spreads](super::report::Quantiles::spread).
    /// None where only single numbers are known.
    pub spread: Option<f64>,
    /// Whether the difference is greater than `spread` and than a hundredth of the larger value.
    pub beyond_spread: bool,
}

/// What a [`Change`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeGroup {
    /// Length of a step, start-up, communication and overlap.
    Step,
    /// A part of the step, exposed.
    Part,
    /// Batches and their sizes.
    Fusion,
    /// What a rank costs the others.
    Stragglers,
    /// A collective's line α + β · bytes.
    Bandwidth,
}

/// A setting or circumstance that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// What.
    pub name: String,
    /// In run A; "unknown" if the file does not say.
    pub a: String,
    /// In run B.
    pub b: String,
}

/// Compares run `b` with run `a`, steady steps with steady steps.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let label = |report: &Report| {
        report
            .sources
            .first()
            .map_or(String::new(), |source| source.path.clone())
    };
    Comparison {
        a: label(a),
        b: label(b),
        changes: Vec::new(),
        settings: Vec::new(),
        sentences: Vec::new(),
        warnings: Vec::new(),
    }
}
