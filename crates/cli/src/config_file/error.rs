//! Errors of configuration files.

use std::io;
use std::path::{Path, PathBuf};

/// Error of a configuration file, with its position.
#[derive(Debug, thiserror::Error)]
#[error("{}:{} {problem}", path.display(), line.map_or_else(String::new, |line| format!("{line}:")))]
pub struct ConfigError {
    /// Path of the file.
    pub path: PathBuf,
    /// Line of the error, from 1, if it belongs to a line.
    pub line: Option<usize>,
    /// Description of the error.
    pub problem: Box<Problem>,
}

/// Kind of error in a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read as text.
    #[error("cannot read it: {source}")]
    Read {
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is larger than any configuration file.
    #[error("it has more than {bytes_max} bytes, so it is not a configuration file")]
    TooLarge {
        /// Limit in bytes.
        bytes_max: u64,
    },
    /// The text is not valid YAML, or it uses a part of YAML that configuration files do not need.
    #[error("{what}")]
    Yaml {
        /// Content of the line, and the content that was expected.
        what: String,
    },
    /// The key is unknown.
    #[error("{key} is not a setting{}", nearest_clause(.nearest))]
    Unknown {
        /// The key, with its section.
        key: String,
        /// The most similar known key, if one is similar.
        nearest: Option<String>,
    },
    /// The value has the wrong type or is out of range.
    #[error("{key} cannot be {found}: expected {expected}")]
    Value {
        /// The key, with its section.
        key: String,
        /// The value in the file.
        found: String,
        /// The accepted values.
        expected: String,
    },
    /// Two keys set the same knob.
    #[error("{key} repeats the setting of {first_key} in line {first_line}; remove one of them")]
    Twice {
        /// The second key.
        key: String,
        /// The first key.
        first_key: String,
        /// Line of the first key.
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
