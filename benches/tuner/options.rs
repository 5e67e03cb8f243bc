//! Command-line options of the tuner bench.

use std::path::PathBuf;

use clap::Parser;

use crate::harness::truth::Truth;

/// Most seeds, and surfaces, of a small run.
const SMALL_SEEDS: u64 = 1;
const SMALL_SURFACES: usize = 2;

/// Evaluates tuners on jobs whose best setting is known; without options, prints the main
/// comparison.
#[derive(Clone, Debug, Parser)]
#[command(name = "tuner", bin_name = "cargo bench --bench tuner --")]
pub(crate) struct Options {
    /// Tuners, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ours,ours-cold,default,random,random10,horovod2d,horovod"
    )]
    pub(crate) tuners: Vec<String>,
    /// Truths, separated by commas: lab, unmodelled, held-out, gradients, recorded.
    #[arg(long, value_delimiter = ',', default_value = "lab,unmodelled")]
    pub(crate) truth: Vec<Truth>,
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
    /// Instead of the table: make the network this many times as slow after the tuner is done.
    #[arg(long)]
    pub(crate) drift: Option<f64>,
    /// Instead of the table: step-time processes that may mislead a tuner's guard, `--seeds` runs
    /// of each (see attacks.rs).
    #[arg(long)]
    pub(crate) attacks: bool,
    /// Instead of the table: drive jobs by JSON lines on stdin and stdout (see serve.rs).
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
    /// Run two surfaces only, as a test.
    #[arg(long)]
    pub(crate) small: bool,
    /// Argument of `cargo bench` that `cargo test` does not pass; without it the run is a small
    /// one.
    #[arg(long, hide = true)]
    bench: bool,
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
        if let Some(drift) = options
            .drift
            .filter(|drift| !(0.01..=100.0).contains(drift))
        {
            fail(format!("--drift {drift}: expected a factor of 0.01 to 100"));
        }
        if options.small || !options.bench {
            options.small = true;
            options.seeds = options.seeds.min(SMALL_SEEDS);
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
