//! Command-line arguments of `ronde timeline`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::present::output::given;

/// Default number of rows in the tables of tensors.
const TENSORS_DEFAULT: u32 = 10;

/// Arguments for the report on one run.
const OF_ONE_RUN: [&str; 7] = [
    "paths", "csv", "html", "profile", "merge", "steps", "tensors",
];

const EXAMPLES: &str = "\
Examples:
  ronde timeline t.json                              parts of a step, late ranks, settings to change
  ronde timeline t.json t.rank1.json --html t.html   all ranks together, as a page with charts
  ronde timeline tr --json -                         a folder of traces; the report as JSON
  ronde timeline t.json --profile p.json             tensors and costs, for ronde bench --profile
  ronde timeline t.json t.rank*.json --merge m.json  one trace on one clock, for Perfetto
  ronde timeline --compare before.json after.json    what changed, and by how much
  ronde timeline --scaling 1.json 2.json 4.json      speed-up and efficiency on 1, 2 and 4 ranks";

const LONG_ABOUT: &str = "\
Analyse a recorded job: parts of a step, late ranks, settings to change

Reads timelines of Horovod and Ronde (HOROVOD_TIMELINE), BytePS's comm.json and traces of PyTorch's \
profiler, plain or gzipped; damaged or unfinished files as far as they go. A report that --json wrote is shown again.

The columns of --csv, one row a step: step, began_ms (since the file's beginning), ms, tensors, \
batches, bytes, partial (1 if it is not counted in the summaries), then for each part of a step \
NAME_ms (what it adds to the step) and NAME_total_ms (with what computation hides).";

/// Analyse a recorded job: parts of a step, late ranks, settings to change
#[derive(clap::Args)]
#[command(
    override_usage = "ronde timeline FILE|DIR… [OPTIONS]\n       \
                      ronde timeline --compare A B [--json FILE]\n       \
                      ronde timeline --scaling RUN… [--json FILE]",
    long_about = LONG_ABOUT,
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    /// The timelines of one run: its ranks' files, or folders of them
    #[arg(value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    #[arg(required_unless_present_any = ["compare", "scaling"])]
    pub(super) paths: Vec<PathBuf>,
    /// Compare two runs, each a timeline, a folder or a --json report; files of one run may be
    /// joined by commas
    #[arg(long, value_names = ["A", "B"], num_args = 2, value_hint = ValueHint::AnyPath)]
    #[arg(conflicts_with_all = OF_ONE_RUN, conflicts_with = "scaling")]
    compare: Option<Vec<PathBuf>>,
    /// Compare runs on 1, 2, 4, … ranks, each as for --compare or a file that `ronde bench --json`
    /// wrote
    #[arg(long, value_name = "RUN", num_args = 1.., value_hint = ValueHint::AnyPath)]
    #[arg(conflicts_with_all = OF_ONE_RUN)]
    scaling: Option<Vec<PathBuf>>,
    /// Write the report as JSON to this file; - is standard output, instead of the text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) json: Option<PathBuf>,
    /// Write a row for each step as CSV to this file; - is standard output, instead of the text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) csv: Option<PathBuf>,
    /// Write the report as one HTML page with charts, which needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
    /// Write the tensors, their sizes and ready times, and the measured costs, for `ronde bench
    /// --profile`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) profile: Option<PathBuf>,
    /// Write all ranks into one trace on rank 0's clock, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) merge: Option<PathBuf>,
    /// Use only these steps, counted from 0, the last included: A..B, A.., ..B or A
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub(super) steps: Option<RangeInclusive<u64>>,
    /// Rows of the tables of tensors [default: 10]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(0, 1_000_000))]
    tensors: Option<u32>,
}

/// Task that the arguments request.
pub(super) enum Task<'a> {
    /// Report on one run.
    Analyse,
    /// Comparison of two runs.
    Compare([&'a Path; 2]),
    /// Scaling of a series of runs.
    Scaling(&'a [PathBuf]),
}

impl Args {
    /// Returns the requested task.
    pub(super) fn task(&self) -> Task<'_> {
        match (self.compare.as_deref(), self.scaling.as_deref()) {
            (Some([a, b]), _) => Task::Compare([a, b]),
            (_, Some(runs)) => Task::Scaling(runs),
            _ => Task::Analyse,
        }
    }

    /// All output files.
    pub(super) fn outputs(&self) -> Vec<&Path> {
        given([
            &self.json,
            &self.csv,
            &self.html,
            &self.profile,
            &self.merge,
        ])
    }

    /// Number of rows in the tables of tensors.
    pub(super) fn tensors(&self) -> usize {
        self.tensors.unwrap_or(TENSORS_DEFAULT) as usize
    }
}

/// Parses a range of steps: `A..B`, `A..`, `..B` or `A`; both ends are included.
pub(crate) fn parse_steps(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |digits: &str, open: u64| match digits.trim() {
        "" if text.contains("..") => Some(open),
        digits => digits.parse().ok(),
    };
    match (number(first, 0), number(last, u64::MAX)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(first), Some(last)) => Err(format!(
            "the first step, {first}, comes after the last, {last}; give steps as {last}..{first}"
        )),
        _ => Err("give steps as A..B, counted from 0, such as 10..30".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_a_range_that_may_be_open() {
        assert_eq!(parse_steps("10..30"), Ok(10..=30));
        assert_eq!(parse_steps("5.."), Ok(5..=u64::MAX));
        assert_eq!(parse_steps("..5"), Ok(0..=5));
        assert_eq!(parse_steps(".."), Ok(0..=u64::MAX));
        assert_eq!(parse_steps("7"), Ok(7..=7));
    }
}
