//! One run of the command: its phase, its outcome, and the interface that runs it.

use serde::{Deserialize, Serialize};

use crate::{Limit, Setting};

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Finds a good setting.
    Search,
    /// Compares the winner of the search with the start.
    Compare,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run ended by itself.
    Measured {
        /// Figure of the run, > 0; lower is better.
        value: f64,
        /// Value that must not depend on the setting.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        check: Option<f64>,
        /// First figures that the run printed, with which later runs are compared while they run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        figures: Vec<f64>,
    },
    /// The run was stopped because it was clearly slower than the best one.
    Stopped {
        /// Estimate of its figure.
        value: f64,
    },
    /// The command failed, took too long, or printed no figure.
    Failed {
        /// Event that ended the run, as a sentence.
        reason: String,
    },
}

impl Outcome {
    /// A measured figure without a check.
    pub fn measured(value: f64) -> Self {
        Self::Measured {
            value,
            check: None,
            figures: Vec::new(),
        }
    }

    /// All figures, for a check of what was read from a file.
    pub(crate) fn figures(&self) -> Vec<f64> {
        match self {
            Self::Measured { value, figures, .. } => {
                figures.iter().copied().chain([*value]).collect()
            }
            Self::Stopped { value } => vec![*value],
            Self::Failed { .. } => Vec::new(),
        }
    }

    /// Value that must not depend on the setting, if the run has one.
    pub fn check(&self) -> Option<f64> {
        match self {
            Self::Measured { check, .. } => *check,
            Self::Stopped { .. } | Self::Failed { .. } => None,
        }
    }

    /// Whether the run was stopped because it was clearly slower than the best one.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }

    /// Figure, or its estimate.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Measured { value, .. } | Self::Stopped { value } => Some(*value),
            Self::Failed { .. } => None,
        }
    }
}

/// A run with its setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Purpose.
    pub phase: Phase,
    /// Setting.
    pub setting: Setting,
    /// Result.
    pub outcome: Outcome,
    /// Duration, s.
    pub seconds: f64,
}

/// Duration of all runs together, s.
pub fn seconds(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.seconds).sum()
}

/// Settings with their runs, in the order of each setting's first run.
pub fn by_setting<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<(&'a Setting, Vec<&'a Row>)> {
    let mut groups: Vec<(&Setting, Vec<&Row>)> = Vec::new();
    for row in rows {
        match groups
            .iter_mut()
            .find(|(setting, _)| **setting == row.setting)
        {
            Some((_, own)) => own.push(row),
            None => groups.push((&row.setting, vec![row])),
        }
    }
    groups
}

/// Runs the command.
pub trait Runner {
    /// Reason why a run could not be made at all.
    type Error;

    /// Runs the command once with this setting, at most until `limit` is exceeded. Returns `None`
    /// if the user interrupted the run.
    ///
    /// # Errors
    /// The command could not be run, whatever its setting.
    fn run(&mut self, setting: &Setting, limit: &Limit) -> Result<Option<Outcome>, Self::Error>;
}
