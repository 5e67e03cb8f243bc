//! What can be wrong with a configuration file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A configuration file cannot be used.
#[derive(Debug)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, if one is to blame.
    pub line: Option<usize>,
    /// What is wrong there.
    pub problem: Box<Problem>,
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be read as text.
    #[error("cannot read it: {source}")]
    Read {
        /// What the system says.
        source: io::Error,
    },
    /// It is longer than any such file.
    #[error("it has more than {bytes_max} bytes, so it is no file of settings")]
    TooLarge {
        /// Most bytes read.
        bytes_max: u64,
    },
    /// It is no YAML, or has a part of YAML that settings have no use for.
    #[error("{what}")]
    Yaml {
        /// What the line has, and what it should have.
        what: String,
    },
    /// A key is none of those known.
    #[error("{key} is no setting{}", nearest_clause(.nearest))]
    Unknown {
        /// The key found, with its section.
        key: String,
        /// The known key most similar to it, if one is similar.
        nearest: Option<String>,
    },
    /// A value is of another type, or out of range.
    #[error("{key}: {found} does not fit: expected {expected}")]
    Value {
        /// The key, with its section.
        key: String,
        /// The value found.
        found: String,
        /// The values accepted.
        expected: String,
    },
    /// Two keys set the same.
    #[error("{key} sets again what {first_key} sets in line {first_line}; remove one of them")]
    Twice {
        /// The second key.
        key: String,
        /// The first key.
        first_key: String,
        /// The line of the first.
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

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.problem.source()
    }
}

fn nearest_clause(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(
        || "; docs/KNOBS.md shows a file with all of them".into(),
        |key| format!("; did you mean {key}?"),
    )
}
