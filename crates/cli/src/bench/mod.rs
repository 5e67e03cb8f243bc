//! `ronde bench`: reduces a model's gradients step after step, reports the step time and explains
//! it.
//!
//! If it is started by hand, it starts its own ranks; inside `ronde run`, `mpirun` or `srun` it is
//! one of the ranks. The ranks' part is in `rank`; the measurement is in [`ronde_lab::bench`].

mod load;
mod progress;
mod rank;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueHint;

pub(super) use load::LoadArgs;

use super::error::Error;
use super::knob_flags::KnobFlags;
use super::present::output;
use super::range::whole;
use super::run::{self, LaunchSpec, Output};
use super::{print, program};
use ronde::internal::gpu;
use ronde::internal::identity::{Identity, Source};
use ronde::knobs::{Backend, Knobs};
use ronde_lab::bench::{Load, Plan, Workload, memory};

/// Number of ranks without `-np`: two, so that data is exchanged, and the same number on every
/// machine.
const NP_DEFAULT: usize = 2;

/// Number of timed steps without `--steps`.
const STEPS_DEFAULT: usize = 50;

/// Timed steps after the tuner's verdict: the tuner has measured its choice already, and these
/// steps only confirm it.
const STEPS_AFTER_TUNING: usize = 20;

/// Most steps to wait for a verdict without `--steps`; a tuner that needs more is broken.
const TUNING_STEPS_MAX: usize = 20_000;

/// Benchmark the reduction of a model's gradients: step time, bandwidth, gain of tuning
#[derive(clap::Args)]
#[command(override_usage = "ronde bench [-np N] [OPTIONS]")]
pub(super) struct Args {
    /// Number of ranks to start (also -np) [default: 2]; inside `ronde run`, mpirun or srun, that
    /// of the job
    #[arg(short = 'n', long = "num-proc", value_name = "N", value_parser = whole::<usize>(1, 1 << 20))]
    np: Option<usize>,
    #[command(flatten)]
    load: LoadArgs,
    /// Timed steps [default: 50]. With --autotune: most steps to wait for the verdict, after which
    /// 20 are timed
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 10_000_000))]
    steps: Option<u32>,
    /// Untimed steps at the start
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u32>(1, 1_000_000))]
    warmup: u32,
    /// Write the result to this file as JSON; `-` writes it to standard output instead of the text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Print the element counts of the tensors, one per line, and exit
    #[arg(long, hide = true)]
    print_elements: bool,
    #[command(flatten)]
    flags: KnobFlags,
}

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    let workload = args.load.workload()?;
    if args.print_elements {
        let tensors = workload.tensors.iter();
        let lines = tensors.map(|tensor| format!("{}\n", tensor.elements()));
        return Ok(print(&lines.collect::<String>()));
    }
    let knobs = args.flags.knobs()?;
    let identity = Identity::from_env()?;
    let ranks = match (identity.source, args.np) {
        (Source::Single, np) => np.unwrap_or(NP_DEFAULT),
        (_, Some(np)) if np != identity.size => {
            return Err(Error::InnerRankCount {
                np,
                size: identity.size,
            });
        }
        _ => identity.size,
    };
    match identity.source {
        Source::Single => args.load.check_ranks(ranks)?,
        _ => args.load.check_slow_rank(ranks)?, // on several hosts, perhaps
    }
    if identity.rank == 0
        && let Some(path) = &args.json
    {
        let profile: Vec<PathBuf> = args.load.profile.iter().cloned().collect();
        output::check_distinct(&[path], &profile)?;
        // Reported before the run; no file remains.
        drop(output::Output::open(path)?);
    }
    let on_gpu = knobs.backend == Backend::Nccl;
    if on_gpu && knobs.link.is_some() {
        return Err(Error::ShapedGpu);
    }
    if identity.source == Source::Single {
        if on_gpu {
            gpu::check()?; // reported once, instead of by every rank
        }
        let copies = match on_gpu {
            true => memory::COPIES_ON_GPU,
            false => memory::COPIES_WITH_BASELINE,
        };
        check_memory(&workload, ranks, copies)?;
        if ranks > 1 {
            return launch(args, ranks);
        }
    }
    let load = args.load.load(workload, (identity.rank, ranks));
    rank::main(args, &knobs, &plan(args, load, &knobs))
}

/// Checks that all ranks fit into this machine's memory.
pub(super) fn check_memory(workload: &Workload, ranks: usize, copies: u64) -> Result<(), Error> {
    Ok(memory::check(workload, ranks, copies)?)
}

/// Starts the ranks: this program with the same arguments.
fn launch(args: &Args, ranks: usize) -> Result<ExitCode, Error> {
    let settings = args.flags.settings();
    let settings = settings.map(|(name, value)| (name.into(), value.into()));
    let code = run::launch(&LaunchSpec {
        label: "ronde bench".to_owned(),
        command: program::again_with(program::arguments().iter().cloned()),
        num_proc: ranks,
        environment: settings.collect(),
        output: Output::Live,
        output_dir: None,
        verbose: false,
        guard: program::again(),
    })?;
    Ok(ExitCode::from(code))
}

/// Plan of a rank that has this `load`.
fn plan(args: &Args, load: Load, knobs: &Knobs) -> Plan {
    let steps = args.steps.map(|steps| steps as usize);
    let (tuning_steps_max, steps) = if knobs.autotune {
        (steps.unwrap_or(TUNING_STEPS_MAX), STEPS_AFTER_TUNING)
    } else {
        (0, steps.unwrap_or(STEPS_DEFAULT))
    };
    Plan {
        load,
        warmup_steps: args.warmup as usize,
        tuning_steps_max,
        steps,
    }
}
