//! Arguments of `ronde tune`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ronde_command::Use;

use crate::present::output::given;

const EXAMPLES: &str = r#"Examples:
  ronde tune --parameter 'bucket=1..256,log,start=25' --metric 'step_ms=([0-9.]+)' -- \
    torchrun --nproc-per-node 4 train.py --bucket {bucket}
                                      the figure that the script prints as step_ms=…, lower is better
  ronde tune --parameter threads=1..16 -- sort --parallel={threads} big.txt -o /dev/null
                                      the wall time
  ronde tune --preset megatron --check 'lm loss: ([0-9.E+-]+)' --time-limit 10m -- \
    torchrun pretrain_gpt.py …        a known program; the loss must not change
  ronde tune --preset list            the known programs: parameters, ranges, how values are passed
  ronde tune --parameter p=1..8 --env OMP_NUM_THREADS={p} --state s.json --html r.html -- ./solve
                                      a variable; Ctrl-C ends the search, the same command continues it
  ronde tune < requests.jsonl         without a command: the tuner as a service, lines of JSON in and out

Exit code: 0 if the search ended with a verdict, whichever setting it keeps; 1 if it failed, such as when the command
fails with the start; 2 for wrong usage; 128 and the signal's number if it was interrupted."#;

const LONG_ABOUT: &str = "\
Tune any program: run it with other settings, and keep what is shown to be faster

The command after -- is run with values of the parameters in the place of {name}. The start is measured first; then settings are \
chosen by a Gaussian process from the runs so far. Runs that are clearly slower are stopped early. The best setting is compared \
with the start in pairs of runs in random order, and kept only if it was faster there. A run that fails or exceeds the time \
limit counts as the worst.

Without a command, ronde tune is a service: a line of JSON in, a line of JSON out. docs/TUNE.md describes both, and a Python \
module for training loops.";

/// Value of `--preset` that lists all presets.
pub(super) const PRESET_LIST: &str = "list";

/// Default number of runs.
const RUNS: usize = 20;
/// Largest number of runs; a proposal after this many takes a second.
const RUNS_MOST: u64 = 500;
/// Default seed of all choices.
const SEED: u64 = 7;

/// Tune any program: run it with other settings, and keep what is shown to be faster
#[derive(clap::Args)]
#[command(
    override_usage = "ronde tune --parameter NAME=VALUES… [OPTIONS] -- COMMAND…\n       \
                      ronde tune --preset NAME [OPTIONS] -- COMMAND…\n       \
                      ronde tune [--space FILE] [--state FILE]",
    long_about = LONG_ABOUT,
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    /// Parameter: NAME=LOW..HIGH with options log, linear, integer, levels=N, start=V; NAME=A|B|C;
    /// or NAME=boolean
    #[arg(long = "parameter", short = 'p', value_name = "NAME=VALUES")]
    pub(super) parameters: Vec<String>,
    /// Parameters of a known program: ddp, deepspeed, megatron, xla or nccl; list explains each
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<String>,
    /// Regular expression with a group around the figure, for each line of the output [default: the
    /// wall time]
    #[arg(long, value_name = "REGEX", conflicts_with = "metric_file")]
    pub(super) metric: Option<String>,
    /// Which of several matches is the figure
    #[arg(long, value_name = "WHICH", value_parser = metric_use())]
    metric_use: Option<Use>,
    /// JSON file that the command writes, and the place of the figure in it: result.json:/step_ms
    #[arg(long, value_name = "FILE:POINTER")]
    pub(super) metric_file: Option<String>,
    /// A higher figure is better, such as a throughput
    #[arg(long)]
    pub(super) maximize: bool,
    /// Environment variable of the command, in which {name} is a parameter
    #[arg(long = "env", value_name = "NAME=TEXT")]
    pub(super) variables: Vec<String>,
    /// JSON file of which each run gets a copy, whose path is {config} in the command
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,
    /// Value in that copy: NAME.NAME={parameter}
    #[arg(long = "set", value_name = "PLACE=TEXT", requires = "config")]
    pub(super) sets: Vec<String>,
    /// Regular expression of a value that must not depend on the setting, such as the loss; the
    /// last match counts
    #[arg(long, value_name = "REGEX")]
    pub(super) check: Option<String>,
    /// Largest difference of that value from the start's [default: 1%]
    #[arg(long, value_name = "PERCENT", value_parser = share, requires = "check")]
    pub(super) check_tolerance: Option<f64>,
    /// Largest number of runs of the command, 8 to 500, those of the comparison included [default:
    /// 20]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<usize>(1, RUNS_MOST))]
    runs: Option<usize>,
    /// Time for all runs together: 10m, 1.5h
    #[arg(long, value_name = "TIME", value_parser = crate::range::time)]
    pub(super) budget: Option<Duration>,
    /// Longest time of a run; a longer one counts as the worst. --prepare may take as long
    #[arg(long, value_name = "TIME", value_parser = crate::range::time)]
    pub(super) time_limit: Option<Duration>,
    /// Runs with the start before the first one, which do not count [default: 0]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(0, 100))]
    warmup: Option<u32>,
    /// Shell command before each run, such as dropping caches
    #[arg(long, value_name = "COMMAND")]
    pub(super) prepare: Option<String>,
    /// Show the command's output, on standard error
    #[arg(long)]
    pub(super) show_output: bool,
    /// Write the output of each run to a file in this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(super) logs: Option<PathBuf>,
    /// Seed of all choices [default: 7]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// State file: continue from its runs, and write each run to it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) state: Option<PathBuf>,
    /// Write the result and all runs as JSON to this file; - is standard output, instead of the
    /// text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) json: Option<PathBuf>,
    /// Write the runs as CSV; - is standard output
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) csv: Option<PathBuf>,
    /// Write the result as Markdown; - is standard output
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) markdown: Option<PathBuf>,
    /// Write the result as one HTML page with a chart, which needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
    /// Without a command: read the parameters (the first line of the protocol) from this file
    /// instead of standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "command")]
    pub(super) space: Option<PathBuf>,
    /// Command with its arguments, in which {name} is a parameter
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

