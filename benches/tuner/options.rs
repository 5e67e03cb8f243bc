//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::harness::truth::Truth;

/// Seeds, and surfaces, of a small run.
const SMALL_SEEDS: u64 = 1;
const SMALL_SURFACES: usize = 2;

/// Evaluates tuners on jobs whose best setting is known: called bare, the headline table.
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
    /// Seed of the first run on each surface; results chosen with one set of seeds are to be confirmed with another.
    #[arg(long, default_value_t = 0)]
    pub(crate) first_seed: u64,
    /// Noise of a step, as a share, instead of each surface's own.
    #[arg(long)]
    pub(crate) noise: Option<f64>,
    /// What rank 0's view of the job's costs is off by: 0.3 is 30 % either way, 2 three times, 9 ten times.
    #[arg(long, default_value_t = 0.3)]
    pub(crate) error: f64,
    /// Instead of the table: the network gets this many times as slow after the tuner is done.
    #[arg(long)]
    pub(crate) drift: Option<f64>,
    /// Instead of the table: step-time processes on which a guard can go wrong, `--seeds` runs of each (see attacks.rs).
    #[arg(long)]
    pub(crate) attacks: bool,
    /// Instead of the table: drive jobs by JSON lines on stdin and stdout (see serve.rs).
    #[arg(long)]
    pub(crate) serve: bool,
    /// Threads.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |count| count.get()))]
    pub(crate) jobs: usize,
    /// Runs of other programs, as JSON lines, that go into the table.
    #[arg(long)]
    pub(crate) add: Vec<PathBuf>,
    /// Write every run to this file, as JSON lines.
    #[arg(long)]
    pub(crate) outcomes: Option<PathBuf>,
    /// Write the rows to this file, as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// A run on two surfaces, to see that it works.
    #[arg(long)]
    pub(crate) small: bool,
    /// What `cargo bench` passes and `cargo test` does not; without it the run is a small one.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// From the program's arguments; says what is wrong with them, or helps, and ends.
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
        if let Some(drift) = options.drift.filter(|drift| !(0.01..=100.0).contains(drift)) {
            fail(format!("--drift {drift}: expected a factor of 0.01 to 100"));
        }
        if options.small || !options.bench {
            options.small = true;
            options.seeds = options.seeds.min(SMALL_SEEDS);
        }
        options
    }

    /// Surfaces looked at, at most.
    pub(crate) fn surfaces_most(&self) -> usize {
        if self.small { SMALL_SURFACES } else { usize::MAX }
    }
}
