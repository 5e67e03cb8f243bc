//! Reads a workload from a file: a profile or a list of element counts.
//!
//! `ronde timeline --profile` writes profiles. A profile is a JSON object; only the fields below
//! are read, the others are for `ronde replay`:
//!
//! ```json
//! {"ronde_profile": 1, "np": 4, "tensors": [
//!   {"name": "fc.bias", "op": "allreduce", "dtype": "float32", "elements": 1000, "ready_us": 812.5}
//! ]}
//! ```
//!
//! `ready_us` counts from the start of the backward pass; either every tensor has it or none. A
//! list has one element count per line, in submission order, all `float32`; blank lines and text
//! after a `#` are skipped.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::workload::{TensorSpec, Workload, ready_fractions};
use ronde::tensor::Dtype;
use ronde_job::replay::profile::{ELEMENTS_MAX, PROFILE_DTYPES, PROFILE_VERSION, TENSORS_MAX};

/// Largest file read, in bytes: sufficient for 100,000 tensors with long names, and small enough
/// for memory.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Error of a profile; every variant names the file, and the line if there is one.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file could not be opened or read.
    #[error("cannot read profile {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is too large for a profile.
    #[error("profile {} is larger than {max_bytes} bytes; if it is a timeline, extract a profile from it with `ronde timeline FILE --profile OUT`", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Limit, bytes.
        max_bytes: u64,
    },
    /// The file is not text.
    #[error("profile {} is not text (byte {offset} is not UTF-8 or is zero): give a profile JSON or one element count per line", path.display())]
    Binary {
        /// The file.
        path: PathBuf,
        /// Position of the first byte that is not text.
        offset: usize,
    },
    /// The file is a JSON array, the format of timelines.
    #[error("{} is a JSON array, not a profile: extract one from a timeline with `ronde timeline FILE --profile OUT`", path.display())]
    Array {
        /// The file.
        path: PathBuf,
    },
    /// The JSON is malformed, or the value of a field is invalid.
    #[error("profile {}, line {line}: {message}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Line of the fault, from 1.
        line: usize,
        /// Description of the fault.
        message: String,
    },
    /// A line of a list is not an element count.
    #[error("profile {}, line {line}: `{text}` is not an element count between 1 and {ELEMENTS_MAX}", path.display())]
    Count {
        /// The file.
        path: PathBuf,
        /// Line of the fault, from 1.
        line: usize,
        /// The line's text, shortened.
        text: String,
    },
    /// The file has no tensors.
    #[error("profile {} has no tensors", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file has more tensors than supported.
    #[error("profile {} has {count} tensors; at most {TENSORS_MAX} are supported", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// Number of tensors in the file.
        count: usize,
    },
    /// Two tensors have the same name, which a job may not have in flight.
    #[error("profile {}: two tensors are called `{name}`", path.display())]
    DuplicateName {
        /// The file.
        path: PathBuf,
        /// Name of both tensors.
        name: String,
    },
    /// Some tensors have a ready time and others do not.
    #[error("profile {}: tensor `{name}` has no ready_us although others have; give it to all tensors or to none", path.display())]
    ReadyMissing {
        /// The file.
        path: PathBuf,
        /// First tensor without a ready time.
        name: String,
    },
}

/// Reads the workload from the file at `path`, in either format.
///
/// # Errors
/// [`ProfileError`] for a file that cannot be read or holds no usable list of tensors.
pub fn load(path: &Path) -> Result<Workload, ProfileError> {
    let unreadable = |source| ProfileError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // The byte after the limit shows whether the file is larger, for devices and pipes too.
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ProfileError::TooLarge {
            path: path.to_owned(),
            max_bytes: FILE_BYTES_MAX,
        });
    }
    parse(path, &bytes)
}

/// Parses bytes that have been read, as [`load`] does; `path` is used for the workload's name and
/// for errors.
fn parse(path: &Path, bytes: &[u8]) -> Result<Workload, ProfileError> {
    let zero = bytes.iter().position(|&byte| byte == 0);
    let text = match (std::str::from_utf8(bytes), zero) {
        (Ok(text), None) => text,
        (Err(error), None) => {
            return Err(ProfileError::Binary {
                path: path.to_owned(),
                offset: error.valid_up_to(),
            });
        }
        (_, Some(offset)) => {
            return Err(ProfileError::Binary {
                path: path.to_owned(),
                offset,
            });
        }
    };
    let records = match text.trim_start().chars().next() {
        Some('{') => parse_json(path, text)?,
        Some('[') => {
            return Err(ProfileError::Array {
                path: path.to_owned(),
            });
        }
        _ => parse_list(path, text)?,
    };
    build(path, records)
}

/// Tensor from a file, with checked values.
struct Record {
    name: String,
    dtype: Dtype,
    elements: usize,
    ready_us: Option<f64>,
}

fn parse_list(path: &Path, text: &str) -> Result<Vec<Record>, ProfileError> {
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let count = line.split('#').next().unwrap_or_default().trim();
        if count.is_empty() {
            continue;
        }
        let elements = count
            .parse()
            .ok()
            .and_then(checked_elements)
            .ok_or_else(|| ProfileError::Count {
                path: path.to_owned(),
                line: index + 1,
                text: shorten(count),
            })?;
        let name = format!("tensor.{}", records.len());
        records.push(Record {
            name,
            dtype: Dtype::F32,
            elements,
            ready_us: None,
        });
    }
    Ok(records)
}

fn checked_elements(count: u64) -> Option<usize> {
    if (1..=ELEMENTS_MAX).contains(&count) {
        usize::try_from(count).ok()
    } else {
        None
    }
}

