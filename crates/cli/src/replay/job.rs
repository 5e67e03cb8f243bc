//! Recorded job that is replayed: the fitted model, its source and its evidence.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::present::output::check_distinct;
use crate::timeline::input::{Inputs, Run, head};
use ronde_job::gate::{Evidence, Withheld};
use ronde_job::replay::profile::Profile;
use ronde_job::replay::{Fit, Hosts, JobTopology};
use ronde_trace::analysis::profile as extracted;

/// Largest profile that is read, in bytes; the same limit as the benchmark's.
const PROFILE_BYTES_MOST: u64 = 64 << 20;
/// Names of settings that some recordings do not state.
pub(crate) const THRESHOLD: &str = "fusion threshold";
pub(crate) const CYCLE_TIME: &str = "cycle time";

/// Files to read, and their interpretation.
pub(crate) struct Recording<'a> {
    /// Timelines of one run, or a profile.
    pub(crate) paths: &'a [PathBuf],
    /// Output files, which must not overwrite an input.
    pub(crate) outputs: &'a [&'a Path],
    /// Steps to use, counted from 0.
    pub(crate) steps: Option<RangeInclusive<u64>>,
    /// Ranks on each host during the recording, if the user states it.
    pub(crate) ranks_per_host: Option<u32>,
}

/// Recorded job with the fitted model.
pub(crate) struct Job {
    /// Name of the job for the user.
    pub(crate) name: String,
    /// Kind of the input file.
    pub(crate) kind: &'static str,
    /// Number of recorded steps that the model was compared with; `None` if the file has no
    /// replayable steps.
    pub(crate) recorded_steps: Option<usize>,
    /// Workload and costs of the model.
    pub(crate) fit: Fit,
    /// Profile for the benchmark, or the reason why there is none.
    pub(crate) profile: Result<Profile, extracted::ProfileError>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
    /// Evidence for a recommendation: the settings that the files state, and the accuracy of the
    /// model.
    pub(crate) evidence: Evidence,
    /// Reason of the recording's analysis to recommend no setting.
    pub(crate) withheld: Option<Withheld>,
    /// Whether the recorded allreduces are hierarchical.
    pub(crate) is_hierarchical: bool,
    /// Threshold of host memory, if the lower one of GPUs was in force.
    pub(crate) host_threshold_bytes: Option<u64>,
}

impl Job {
    /// Reason to recommend no setting, if there is one.
    pub(crate) fn withheld(&self) -> Option<Withheld> {
        self.withheld
            .clone()
            .or_else(|| self.evidence.check().err())
    }

    /// Whether the recording states the setting with this name.
    pub(crate) fn states(&self, setting: &str) -> bool {
        !self
            .evidence
            .unknown_settings
            .iter()
            .any(|unknown| unknown == setting)
    }

