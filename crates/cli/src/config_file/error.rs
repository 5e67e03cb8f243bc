//! Errors of configuration files.

use std::io;
use std::path::{Path, PathBuf};

/// Error of a configuration file, with its position.
#[derive(Debug, thiserror::Error)]
#[error("{}:{} {problem}", path.display(), line.map_or_else(String::new, |line| format!("{line}:")))]
pub(crate) struct ConfigError {
    path: PathBuf,
    /// Line of the error, from 1, if it belongs to a line.
    line: Option<usize>,
    problem: Box<Problem>,
}

/// Kind of error in a configuration file; keys are with their section.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("cannot read it: {source}")]
    Read { source: io::Error },
    #[error("it has more than {bytes_max} bytes, so it is not a configuration file")]
    TooLarge { bytes_max: u64 },
    /// The text is not valid YAML, or it uses a part of YAML that configuration files do not need.
    #[error("{what}")]
    Yaml { what: String },
    #[error("{key} is not a setting{}", nearest_clause(.nearest))]
    Unknown {
        key: String,
        /// The most similar known key, if one is similar.
        nearest: Option<String>,
    },
    /// The value has the wrong type or is out of range.
    #[error("{key} cannot be {found}: expected {expected}")]
    Value {
        key: String,
        found: String,
        expected: String,
    },
    /// Two keys set the same knob.
    #[error("{key} repeats the setting of {first_key} in line {first_line}; remove one of them")]
    Twice {
        key: String,
        first_key: String,
        first_line: usize,
    },
}

impl ConfigError {
    pub(super) fn new(path: &Path, line: Option<usize>, problem: Problem) -> ConfigError {
        ConfigError {
            path: path.to_owned(),
            line,
            problem: Box::new(problem),
        }
    }
}

fn nearest_clause(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(
        || "; docs/KNOBS.md shows a file with all of them".into(),
        |key| format!("; did you mean {key}?"),
    )
}
