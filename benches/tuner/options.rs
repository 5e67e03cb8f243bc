//! Command-line options of the tuner bench.

use std::path::PathBuf;

use clap::Parser;

use crate::harness::split::Part;
use crate::harness::truth::Truth;

/// Most seeds, and surfaces, of a small run.
const SMALL_SEEDS: u64 = 1;
const SMALL_SURFACES: usize = 2;
/// Most steps without a change of a small run.
const SMALL_CALM_STEPS: u64 = 3000;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Table {
    /// Tuners on surfaces: all together, and each surface.
    Surfaces,
    /// Step-time processes, then tuners on all surfaces together.
    Headline,
    /// Step-time processes with which the guard's constants were chosen.
    Processes,
    /// Step-time processes of other kinds.
    Apart,
    /// Step-time processes whose parameters are drawn for each run.
    Drawn,
    /// Gains of 20 %, 6 % and 2.5 %.
    Gains,
    /// Equal settings.
    Flat,
    /// Permanent changes of the step time, and false alarms.
    Drift,
    /// A network that gets slower after the verdict, on surfaces.
    NetworkDrift,
    /// Intervals of the gain that hold, on all truths and processes.
    Coverage,
    /// Searches of `ronde tune -- COMMAND`, on simulated commands.
    Commands,
}

/// Evaluates tuners on jobs whose best setting is known; without options, prints the main
/// comparison.
#[derive(Clone, Debug, Parser)]
#[command(name = "tuner", bin_name = "cargo bench --bench tuner --")]
pub(crate) struct Options {
    /// Tuners, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ours,ours-cold,default,random,horovod2d,horovod"
    )]
    pub(crate) tuners: Vec<String>,
    /// Table to print.
    #[arg(long, value_enum, default_value_t = Table::Surfaces)]
    pub(crate) table: Table,
    /// Truths, separated by commas: lab, drawn, held-out, foreign, gradients, recorded.
    #[arg(long, value_delimiter = ',', default_value = "lab,held-out,foreign")]
    pub(crate) truth: Vec<Truth>,
    /// Part of the surfaces (see split.rs): choose settings with one, report with the other.
    #[arg(long, value_enum, default_value_t = Part::Reported)]
    pub(crate) part: Part,
    /// Only surfaces whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    pub(crate) surfaces: Vec<String>,
    /// Runs on each surface.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) seeds: u64,
    /// Seed of the first run on each surface; confirm results that were chosen with some seeds with
    /// others.
    #[arg(long, default_value_t = 0)]
    pub(crate) first_seed: u64,
    /// Noise of a step, as a share; default: each surface's own.
    #[arg(long)]
    pub(crate) noise: Option<f64>,
    /// Error of rank 0's view of the job's costs: 0.3 is 30 % either way, 2 three times, 9 ten
    /// times.
    #[arg(long, default_value_t = 0.3)]
    pub(crate) error: f64,
    /// Slow-down of the network for the table network-drift.
    #[arg(long, default_value_t = 4.0)]
    pub(crate) factor: f64,
    /// Steps without a change, of all runs together, for the false alarms of the table drift.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) calm_steps: u64,
    /// Largest number of runs of a command, for the table commands.
    #[arg(long, default_value_t = 20)]
    pub(crate) runs: usize,
    /// Start each search at a setting of its own, drawn at random, for the table commands.
    #[arg(long)]
    pub(crate) start_anywhere: bool,
    /// Only step-time processes with these names.
    #[arg(long, value_delimiter = ',')]
    pub(crate) processes: Vec<String>,
    /// Instead of a table: write the log of one run of the process that --processes names to this
    /// file, for `ronde review`.
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
    /// Instead of a table: drive jobs by JSON lines on stdin and stdout (see serve.rs).
    #[arg(long)]
    pub(crate) serve: bool,
    /// Threads.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |count| count.get()))]
    pub(crate) jobs: usize,
    /// Runs of other programs, as JSON lines, to add to the table.
    #[arg(long)]
    pub(crate) add: Vec<PathBuf>,
    /// Write every run to this file, as JSON lines.
    #[arg(long)]
    pub(crate) outcomes: Option<PathBuf>,
    /// Write the rows to this file, as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// One run of two surfaces, or of each step-time process, as a test.
    #[arg(long)]
    pub(crate) small: bool,
    /// Argument of `cargo bench` that `cargo test` does not pass; without it the run is a small
    /// one.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Table {
    /// Whether it is of surfaces, of which [`Options::part`] is a part.
    pub(crate) fn has_surfaces(self) -> bool {
        use Table::{Commands, Coverage, Headline, NetworkDrift, Surfaces};
        matches!(
            self,
            Surfaces | Headline | NetworkDrift | Coverage | Commands
        )
    }
}

impl Options {
    /// Parses the program's arguments; exits with a message if they are invalid, or with the help.
    pub(crate) fn parsed() -> Self {
        let mut options = Self::parse();
        let fail = |message: String| -> ! {
            let error = clap::error::ErrorKind::ValueValidation;
            clap::Error::raw(error, format!("{message}\n")).exit()
        };
        let shares = [("--noise", options.noise), ("--error", Some(options.error))];
        for (name, share) in shares {
            if let Some(share) = share.filter(|share| !(0.0..=100.0).contains(share)) {
                fail(format!("{name} {share}: expected a share, 0.05 for 5 %"));
            }
        }
        if !(0.01..=100.0).contains(&options.factor) {
            fail(format!("--factor {}: expected 0.01 to 100", options.factor));
        }
        if options.small || !options.bench {
            options.small = true;
            options.seeds = options.seeds.min(SMALL_SEEDS);
            options.calm_steps = options.calm_steps.min(SMALL_CALM_STEPS);
        }
        options
    }

    /// Most surfaces of a run.
    pub(crate) fn surfaces_most(&self) -> usize {
        if self.small {
            SMALL_SURFACES
        } else {
            usize::MAX
        }
    }
}
