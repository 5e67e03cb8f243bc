//! State of a search as a small JSON file: to be resumed after a restart, or taken as prior
//! knowledge by a related job.
//!
//! The file is meant to be read and compared by people: keys in a fixed order, settings by name,
//! times in ms at six significant digits, no binary and no history. Settings are exact. The key of
//! the job that wrote it is a map of strings that the caller defines (model signature, ranks, hosts,
//! transport, version); the caller also gives the date, since nothing here knows the time.
//!
//! ```
//! use ronde_tuner::{Match, State};
//! let text = r#"{
//!   "ronde_tuner_state": 2,
//!   "date": "2026-11-22",
//!   "key": { "model": "9f3a", "ranks": "2" },
//!   "start": { "fusion_mb": 128.0, "cycle_ms": 1.0 },
//!   "contests": 1,
//!   "samples": [
//!     { "setting": { "fusion_mb": 128.0, "cycle_ms": 1.0 }, "step_ms": 61.2, "spread": 0.03, "steps": 30 }
//!   ],
//!   "verdict": null
//! }"#;
//! let state = State::from_json(text)?;
//! let key = |ranks: &str| [("model", "9f3a"), ("ranks", ranks)].map(|(k, v)| (k.into(), v.into())).into();
//! assert_eq!(state.matches(&key("2")), Some(Match::Same));
//! assert_eq!(state.matches(&key("8")), Some(Match::Sibling));
//! # Ok::<(), ronde_tuner::StateError>(())
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::center::center_variance;
use crate::space::{Point, Space};
use crate::text::read_text;
use crate::tuner::sample::Seen;

/// The format that this version writes, and the newest that it reads.
pub const STATE_VERSION: u32 = 2;
/// The entry of the key that siblings share.
pub const STATE_MODEL: &str = "model";

/// A setting by name.
pub type Setting = BTreeMap<String, f64>;

/// The contents of a state file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The format's version.
    pub ronde_tuner_state: u32,
    /// When it was written, in the caller's words.
    pub date: String,
    /// Key of the job that wrote it: a map of strings that the caller defines.
    pub key: BTreeMap<String, String>,
    /// The setting in force at the start of the search: the default.
    pub start: Setting,
    /// Comparisons that this job has begun: they share one error. 0 in files of version 1.
    #[serde(default)]
    pub contests: u32,
    /// Cost so far of a search that has no verdict yet, in steps of the start; negative if it has
    /// saved time. Not in files of earlier versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_steps: f64,
    /// Measured settings, in the order of their first measurements.
    pub samples: Vec<StateSample>,
    /// How the search ended, if it did.
    pub verdict: Option<StateVerdict>,
}

/// A measured setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateSample {
    /// The setting.
    pub setting: Setting,
    /// Centre of its step time, ms.
    pub step_ms: f64,
    /// Noise of a single step, as a fraction of it.
    pub spread: f64,
    /// Steps that it rests on.
    pub steps: usize,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateVerdict {
    /// Whether the default stayed.
    pub kept_default: bool,
    /// The setting that was chosen.
    pub chosen: Setting,
    /// Step time under the default, ms.
    pub default_step_ms: f64,
    /// Step time under the chosen setting, ms.
    pub chosen_step_ms: f64,
    /// Gain in percent of the default's step time, 95 % interval.
    pub gain_pct: [f64; 2],
    /// Why, in one sentence.
    pub reason: String,
}

/// How near a recorded job is to the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Equal job: every entry of the key is equal.
    Same,
    /// Equal model under other circumstances.
    Sibling,
}

/// A state file that cannot be used; the caller goes on without.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// Reading or writing failed.
    #[error("state file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Not JSON at all, or cut off: the parser's error.
    #[error(
        "line {line}, column {column}: not a state file ({0}); delete it to start anew",
        line = .0.line(),
        column = .0.column()
    )]
    NotJson(serde_json::Error),
    /// JSON of something else.
    #[error("not a state file of this tuner: \"ronde_tuner_state\" is missing; give another path")]
    Foreign,
    /// Written by a newer version.
    #[error(
        "state of version {found}, this program reads up to {STATE_VERSION}; delete it or use the newer program"
    )]
    Newer {
        /// The file's version.
        found: u64,
    },
    /// A value that cannot be.
    #[error("state file: {what}; delete it to start anew")]
    Invalid {
        /// Which value, and what it is.
        what: String,
    },
}

