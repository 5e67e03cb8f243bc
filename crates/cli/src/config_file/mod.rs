//! Configuration files: `--config-file` reads settings from YAML with horovodrun's sections and
//! keys.
//!
//! ```yaml
//! params:
//!   fusion_threshold_mb: 32
//!   cycle_time_ms: 2.5
//! autotune:
//!   enabled: true
//! ronde: # any other setting, by its flag's name
//!   early-cycle: false
//! ```
//!
//! A key writes the same environment variable as its flag. Therefore flags win over the file, and
//! the file wins over the environment. A key without a value (`log_file:`) sets nothing. As in
//! horovodrun, yes, no, on and off mean true and false. Unlike horovodrun, unknown keys, values of
//! the wrong type and repeated keys are errors that name the file and the line.

mod error;
mod keys;
pub(crate) mod value;
mod yaml;

use error::{ConfigError, Problem};

use ronde::knobs::Knob;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use yaml::{Entry, Node};

/// Largest file that is read. A file that sets every knob has 2 kB, so a larger file is not a
/// configuration file, or it is endless.
const BYTES_MAX: u64 = 64 << 10;

/// Knobs that a file sets, with the values for their environment variables, in the order of the
/// file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    settings: Vec<Setting>,
}

#[derive(Clone, Debug)]
struct Setting {
    knob: &'static Knob,
    value: OsString,
    line: usize,
    key: String,
}

impl ConfigFile {
    /// Reads a file of at most 64 KiB.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or is not valid YAML, or if it has an unknown key
    /// or a value that its key does not accept.
    pub(crate) fn read(path: impl AsRef<Path>) -> Result<ConfigFile, ConfigError> {
        let path = path.as_ref();
        let text = text(path).map_err(|problem| ConfigError::new(path, None, problem))?;
        ConfigFile::parse(&text, path)
    }

    /// Parses the text of a file; `path` is its name in errors.
    pub(crate) fn parse(text: &str, path: impl AsRef<Path>) -> Result<ConfigFile, ConfigError> {
        let at = |(line, problem)| ConfigError::new(path.as_ref(), Some(line), problem);
        let mut file = ConfigFile::default();
        for entry in yaml::read(text).map_err(at)? {
            file.section(entry).map_err(at)?;
        }
        Ok(file)
    }

    /// Knobs that the file sets, with the values for their environment variables.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static Knob, &OsStr)> {
        self.settings
            .iter()
            .map(|setting| (setting.knob, setting.value.as_os_str()))
    }

    /// Adds an entry of the top level: a section with its keys, or a key outside of all sections.
    fn section(&mut self, entry: Entry) -> Result<(), (usize, Problem)> {
        if !keys::is_section(&entry.key) {
            return self.set(entry.key, entry.line, &entry.node);
        }
        match entry.node {
            Node::Mapping(entries) => entries.into_iter().try_for_each(|inner| {
                self.set(
                    format!("{}.{}", entry.key, inner.key),
                    inner.line,
                    &inner.node,
                )
            }),
            node if node.is_null() => Ok(()),
            node => {
                let problem = Problem::Value {
                    found: node.to_string(),
                    key: entry.key,
                    expected: "keys, indented below it".into(),
                };
                Err((entry.line, problem))
            }
        }
    }

    fn set(&mut self, key: String, line: usize, node: &Node) -> Result<(), (usize, Problem)> {
        let Some(target) = keys::find(&key) else {
            let nearest = keys::nearest(&key);
            return Err((line, Problem::Unknown { key, nearest }));
        };
        if let Some(first) = self
            .settings
            .iter()
            .find(|first| first.knob.env == target.knob.env)
        {
            let problem = Problem::Twice {
                key,
                first_key: first.key.clone(),
                first_line: first.line,
            };
            return Err((line, problem));
        }
        if node.is_null() {
            return Ok(());
        }
        let value = value::written(target, node).map_err(|expected| {
            let (key, found) = (key.clone(), node.to_string());
            (
                line,
                Problem::Value {
                    key,
                    found,
                    expected,
                },
            )
        })?;
        let knob = target.knob;
        self.settings.push(Setting {
            knob,
            value,
            line,
            key,
        });
        Ok(())
    }
}

/// Reads the text of a file, up to the size limit.
fn text(path: &Path) -> Result<String, Problem> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > BYTES_MAX => Err(Problem::TooLarge {
            bytes_max: BYTES_MAX,
        }),
        Ok(_) => Ok(text),
        Err(source) => Err(Problem::Read { source }),
    }
}

#[cfg(test)]
mod tests;