/// First 40 characters: sufficient to recognise a line, and short enough for a message.
fn shorten(text: &str) -> String {
    const LENGTH: usize = 40;
    if text.chars().count() <= LENGTH {
        return text.to_owned();
    }
    text.chars().take(LENGTH).chain(['…']).collect()
}

#[derive(Deserialize)]
struct ProfileFile {
    ronde_profile: u32,
    /// Checked only: the number of ranks is that of the benchmark.
    #[serde(
        default,
        rename = "np",
        deserialize_with = "ronde_job::replay::profile::ranks"
    )]
    _np: Option<u32>,
    tensors: Vec<ProfileTensor>,
}

/// Tensor of a profile; conversion inside the parser adds the line to range errors.
#[derive(Deserialize)]
#[serde(try_from = "ProfileTensorFields")]
struct ProfileTensor(Record);

#[derive(Deserialize)]
struct ProfileTensorFields {
    name: String,
    #[serde(default)]
    op: Option<String>,
    dtype: String,
    elements: serde_json::Number,
    #[serde(default)]
    ready_us: Option<f64>,
}

impl TryFrom<ProfileTensorFields> for ProfileTensor {
    type Error = String;

    fn try_from(fields: ProfileTensorFields) -> Result<Self, String> {
        let ProfileTensorFields {
            name,
            op,
            dtype,
            elements,
            ready_us,
        } = fields;
        if name.is_empty() {
            return Err("a tensor has an empty name".to_owned());
        }
        // Timelines write operations in capitals.
        if let Some(op) = op.filter(|op| !op.eq_ignore_ascii_case("allreduce")) {
            return Err(format!(
                "tensor `{name}` has op `{op}`; the benchmark runs `allreduce` only"
            ));
        }
        let dtype = PROFILE_DTYPES
            .into_iter()
            .find(|known| known.name() == dtype)
            .ok_or_else(|| {
                let known = PROFILE_DTYPES.map(Dtype::name).join(", ");
                format!("tensor `{name}` has dtype `{dtype}`; choose one of {known}")
            })?;
        let elements = elements
            .as_u64()
            .and_then(checked_elements)
            .ok_or_else(|| {
                format!("tensor `{name}` has {elements} elements; give 1 to {ELEMENTS_MAX}")
            })?;
        if let Some(ready) = ready_us.filter(|ready| *ready < 0.0) {
            return Err(format!(
                "tensor `{name}` has ready_us {ready}; give microseconds from 0"
            ));
        }
        Ok(Self(Record {
            name,
            dtype,
            elements,
            ready_us,
        }))
    }
}

fn parse_json(path: &Path, text: &str) -> Result<Vec<Record>, ProfileError> {
    let json_error = |line, message| ProfileError::Json {
        path: path.to_owned(),
        line,
        message,
    };
    let file: ProfileFile =
        serde_json::from_str(text).map_err(|error| json_error(error.line(), error.to_string()))?;
    if file.ronde_profile != PROFILE_VERSION {
        let message = format!(
            "ronde_profile is {}; this ronde reads {PROFILE_VERSION}",
            file.ronde_profile
        );
        let line = 1 + text
            .split("\"ronde_profile\"")
            .next()
            .map_or(0, |before| before.matches('\n').count());
        return Err(json_error(line, message));
    }
    Ok(file.tensors.into_iter().map(|tensor| tensor.0).collect())
}

fn build(path: &Path, mut records: Vec<Record>) -> Result<Workload, ProfileError> {
    if records.is_empty() {
        return Err(ProfileError::Empty {
            path: path.to_owned(),
        });
    }
    if records.len() > TENSORS_MAX {
        return Err(ProfileError::TooMany {
            path: path.to_owned(),
            count: records.len(),
        });
    }
    let mut names = HashSet::with_capacity(records.len());
    if let Some(twice) = records
        .iter()
        .find(|record| !names.insert(record.name.as_str()))
    {
        return Err(ProfileError::DuplicateName {
            path: path.to_owned(),
            name: twice.name.clone(),
        });
    }
    let last_ready_us = order_by_ready_time(path, &mut records)?;
    let fractions = match last_ready_us {
        Some(last) if last > 0.0 => records
            .iter()
            .map(|record| record.ready_us.map_or(1.0, |ready| ready / last))
            .collect(),
        // A list has no times and no layers, so every tensor gets an equal share of the pass.
        _ => ready_fractions(&vec![1.0; records.len()]),
    };
    let tensors = records
        .into_iter()
        .zip(fractions)
        .map(|(record, ready_fraction)| TensorSpec {
            name: record.name,
            dtype: record.dtype,
            shape: vec![record.elements],
            ready_fraction,
        })
        .collect();
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    Ok(Workload {
        name,
        tensors,
        recorded_backward_ms: last_ready_us.map(|last| last / 1e3),
    })
}

/// Sorts by ready time, if there is one, and returns the last ready time; tensors with equal or
/// missing times keep the order of the file.
fn order_by_ready_time(path: &Path, records: &mut [Record]) -> Result<Option<f64>, ProfileError> {
    if records.iter().all(|record| record.ready_us.is_none()) {
        return Ok(None);
    }
    if let Some(without) = records.iter().find(|record| record.ready_us.is_none()) {
        return Err(ProfileError::ReadyMissing {
            path: path.to_owned(),
            name: without.name.clone(),
        });
    }
    let ready = |record: &Record| record.ready_us.unwrap_or(0.0);
    records.sort_by(|left, right| ready(left).total_cmp(&ready(right)));
    Ok(records.last().map(ready))
}

#[cfg(test)]
mod tests;
