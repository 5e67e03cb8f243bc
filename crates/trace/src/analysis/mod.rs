//! What a recorded job spent its time on: steps, phases, stragglers, fusion, bandwidth, and what to change.
//!
//! Reads [`crate`]'s model, knows no file format, and yields a [`Report`]. A [`Collector`] takes in one file while
//! it is read and comes down to a [`RankRecord`]; [`analyze`] joins those of a job's ranks. Two reports are held against
//! each other by [`compare()`], a series of them by [`scaling()`].

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
mod lanes;
mod op;
mod parts;
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

use ronde_job::replay::{JobTopology, Rules, Trace};

pub use collect::{Collector, RankRecord};
pub use compare::{Comparison, compare};
pub use report::Report;
pub use scaling::{Scaling, ScalingError, ScalingRun, scaling};

/// Why files cannot be analysed together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisError {
    /// There is nothing to analyse.
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
        /// The rank.
        rank: u32,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Two files cannot be of one job.
    #[error(
        "{} and {} are not of one job: {why}; give the files of one job, one for each rank, or compare two jobs with --compare A B",
        first.display(),
        second.display()
    )]
    OtherJob {
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// How it is known.
        why: String,
    },
    /// None of the steps asked for is in the files.
    #[error(
        "steps {first}..{} {}: {steps} steps were recorded, counted from 0",
        if *last == u64::MAX { String::new() } else { last.to_string() },
        if first > last { "are in the wrong order (give the first step first)" } else { "are not there" }
    )]
    NoSuchSteps {
        /// The first asked for.
        first: u64,
        /// The last.
        last: u64,
        /// Steps that there are.
        steps: u64,
    },
}

/// Joins the files of one job.
///
/// # Errors
/// [`AnalysisError`]: two files of one rank, or none at all. Whatever is odd inside the files is a warning in the
/// report.
pub fn analyze(records: Vec<RankRecord>) -> Result<Report, AnalysisError> {
    analyze_steps(records, 0..=u64::MAX)
}

/// The same for some steps, counted from 0: start-up, steady steps and all that follows from them are sought among
/// these.
///
/// # Errors
/// Likewise; and if none of them is there.
pub fn analyze_steps(records: Vec<RankRecord>, steps: RangeInclusive<u64>) -> Result<Report, AnalysisError> {
    let records = put_together(records, &steps)?;
    Ok(examine::examine(&records, &steps).0)
}

/// A recording that replay can run: see [`ronde_job::replay::fit`](fn@ronde_job::replay::fit).
#[derive(Clone, Debug)]
pub struct Replayable {
    /// The steady steps.
    pub trace: Trace,
    /// How its cycles came about.
    pub rules: Rules,
    /// Where its ranks were: on one host if the file says that memory was shared, else one on each.
    pub place: JobTopology,
}

/// As [`analyze_steps`], with the steady steps as replay wants them; none if the files do not say how tensors were negotiated and
/// fused, or how large they are.
///
/// # Errors
/// Likewise.
pub fn analyze_for_replay(
    records: Vec<RankRecord>,
    steps: RangeInclusive<u64>,
) -> Result<(Report, Option<Replayable>), AnalysisError> {
    let records = put_together(records, &steps)?;
    let (report, steady) = examine::examine(&records, &steps);
    let replayable = traced::replayable(&records[0], &steady, &report);
    Ok((report, replayable))
}

/// The files of one job in order of rank.
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