impl State {
    /// Parses the text of a state file.
    ///
    /// # Errors
    /// Text that is no JSON, JSON of something else, a newer version, or values that cannot be.
    pub fn from_json(text: &str) -> Result<Self, StateError> {
        let json: serde_json::Value = serde_json::from_str(text).map_err(StateError::NotJson)?;
        let version = json.get("ronde_tuner_state");
        let version = version.and_then(serde_json::Value::as_u64);
        let found = version.ok_or(StateError::Foreign)?;
        if found > u64::from(STATE_VERSION) {
            return Err(StateError::Newer { found });
        }
        let invalid = |what: String| StateError::Invalid { what };
        let state: Self =
            serde_json::from_value(json).map_err(|error| invalid(error.to_string()))?;
        // JSON has no number that is not finite.
        for (index, sample) in state.samples.iter().enumerate() {
            let (step_ms, spread, steps) = (sample.step_ms, sample.spread, sample.steps);
            if step_ms <= 0.0 || spread < 0.0 || steps == 0 {
                return Err(invalid(format!(
                    "sample {index} has step_ms {step_ms}, spread {spread}, steps {steps}"
                )));
            }
        }
        if let Some(verdict) = &state.verdict {
            let (default, chosen) = (verdict.default_step_ms, verdict.chosen_step_ms);
            if default <= 0.0 || chosen <= 0.0 {
                return Err(invalid(format!(
                    "the verdict has default_step_ms {default}, chosen_step_ms {chosen}"
                )));
            }
        }
        Ok(state)
    }

    /// The text of the file, ending in a newline.
    pub fn to_json(&self) -> String {
        // Strings, numbers, lists and maps with string keys: nothing that can fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads a state file.
    ///
    /// # Errors
    /// Errors of the operating system, and those of [`from_json`](Self::from_json).
    pub fn load(path: &Path) -> Result<Self, StateError> {
        let text = read_text(path).map_err(|source| io_error(path, source))?;
        Self::from_json(&text)
    }

    /// Writes a state file. A reader finds the old file or the new one, whole; a process that is
    /// killed meanwhile leaves no other file behind, on file systems that have unnamed files.
    ///
    /// # Errors
    /// Errors of the operating system; the file is then unchanged.
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        let write = || {
            let mut file = AtomicWriteFile::open(path)?;
            file.write_all(self.to_json().as_bytes())?;
            file.commit()
        };
        write().map_err(|source| io_error(path, source))
    }

    /// This state, or `decided`, an earlier state of the same job with a verdict, where this one has
    /// none: a search that was cut off does not replace a verdict. Comparisons count in either case.
    #[must_use]
    pub fn or_decided(self, decided: Option<&Self>) -> Self {
        match decided.filter(|_| self.verdict.is_none()) {
            Some(decided) if decided.verdict.is_some() => Self {
                contests: self.contests.max(decided.contests),
                ..decided.clone()
            },
            _ => self,
        }
    }

    /// How near the recorded job is to the one of this key; `None` if it is another model's.
    pub fn matches(&self, key: &BTreeMap<String, String>) -> Option<Match> {
        if self.key == *key {
            return Some(Match::Same);
        }
        let model = key.get(STATE_MODEL)?;
        (self.key.get(STATE_MODEL) == Some(model)).then_some(Match::Sibling)
    }

    /// The samples by their index, at settings of `space`, or why it does not have them.
    pub(crate) fn seen(&self, space: &Space) -> Vec<(usize, Result<Seen, String>)> {
        let seen = |sample: &StateSample| {
            Ok(Seen {
                point: point(space, &sample.setting)?,
                log_time: sample.step_ms.ln(),
                variance: center_variance(sample.spread, sample.steps),
            })
        };
        self.samples.iter().map(seen).enumerate().collect()
    }
}

/// A point by the names of its parameters.
pub(crate) fn setting(space: &Space, point: &Point) -> Setting {
    let names = space.parameters().iter().map(|p| p.name().to_owned());
    names.zip(point.values().iter().copied()).collect()
}

/// The point of a setting, or why `space` does not have it. A parameter that the file lacks takes
/// its fixed value, if it has one.
pub(crate) fn point(space: &Space, setting: &Setting) -> Result<Point, String> {
    let mut values = Vec::new();
    for parameter in space.parameters() {
        let name = parameter.name();
        let value = setting.get(name).copied().or(parameter.fixed_value());
        values.push(value.ok_or_else(|| format!("{name:?} is missing"))?);
    }
    space.point(&values).map_err(|error| error.to_string())
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// `value` to six significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn io_error(path: &Path, source: io::Error) -> StateError {
    StateError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
