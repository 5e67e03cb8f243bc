//! Reads autotune logs from files and standard input, and reviews them.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ronde_tuner::read_logs;

use crate::error::Error;
use crate::present::output::is_stdout;
use ronde_lab::review::{Known, Review, review};
use ronde_trace::{Input, ReadError};

/// Largest uncompressed size of a log in bytes: a hundred times that of a log with 100,000 rows.
const BYTES_MOST: u64 = 256 << 20;

/// Returns the reviews of all searches in these logs, in order.
///
/// # Errors
/// A file that cannot be read or is not an autotune log.
pub(super) fn read(paths: &[PathBuf], known: &Known) -> Result<Vec<Review>, Error> {
    let mut reviews = Vec::new();
    for path in paths {
        let text = text(path)?;
        let logs = read_logs(&text).map_err(|source| Error::Log {
            path: path.clone(),
            source,
        })?;
        let name = name(path);
        let several = logs.len() > 1;
        for (index, log) in logs.iter().enumerate() {
            let name = if several {
                format!("{name}, log {}", index + 1)
            } else {
                name.clone()
            };
            reviews.extend(review(log, &name, known));
        }
    }
    Ok(reviews)
}

/// The input files that are not standard input. No output may overwrite them.
pub(super) fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths
        .iter()
        .filter(|path| !is_stdout(path))
        .cloned()
        .collect()
}

/// Returns the search of a log for the comparison: the last one that has a trial.
///
/// # Errors
/// As [`read`], or a log without a trial.
pub(super) fn read_one(path: &Path, known: &Known) -> Result<Review, Error> {
    let reviews = read(&[path.to_owned()], known)?;
    let last = reviews
        .into_iter()
        .rfind(|review| !review.trials.is_empty());
    last.ok_or_else(|| Error::NothingToCompare {
        path: path.to_owned(),
        why: "no trial is in it",
    })
}

/// Name of a log: its file name.
pub(crate) fn name(path: &Path) -> String {
    if is_stdout(path) {
        return "standard input".to_owned();
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Text of a log, which may be gzipped or truncated.
///
/// # Errors
/// A file that cannot be read, or is not a file.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Open {
        path: path.to_owned(),
        source,
    };
    let input = if is_stdout(path) {
        Input::from_reader(io::stdin(), path).map_err(failed)
    } else {
        Input::open(path).map_err(|error| match error {
            ReadError::NotAFile { path, kind } => Error::NotAFile { path, kind },
            ReadError::Io { path, source, .. } => Error::Open { path, source },
            error => error.into(),
        })
    };
    let mut bytes = Vec::new();
    let mut input = input?.take(BYTES_MOST + 1);
    if let Err(error) = input.read_to_end(&mut bytes) {
        // Of a truncated compressed log, use the data before the end.
        if bytes.is_empty() || error.kind() != io::ErrorKind::UnexpectedEof {
            return Err(failed(error));
        }
    }
    if bytes.len() as u64 > BYTES_MOST {
        return Err(Error::LargeLog {
            path: path.to_owned(),
            most_mib: BYTES_MOST >> 20,
        });
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LOG: &str = "cycle_time_ms,tensor_fusion_threshold,score\n5,4,100\n";

    #[test]
    fn plain_or_gzipped_whole_or_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed) = (folder.path().join("a.csv"), folder.path().join("a.csv.gz"));
        std::fs::write(&plain, LOG).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(LOG.as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        std::fs::write(&packed, &bytes).unwrap();
        let reviews = read(&[plain, packed.clone()], &Known::default()).unwrap();
        assert_eq!(
            (
                reviews.len(),
                reviews[0].trials.len(),
                reviews[1].trials.len()
            ),
            (2, 1, 1)
        );
        assert_eq!(reviews[1].source, "a.csv.gz");
        // Without the checksum and length at its end.
        std::fs::write(&packed, &bytes[..bytes.len() - 8]).unwrap();
        assert_eq!(
            read_one(&packed, &Known::default()).unwrap().trials.len(),
            1
        );
    }

    #[test]
    fn devices_and_other_texts_are_refused() {
        let message = |path: &Path| read_one(path, &Known::default()).unwrap_err().to_string();
        assert_eq!(
            message(Path::new("/dev/zero")),
            "/dev/zero is a device; give a log that HOROVOD_AUTOTUNE_LOG named"
        );
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&other, b"a,b\n\xff\n").unwrap();
        assert!(message(other.path()).contains("not an autotune log"));
    }
}
