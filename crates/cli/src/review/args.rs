//! Command-line arguments of `ronde review`.

use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::present::output::given;
use ronde_lab::review::Known;

/// Largest value accepted for a setting of the job.
const SAMPLES_MOST: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  ronde review autotune.csv                          whether the search ended, the setting to use, the next one to try
  ronde review autotune.csv --html r.html            a page with charts, which needs no network
  ronde review autotune.csv --png r.png              only the charts
  ronde review autotune.csv --max-samples 40 --steps-per-sample 20
                                                     Horovod's log of a job with these settings
  ronde review monday.csv tuesday.csv.gz --json -    several logs, as JSON
  ronde review --compare monday.csv tuesday.csv      the settings that both tried, and the better choice";

const LONG_ABOUT: &str = "\
Review an autotune log: whether the search ended, how noisy its trials are, which setting to use, which to try next

Reads the logs of Horovod (HOROVOD_AUTOTUNE_LOG) and of Ronde, complete or truncated, plain or gzipped, with commas, semicolons or \
tabs. A file may contain several logs. A surface is fitted to all trials of a search, and their noise is estimated with it, so the \
expected value of a setting depends on its neighbours too.

Horovod's log has scores (bytes per µs, higher is better) and thresholds in MiB. Horovod's search never tries its default.";

/// Review an autotune log: whether the search ended, which setting to use, which to try next
#[derive(clap::Args)]
#[command(
    override_usage = "ronde review LOG.csv… [OPTIONS]\n       \
                      ronde review --compare A.csv B.csv [--json FILE]",
    long_about = LONG_ABOUT,
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    /// Autotune logs of different jobs; - is standard input
    #[arg(value_name = "LOG.csv|-", required_unless_present = "compare", value_hint = ValueHint::AnyPath)]
    pub(super) paths: Vec<PathBuf>,
    /// Compare two logs: the settings that both tried, their agreement, the better choice
    #[arg(long, value_names = ["A.csv", "B.csv"], num_args = 2, value_hint = ValueHint::AnyPath,
          conflicts_with_all = ["paths", "html", "png", "svg"])]
    compare: Option<Vec<PathBuf>>,
    /// Write the review as one HTML page with charts, which needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
    /// Write the charts, one below the other, as PNG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) png: Option<PathBuf>,
    /// Write the charts, one below the other, as SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) svg: Option<PathBuf>,
    /// Write the review as JSON to this file; - is standard output, instead of the text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) json: Option<PathBuf>,
    /// HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES of the job [default: from the log, or 20]
    #[arg(long, value_name = "M", value_parser = crate::range::whole::<u64>(1, SAMPLES_MOST))]
    max_samples: Option<u64>,
    /// HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE of the job [default: 10]
    #[arg(long, value_name = "S", value_parser = crate::range::whole::<u64>(1, SAMPLES_MOST))]
    steps_per_sample: Option<u64>,
}

impl Args {
    /// The two logs of `--compare`.
    pub(super) fn compared(&self) -> Option<[&Path; 2]> {
        match self.compare.as_deref() {
            Some([a, b]) => Some([a, b]),
            _ => None,
        }
    }

    /// Settings of the job that the user stated.
    pub(super) fn known(&self) -> Known {
        Known {
            max_samples: self.max_samples,
            steps_per_sample: self.steps_per_sample,
        }
    }

    /// All output files.
    pub(super) fn outputs(&self) -> Vec<&Path> {
        given([&self.html, &self.png, &self.svg, &self.json])
    }
}
