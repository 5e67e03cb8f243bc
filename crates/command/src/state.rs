//! State file of a search: the properties that identify it, and the runs so far.
//!
//! ```json
//! {"ronde_tune_command": 2, "identity": {"command": "python train.py --bucket {bucket}", …},
//!  "rows": [{"phase": "search", "setting": [8], "outcome": {"measured": {"value": 41.2}},
//!            "seconds": 3.1}, …]}
//! ```

use std::collections::BTreeMap;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Parameter, Row};

/// Version of the format, and the newest that is read. Version 1 lacks [`ADDED`].
const VERSION: u64 = 2;
/// Properties that version 1 does not have.
const ADDED: [&str; 2] = [State::SETS, State::TOLERANCE];
/// Field with the version.
const MARK: &str = "ronde_tune_command";

/// Properties that identify a search, by name: those of another search differ in at least one.
pub type Identity = BTreeMap<String, String>;

/// A search with its runs so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    ronde_tune_command: u64,
    /// Properties of the search.
    pub identity: Identity,
    /// Runs so far.
    pub rows: Vec<Row>,
    /// [`Plan::pairs`](crate::Plan::pairs) after them; earlier versions do not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<usize>,
}

/// A state file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another search uses it.
    #[error(
        "state file {path} is in use by another ronde tune: wait until that one has ended, or \
         give another file"
    )]
    InUse {
        /// Path.
        path: String,
    },
    /// It cannot be read or written.
    #[error("state file {path}: {source}")]
    Io {
        /// Path.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{path} is not a state file of ronde tune with a command: {problem}; give another file"
    )]
    Foreign {
        /// Path.
        path: String,
        /// First error in it.
        problem: String,
    },
    /// It is of another search.
    #[error(
        "state file {path} is of another search: {}; give another file, or the command as it was",
        differences.join("; ")
    )]
    Differs {
        /// Path.
        path: String,
        /// Properties that differ, each with both values.
        differences: Vec<String>,
    },
}

impl State {
    /// Property of an [`Identity`]: the values that are set in the configuration file.
    pub const SETS: &str = "--set";
    /// Property of an [`Identity`]: the largest difference of check values.
    pub const TOLERANCE: &str = "check tolerance";

    /// Whether the file's version does not have this property, which is then not compared.
    fn lacks(&self, name: &str) -> bool {
        self.ronde_tune_command < 2 && ADDED.contains(&name) && !self.identity.contains_key(name)
    }

    /// Properties of a search that the file does not have, because it is of an earlier version.
    pub fn lacking<'a>(&self, identity: &'a Identity) -> Vec<&'a str> {
        let names = identity.keys().map(String::as_str);
        names.filter(|name| self.lacks(name)).collect()
    }

    /// State of a search without runs.
    pub fn new(identity: Identity) -> Self {
        Self {
            ronde_tune_command: VERSION,
            identity,
            rows: Vec::new(),
            pairs: None,
        }
    }

    /// Reads the file if it exists, and checks that it is of this search.
    ///
    /// # Errors
    /// It cannot be read, or is not a state file of this search.
    pub fn load(
        path: &Path,
        identity: &Identity,
        parameters: &[Parameter],
    ) -> Result<Option<Self>, StateError> {
        let name = path.display().to_string();
        let foreign = |problem: String| StateError::Foreign {
            path: name.clone(),
            problem,
        };
        let io = |source| StateError::Io {
            path: name.clone(),
            source,
        };
        let text = match ronde_tuner::read_text(path) {
            Ok(text) => text,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound => Ok(None),
                    io::ErrorKind::InvalidData => Err(foreign(error.to_string())),
                    _ => Err(io(error)),
                };
            }
        };
        let value: Value =
            serde_json::from_str(&text).map_err(|error| foreign(error.to_string()))?;
        match value.get(MARK).map(Value::as_u64) {
            None => return Err(foreign(format!("it has no field {MARK}"))),
            Some(Some(1..=VERSION)) => {}
            Some(_) => {
                let found = &value[MARK];
                return Err(foreign(format!(
                    "it has version {found}, and this ronde reads up to {VERSION}"
                )));
            }
        }
        let state: Self =
            serde_json::from_value(value).map_err(|error| foreign(error.to_string()))?;
        let mut now = identity.clone();
        now.retain(|name, _| !state.lacks(name));
        let differences = differences(&state.identity, &now);
        if !differences.is_empty() {
            return Err(StateError::Differs {
                path: name,
                differences,
            });
        }
        state.check(parameters).map_err(foreign)?;
        Ok(Some(state))
    }

    /// Checks the rows, which another program may have written.
    fn check(&self, parameters: &[Parameter]) -> Result<(), String> {
        for (index, row) in self.rows.iter().enumerate() {
            let levels = &row.setting.0;
            let is_setting = levels.len() == parameters.len()
                && levels
                    .iter()
                    .zip(parameters)
                    .all(|(level, parameter)| *level < parameter.values().len());
            let figures = row.outcome.figures();
            let are_figures = figures
                .into_iter()
                .all(|value| value > 0.0 && value.is_finite());
            let is_duration = row.seconds >= 0.0 && row.seconds.is_finite();
            if !(is_setting && are_figures && is_duration) {
                return Err(format!("run {} is damaged", index + 1));
            }
        }
        Ok(())
    }

    /// Writes the file, as a whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), StateError> {
        let write = || {
            let mut file = AtomicWriteFile::open(path)?;
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.commit()
        };
        write().map_err(|source| StateError::Io {
            path: path.display().to_string(),
            source,
        })
    }
}