impl Args {
    /// Which of several matches is the figure.
    pub(super) fn metric_use(&self) -> Use {
        self.metric_use.unwrap_or_default()
    }

    /// Whether that was given.
    pub(super) fn metric_use_is_given(&self) -> bool {
        self.metric_use.is_some()
    }

    /// Largest number of runs of the command.
    pub(super) fn runs(&self) -> usize {
        self.runs.unwrap_or(RUNS)
    }

    /// Runs with the start that do not count.
    pub(super) fn warmup(&self) -> u32 {
        self.warmup.unwrap_or_default()
    }

    /// Seed of all choices.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }

    /// Files that are written.
    pub(super) fn outputs(&self) -> Vec<&Path> {
        given([&self.json, &self.csv, &self.markdown, &self.html])
    }

    /// An option that needs a command.
    pub(super) fn option_of_commands(&self) -> Option<&'static str> {
        let given = [
            ("--parameter", !self.parameters.is_empty()),
            ("--preset", self.preset.is_some()),
            ("--metric", self.metric.is_some()),
            ("--metric-use", self.metric_use.is_some()),
            ("--metric-file", self.metric_file.is_some()),
            ("--maximize", self.maximize),
            ("--env", !self.variables.is_empty()),
            ("--config", self.config.is_some()),
            ("--check", self.check.is_some()),
            ("--runs", self.runs.is_some()),
            ("--budget", self.budget.is_some()),
            ("--time-limit", self.time_limit.is_some()),
            ("--warmup", self.warmup.is_some()),
            ("--prepare", self.prepare.is_some()),
            ("--show-output", self.show_output),
            ("--logs", self.logs.is_some()),
            ("--seed", self.seed.is_some()),
            ("--json", self.json.is_some()),
            ("--csv", self.csv.is_some()),
            ("--markdown", self.markdown.is_some()),
            ("--html", self.html.is_some()),
        ];
        let (option, _) = given.into_iter().find(|(_, given)| *given)?;
        Some(option)
    }
}

/// Parser of the choice among several matches.
fn metric_use() -> impl TypedValueParser<Value = Use> {
    PossibleValuesParser::new(["median", "last"]).map(|word| match word.as_str() {
        "median" => Use::Median,
        _ => Use::Last,
    })
}

/// Parses a share, in percent.
fn share(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let number = number
        .parse()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number));
    let share = number.map(|number: f64| number / 100.0);
    share.ok_or_else(|| format!("`{text}` is not a percentage from 0 to 100, such as 1%"))
}
