//! Analysis of a recorded job: steps, phases, stragglers, fusion, bandwidth and advice.
//!
//! The analysis depends on [`crate`]'s model, not on file formats, and returns a [`Report`]. A
//! [`Collector`] reduces one file to a [`RankRecord`] while it is read; [`analyze`] joins the
//! records of a job's ranks. [`compare()`] compares two reports, [`scaling()`] a series of them.

mod advice;
mod bandwidth;
mod changepoint;
mod collect;
pub mod compare;
mod evidence;
mod examine;
mod fusion;
mod job;
mod join;
mod joined;
mod lanes;
mod op;
mod parts;
pub mod profile;
mod quantiles;
pub mod report;
pub mod scaling;
mod sources;
mod stages;
mod steady;
mod stragglers;
mod summary;
mod tensors;
mod traced;
mod whatif;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use ronde_job::replay::{self, Fit, JobTopology, Rules, Trace};

pub use collect::{Collector, RankRecord};
pub use compare::{Comparison, compare};
pub use report::Report;
pub use scaling::{Scaling, ScalingError, ScalingRun, scaling};

/// Reason why files cannot be analysed together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisError {
    /// No file was given.
    #[error("no timeline was given")]
    Nothing,
    /// Two files are of the same rank and are not segments of one recording.
    #[error(
        "{} and {} both say that they are rank {rank}'s; give the files of one job, one for each rank and all of one format \
         (segments of one recording are called t.old.json and t.json)",
        first.display(),
        second.display()
    )]
    RankTwice {
        /// Rank of both files.
        rank: u32,
        /// First file.
        first: PathBuf,
        /// Second file.
        second: PathBuf,
    },
    /// Two files cannot be of one job.
    #[error(
        "{} and {} are not of one job: {why}; give the files of one job, one for each rank, or compare two jobs with --compare A B",
        first.display(),
        second.display()
    )]
    OtherJob {
        /// First file.
        first: PathBuf,
        /// Second file.
        second: PathBuf,
        /// Difference that shows it.
        why: String,
    },
    /// None of the requested steps is in the files.
    #[error(
        "steps {first}..{} {}: {steps} steps were recorded, counted from 0",
        if *last == u64::MAX { String::new() } else { last.to_string() },
        if first > last { "are in the wrong order (give the first step first)" } else { "are not there" }
    )]
    NoSuchSteps {
        /// First requested step.
        first: u64,
        /// Last requested step.
        last: u64,
        /// Number of steps in the files.
        steps: u64,
    },
}

/// Analyses the files of one job.
///
/// # Errors
/// [`AnalysisError`]: two files of one rank, files of different jobs, or no file. Oddities within
/// the files lead to warnings in the report.
pub fn analyze(records: Vec<RankRecord>) -> Result<Report, AnalysisError> {
    analyze_steps(records, 0..=u64::MAX)
}

/// Analyses some steps of a job, counted from 0: start-up and steady steps are determined among
/// these.
///
/// # Errors
/// [`AnalysisError`] as for [`analyze`], or if none of the steps is in the files.
pub fn analyze_steps(
    records: Vec<RankRecord>,
    steps: RangeInclusive<u64>,
) -> Result<Report, AnalysisError> {
    let records = put_together(records, &steps)?;
    Ok(examine::examine(&records, &steps).0)
}

/// A recording that can be replayed: see [`ronde_job::replay::fit`](fn@ronde_job::replay::fit).
#[derive(Clone, Debug)]
pub struct Replayable {
    /// The steady steps.
    pub trace: Trace,
    /// Rules by which the recorded cycles began.
    pub rules: Rules,
    /// Hosts of the ranks: one host if the file shows that memory was shared, otherwise one for
    /// each rank.
    pub place: JobTopology,
    /// Whether allreduces are hierarchical: they reduce and scatter within hosts first.
    pub is_hierarchical: bool,
}

impl Replayable {
    /// Fits the model of a job to the recording; `None` if its steps cannot be modelled.
    pub fn fit(&self) -> Option<Fit> {
        replay::fit(std::slice::from_ref(&self.trace), self.rules, self.place)
    }
}

/// Analyses as [`analyze_steps`], and returns the steady steps for replay. None if the files do not
/// record negotiation, fusion or sizes.
///
/// # Errors
/// [`AnalysisError`] as for [`analyze_steps`].
pub fn analyze_for_replay(
    records: Vec<RankRecord>,
    steps: RangeInclusive<u64>,
) -> Result<(Report, Option<Replayable>), AnalysisError> {
    let records = put_together(records, &steps)?;
    let (report, steady) = examine::examine(&records, &steps);
    let replayable = traced::replayable(&records[0], &steady, &report);
    Ok((report, replayable))
}

/// Records of one job in order of rank.
fn put_together(
    records: Vec<RankRecord>,
    steps: &RangeInclusive<u64>,
) -> Result<Vec<RankRecord>, AnalysisError> {
    let records = job::put_together(records)?;
    let recorded = records[0].steps.len() as u64;
    if steps.is_empty() || (*steps.start() > 0 && *steps.start() >= recorded) {
        return Err(AnalysisError::NoSuchSteps {
            first: *steps.start(),
            last: *steps.end(),
            steps: recorded,
        });
    }
    Ok(records)
}