/// Lock of a state file, which one search at a time may hold: each writes all of its rows.
///
/// Saving replaces the state file, so another file beside it is locked. It is removed with the
/// lock. The kernel ends the lock of a process that was killed.
#[derive(Debug)]
pub struct StateLock {
    path: PathBuf,
    /// Open while the lock is held.
    _file: File,
}

impl StateLock {
    /// Locks the state file of this path, which need not exist.
    ///
    /// # Errors
    /// Another process has the lock, or the file beside it cannot be created.
    pub fn take(state: &Path) -> Result<Self, StateError> {
        let mut path = state.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let io = |source| StateError::Io {
            path: path.display().to_string(),
            source,
        };
        loop {
            let mut options = File::options();
            let options = options.create(true).truncate(false).write(true);
            let file = options.open(&path).map_err(io)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let path = state.display().to_string();
                    return Err(StateError::InUse { path });
                }
                // Some network file systems have no locks; a search works there too.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            // The former holder may have removed the file after it was opened here.
            let id = |found: Metadata| (found.dev(), found.ino());
            let own = file.metadata().map_err(io)?;
            if std::fs::metadata(&path).is_ok_and(|there| id(there) == id(own)) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Before the file is closed, so that nobody else's is removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Properties in which two searches differ.
fn differences(then: &Identity, now: &Identity) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let differs = names
        .into_iter()
        .filter(|name| then.get(*name) != now.get(*name));
    let text =
        |value: Option<&String>| value.map_or("nothing".to_owned(), |text| format!("{text:?}"));
    let sentence = |name: &String| {
        format!(
            "{name} was {}, and is {}",
            text(then.get(name)),
            text(now.get(name))
        )
    };
    differs.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Phase, Setting};

    fn identity(command: &str) -> Identity {
        Identity::from([("command".to_owned(), command.to_owned())])
    }

    #[test]
    fn a_state_is_read_as_it_was_written_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        let parameters = vec!["x=1..4".parse().unwrap()];
        let load = |command: &str| State::load(&path, &identity(command), &parameters);
        assert_eq!(load("a").unwrap(), None);
        let mut state = State::new(identity("a"));
        for outcome in [
            Outcome::Measured {
                value: 1.5,
                check: Some(0.1),
                figures: vec![1.0, 2.0],
            },
            Outcome::Stopped { value: 3.0 },
            Outcome::Failed {
                reason: "it exited with code 1".to_owned(),
            },
        ] {
            let (phase, setting) = (Phase::Search, Setting(vec![3]));
            state.rows.push(Row {
                phase,
                setting,
                outcome,
                seconds: 0.5,
            });
        }
        state.pairs = Some(5);
        state.save(&path).unwrap();
        assert_eq!(load("a").unwrap(), Some(state.clone()));
        let error = |command: &str| load(command).unwrap_err().to_string();
        assert!(
            error("b").contains(r#"command was "a", and is "b""#),
            "{}",
            error("b")
        );
        state.rows[0].setting = Setting(vec![4]);
        state.save(&path).unwrap();
        assert!(error("a").contains("run 1 is damaged"));
        for (text, problem) in [
            ("{", "EOF"),
            ("{}", "no field ronde_tune_command"),
            (r#"{"ronde_tune_command":3}"#, "version 3"),
            (
                r#"{"ronde_tune_command":1,"identity":{},"rows":[1]}"#,
                "invalid type",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(error("a").contains(problem), "{}", error("a"));
        }
    }

    #[test]
    fn a_file_of_version_1_does_not_have_all_properties() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        let mut searched = identity("a");
        searched.insert(State::SETS.to_owned(), "a.b={x}".to_owned());
        searched.insert(State::TOLERANCE.to_owned(), "0.01".to_owned());
        let load = |version: u64, searched: &Identity| {
            let text = format!(
                r#"{{"ronde_tune_command":{version},"identity":{{"command":"a"}},"rows":[]}}"#
            );
            std::fs::write(&path, text).unwrap();
            State::load(&path, searched, &[])
        };
        let lacking = |loaded: Option<State>| loaded.unwrap().lacking(&searched).len();
        assert_eq!(lacking(load(1, &searched).unwrap()), 2);
        let error = load(2, &searched).unwrap_err().to_string();
        assert!(
            error.contains(r#"--set was nothing, and is "a.b={x}"; check tolerance was nothing"#),
            "{error}"
        );
        // Everything else is compared in both.
        searched.insert("variable X".to_owned(), "1".to_owned());
        assert!(load(1, &searched).is_err());
    }

    #[test]
    fn one_search_at_a_time_has_a_state_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        let first = StateLock::take(&path).unwrap();
        let error = StateLock::take(&path).unwrap_err();
        assert!(matches!(error, StateError::InUse { .. }));
        // Replacing the file does not end the lock.
        State::new(identity("a")).save(&path).unwrap();
        assert!(StateLock::take(&path).is_err());
        drop(first);
        drop(StateLock::take(&path).unwrap());
        let left = std::fs::read_dir(folder.path()).unwrap();
        assert_eq!(left.count(), 1, "the lock's file is removed");
    }
}
