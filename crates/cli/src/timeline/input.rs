//! Input of `ronde timeline`: finds the files of a run, and reads and analyses them, or reads an
//! earlier report.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::Value;

use ronde_trace::Source;
use ronde_trace::analysis::report::REPORT_VERSION;
use ronde_trace::analysis::{Collector, Replayable, Report, analyze_for_replay};

use super::progress::Progress;
use crate::error::Error;

/// Largest size in bytes of a result of `ronde bench`. Larger files are traces, which are read only
/// once.
const BENCH_BYTES_MAX: u64 = 1 << 20;

/// Number of bytes read to identify the format of a file.
const HEAD_BYTES: u64 = 512;

/// Name of the first field of a report, which has its version.
const REPORT_KEY: &str = "ronde_timeline";

/// Run that has been read.
pub(crate) struct Run {
    /// Report on the run.
    pub(crate) report: Report,
    /// Files of the run; empty if the input was a report.
    pub(super) sources: Vec<Source>,
    /// Steady steps for replay, if the files contain enough data.
    pub(crate) replayable: Option<Replayable>,
}

/// Input files of a run, by format.
pub(crate) enum Inputs {
    /// Timelines that are analysed together.
    Traces(Vec<PathBuf>),
    /// Report written by `--json`.
    Report([PathBuf; 1]),
    /// Result written by `ronde bench --json`.
    Bench([PathBuf; 1], Value),
}

impl Inputs {
    /// Finds the files of a run.
    ///
    /// # Errors
    /// A path that cannot be read, or a folder without traces.
    pub(crate) fn find(paths: &[PathBuf]) -> Result<Self, Error> {
        let result = match paths {
            [path] => Self::result(path),
            _ => None,
        };
        result.map_or_else(|| Ok(Self::Traces(ronde_trace::files(paths)?)), Ok)
    }

    /// Finds the files of a run given as one argument: a path, or several paths joined by commas.
    pub(super) fn find_joined(run: &Path) -> Result<Self, Error> {
        match run.to_str() {
            Some(text) if !run.exists() => {
                Self::find(&text.split(',').map(PathBuf::from).collect::<Vec<_>>())
            }
            _ => Self::find(&[run.to_owned()]),
        }
    }

    /// Returns a report or a benchmark's result, if `path` is one. Other files are left to the
    /// readers of traces, which report their errors.
    fn result(path: &Path) -> Option<Self> {
        let (head, length) = head(path)?;
        let object = head.trim_start().strip_prefix('{')?.trim_start();
        let (first, _) = object.strip_prefix('"')?.split_once('"')?;
        if first == REPORT_KEY {
            return Some(Self::Report([path.to_owned()]));
        }
        if length > BENCH_BYTES_MAX || head.contains("\"traceEvents\"") {
            return None;
        }
        let value: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        if value.get(REPORT_KEY).is_some() {
            return Some(Self::Report([path.to_owned()]));
        }
        // Profiles also have `np` and `step_ms`, but there `step_ms` is a number.
        let is_bench = value.get("np").is_some() && value["step_ms"].is_object();
        is_bench.then(|| Self::Bench([path.to_owned()], value))
    }

    /// Input files, which no output may overwrite.
    pub(crate) fn files(&self) -> &[PathBuf] {
        match self {
            Self::Traces(files) => files,
            Self::Report(file) | Self::Bench(file, _) => file,
        }
    }

    /// Reads the files and analyses `steps`, by default all.
    ///
    /// # Errors
    /// Files that are not traces or do not belong together, a damaged report, or the result of a
    /// benchmark; `steps` for a report, which cannot be analysed again.
    pub(crate) fn read_steps(self, steps: Option<RangeInclusive<u64>>) -> Result<Run, Error> {
        match self {
            Self::Traces(files) => read_traces(&files, steps.unwrap_or(0..=u64::MAX)),
            Self::Report(_) if steps.is_some() => Err(Error::NeedsTraces {
                flag: "--steps",
                given: "report",
            }),
            Self::Report([path]) => Ok(Run {
                report: read_report(path)?,
                sources: Vec::new(),
                replayable: None,
            }),
            Self::Bench([path], _) => Err(Error::Bench { path }),
        }
    }

    /// Reads the files and returns the report on all steps.
    pub(super) fn report(self) -> Result<Report, Error> {
        Ok(self.read_steps(None)?.report)
    }
}

/// First bytes of a regular file as text, and its length. Pipes are skipped: a pipe can be opened
/// only once, and the reader of traces opens it.
pub(crate) fn head(path: &Path) -> Option<(String, u64)> {
    let metadata = path.metadata().ok().filter(|metadata| metadata.is_file())?;
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some((String::from_utf8_lossy(&head).into_owned(), metadata.len()))
}

fn read_traces(files: &[PathBuf], steps: RangeInclusive<u64>) -> Result<Run, Error> {
    let progress = Progress::new("reading", files.iter().map(PathBuf::as_path));
    let read = |(index, file): (usize, &PathBuf)| {
        let mut collector = Collector::new();
        let mut told = |bytes| progress.show(index, bytes);
        let source = ronde_trace::read(file, &mut collector, &mut told)?;
        Ok((source.clone(), collector.finish(source)))
    };
    let read = files.iter().enumerate().map(read);
    let (sources, records) = read.collect::<Result<(Vec<_>, Vec<_>), Error>>()?;
    drop(progress);
    let (report, replayable) = analyze_for_replay(records, steps)?;
    Ok(Run {
        report,
        sources,
        replayable,
    })
}

fn read_report(path: PathBuf) -> Result<Report, Error> {
    /// Fields that reports of all versions have.
    #[derive(serde::Deserialize)]
    struct Version {
        ronde_timeline: u64,
    }
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(source) => return Err(Error::Open { path, source }),
    };
    match serde_json::from_slice(&bytes) {
        Ok(Version { ronde_timeline }) if ronde_timeline != u64::from(REPORT_VERSION) => {
            Err(Error::ReportVersion {
                path,
                found: ronde_timeline,
                expected: REPORT_VERSION,
            })
        }
        _ => serde_json::from_slice(&bytes).map_err(|source| Error::Report { path, source }),
    }
}
