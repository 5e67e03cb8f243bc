//! The job that is replayed: a fit, and where it comes from.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::present::output::check_distinct;
use crate::timeline::error::Error as TimelineError;
use crate::timeline::fitted;
use crate::timeline::input::{Inputs, Run};
use crate::timeline::profile as extracted;
use ronde_job::replay::profile::Profile;
use ronde_job::replay::{Fit, Hosts, JobTopology};

/// Largest profile read, in bytes: as the benchmark's.
const PROFILE_BYTES_MOST: u64 = 64 << 20;
/// Enough to see what a file is.
const HEAD_BYTES: u64 = 512;

/// What is to be read.
pub(crate) struct Recording<'a> {
    /// The timelines of one run, or a profile.
    pub(crate) paths: &'a [PathBuf],
    /// What will be written, and must overwrite none of it.
    pub(crate) outputs: &'a [&'a Path],
    /// Steps to go by, counted from 0.
    pub(crate) steps: Option<RangeInclusive<u64>>,
    /// Ranks on each host when it was recorded, if the user knows better.
    pub(crate) ranks_per_host: Option<u32>,
}

/// See the module.
pub(crate) struct Job {
    /// What the user calls it.
    pub(crate) name: String,
    /// What kind of file it was.
    pub(crate) kind: &'static str,
    /// Whether the model can be held against recorded steps.
    pub(crate) recorded_steps: Option<usize>,
    /// Workload and costs.
    pub(crate) fit: Fit,
    /// What the benchmark needs to run it, and what it cannot.
    pub(crate) profile: Result<Profile, extracted::ProfileError>,
    /// What the reader should know.
    pub(crate) warnings: Vec<String>,
}

impl Job {
    /// Reads a recording, after seeing that outputs overwrite none of it.
    ///
    /// # Errors
    /// [`Error`].
    pub(crate) fn read(recording: &Recording<'_>) -> Result<Self, Error> {
        let mut job = match recording.paths {
            [path] if is_profile(path) => {
                check_distinct(recording.outputs, recording.paths)?;
                if recording.steps.is_some() {
                    return Err(Error::NeedsTraces);
                }
                of_profile(path)?
            }
            paths => {
                let inputs = Inputs::find(paths)?;
                check_distinct(recording.outputs, inputs.files())?;
                of_timeline(inputs, recording.steps.clone())?
            }
        };
        if let Some(per_host) = recording.ranks_per_host {
            job.fit.place = JobTopology {
                ranks_per_host: per_host.clamp(1, job.fit.place.ranks.max(1)),
                hosts: Hosts::Known,
                ..job.fit.place
            };
        }
        Ok(job)
    }
}

/// Whether the file says early on that it is one.
fn is_profile(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = path.metadata().is_ok_and(|metadata| metadata.is_file())
        && File::open(path).is_ok_and(|file| file.take(HEAD_BYTES).read_to_end(&mut head).is_ok());
    let head = String::from_utf8_lossy(&head);
    read && head.trim_start().starts_with('{') && head.contains("\"ronde_profile\"")
}

fn of_profile(path: &Path) -> Result<Job, Error> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(PROFILE_BYTES_MOST + 1).read_to_end(&mut bytes));
    file.map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    if bytes.len() as u64 > PROFILE_BYTES_MOST {
        return Err(Error::TooLarge {
            path: path.to_owned(),
            most: PROFILE_BYTES_MOST,
        });
    }
    let wrong = |source| Error::Profile {
        path: path.to_owned(),
        source,
    };
    let profile = Profile::parse(&bytes).map_err(wrong)?;
    let (fit, warnings) = profile.fit().map_err(wrong)?;
    Ok(Job {
        name: path.display().to_string(),
        kind: "profile",
        recorded_steps: None,
        fit,
        profile: Ok(profile),
        warnings,
    })
}

fn of_timeline(inputs: Inputs, steps: Option<RangeInclusive<u64>>) -> Result<Job, Error> {
    let path = inputs.files().first().cloned().unwrap_or_default();
    if let Inputs::Report(_) = inputs {
        return Err(TimelineError::NeedsTraces { flag: "ronde replay" }.into());
    }
    let Run {
        report, replayable, ..
    } = inputs.read_steps(steps)?;
    let name = path.display().to_string();
    let mut warnings = report.warnings.clone();
    if let Some(replayable) = &replayable
        && let Some(fit) = fitted(replayable)
    {
        return Ok(Job {
            name,
            kind: "timeline",
            recorded_steps: Some(replayable.trace.steps.len()),
            profile: extracted::extract(&report, Some(fit.clone())).map(|(profile, _)| profile),
            fit,
            warnings,
        });
    }
    // Nothing of cycles or of batches: tensors and what collectives took are in most files.
    let not_replayable = |source| Error::NotReplayable {
        path: path.clone(),
        source,
    };
    let (profile, said) = extracted::extract(&report, None).map_err(not_replayable)?;
    let wrong = |source| Error::Profile {
        path: PathBuf::from(&path),
        source,
    };
    let (fit, assumed) = profile.fit().map_err(wrong)?;
    warnings.extend(said);
    warnings.push(
        "the files say nothing of cycles and batches: the job is replayed from its tensors alone".into(),
    );
    warnings.extend(assumed);
    Ok(Job {
        name,
        kind: "timeline",
        recorded_steps: None,
        fit,
        profile: Ok(profile),
        warnings,
    })
}