    /// Reads a recording, after a check that no output overwrites it.
    pub(crate) fn read(recording: &Recording<'_>) -> Result<Self, Error> {
        let mut job = match recording.paths {
            [path] if is_profile(path) => {
                check_distinct(recording.outputs, recording.paths)?;
                if recording.steps.is_some() {
                    return Err(Error::NeedsTraces {
                        flag: "--steps",
                        given: "profile",
                    });
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

/// Whether the beginning of the file is that of a profile.
fn is_profile(path: &Path) -> bool {
    head(path).is_some_and(|(head, _)| {
        head.trim_start().starts_with('{') && head.contains("\"ronde_profile\"")
    })
}

fn of_profile(path: &Path) -> Result<Job, Error> {
    let mut bytes = Vec::new();
    let file =
        File::open(path).and_then(|file| file.take(PROFILE_BYTES_MOST + 1).read_to_end(&mut bytes));
    file.map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    if bytes.len() as u64 > PROFILE_BYTES_MOST {
        return Err(Error::LargeProfile {
            path: path.to_owned(),
            most: PROFILE_BYTES_MOST,
        });
    }
    let wrong = |source| Error::Profile {
        path: path.to_owned(),
        source,
    };
    let profile = Profile::parse(&bytes).map_err(wrong)?;
    let (fit, mut warnings) = profile.fit().map_err(wrong)?;
    if profile.is_hierarchical {
        warnings.push(HIERARCHICAL.into());
    }
    Ok(Job {
        name: path.display().to_string(),
        kind: "profile",
        evidence: evidence(
            &fit,
            profile.fusion_threshold_bytes.is_some(),
            profile.cycle_time_ms.is_some(),
        ),
        withheld: profile.withheld.clone(),
        is_hierarchical: profile.is_hierarchical,
        host_threshold_bytes: profile.host_threshold_bytes,
        recorded_steps: None,
        fit,
        profile: Ok(profile),
        warnings,
    })
}

/// Warning about hierarchical recordings.
const HIERARCHICAL: &str = "the allreduces were recorded as hierarchical ones: all predictions are of such, and flat ones are \
     not compared";

fn of_timeline(inputs: Inputs, steps: Option<RangeInclusive<u64>>) -> Result<Job, Error> {
    let path = inputs.files().first().cloned().unwrap_or_default();
    if let Inputs::Report(_) = inputs {
        return Err(Error::NeedsTraces {
            flag: "ronde replay",
            given: "report",
        });
    }
    let Run {
        report, replayable, ..
    } = inputs.read_steps(steps)?;
    let name = path.display().to_string();
    let mut warnings = report.warnings.clone();
    let withheld = report.withheld.clone();
    let fusion = report.fusion.as_ref();
    let states_threshold = fusion.is_some_and(|fusion| fusion.threshold_from_file);
    let states_cycle = fusion.is_some_and(|fusion| fusion.cycle_time_ms.is_some());
    let is_hierarchical = replayable.as_ref().is_some_and(|it| it.is_hierarchical);
    if is_hierarchical {
        warnings.push(HIERARCHICAL.into());
    }
    let recorded = replayable.as_ref().and_then(|replayable| {
        let fit = replayable.fit()?;
        Some((fit, replayable.trace.steps.len()))
    });
    let (fit, profile, recorded_steps) = match recorded {
        Some((fit, steps)) => {
            let profile = extracted::extract(&report, Some(fit.clone()), is_hierarchical);
            (fit, profile.map(|(profile, _)| profile), Some(steps))
        }
        // The recording has no cycles or batches, but most files have tensors and times of
        // collectives.
        None => {
            let (profile, said) =
                extracted::extract(&report, None, is_hierarchical).map_err(|source| {
                    let path = path.clone();
                    Error::NotReplayable { path, source }
                })?;
            let (fit, assumed) = profile
                .fit()
                .map_err(|source| Error::Profile { path, source })?;
            warnings.extend(said);
            warnings.push(
                "the files do not contain cycles and batches: the job is replayed from its tensors only"
                    .into(),
            );
            warnings.extend(assumed);
            (fit, Ok(profile), None)
        }
    };
    Ok(Job {
        name,
        kind: "timeline",
        recorded_steps,
        evidence: evidence(&fit, states_threshold, states_cycle),
        withheld,
        is_hierarchical,
        host_threshold_bytes: fusion.and_then(|fusion| fusion.host_threshold_bytes),
        fit,
        profile,
        warnings,
    })
}

/// Evidence of a fit. The arguments tell whether the recording states the threshold and the cycle
/// time of the reference setting.
fn evidence(fit: &Fit, states_threshold: bool, states_cycle: bool) -> Evidence {
    let settings = [(states_threshold, THRESHOLD), (states_cycle, CYCLE_TIME)];
    let unknown = settings.into_iter().filter(|(stated, _)| !stated);
    Evidence {
        unknown_settings: unknown.map(|(_, name)| name.to_owned()).collect(),
        model: Some([fit.measured_us / 1e3, fit.modelled_us / 1e3]),
        ..Evidence::default()
    }
}
