//! `ronde bench`: reduce a model's gradients step after step, and say how long it takes and why that is good or bad.
//!
//! Started by hand it starts its own ranks; inside `ronde run`, `mpirun` or `srun` it is one of them. What the ranks do is
//! in `rank`; the measurement itself is [`crate::bench`].

mod progress;
mod rank;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;

use super::knob_flags::KnobFlags;
use super::run::{self, LaunchSpec, Output};
use super::{EXIT_USAGE, fail, print};
use crate::bench::schedule::{ComputeKind, Schedule};
use crate::bench::{Plan, Workload, models, profile};
use crate::collective::local::LocalCollective;
use crate::identity::{Identity, MAX_RANKS, Source};
use crate::knobs::Knobs;

/// The canonical workload, for a bare `ronde bench`.
const MODEL_DEFAULT: &str = "resnet50";

/// Ranks started where `-np` does not say: two, so that something is exchanged, on every machine alike.
const NP_DEFAULT: usize = 2;

/// Timed steps.
const STEPS_DEFAULT: usize = 50;

/// Timed steps after the tuner's verdict: it has measured its choice already, this only confirms it.
const STEPS_AFTER_TUNING: usize = 20;

/// Most steps to wait for a verdict where `--steps` does not say; a tuner that needs more is broken.
const TUNING_STEPS_MAX: usize = 20_000;

/// Longest pretended backward pass, in ms: one minute.
const COMPUTE_MS_MAX: f64 = 60_000.0;

/// Reduce a model's gradients over ranks on this machine: step time, bandwidth, and what tuning gains
#[derive(clap::Args)]
#[command(override_usage = "ronde bench [-np N] [OPTIONS]")]
pub(super) struct Args {
    /// Ranks to start (also -np) [default: 2]; inside `ronde run`, mpirun or srun theirs
    #[arg(short = 'n', long = "num-proc", value_name = "N")]
    np: Option<usize>,
    /// Model whose gradients are reduced [default: resnet50]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(models::NAMES))]
    model: Option<String>,
    /// Reduce what this file lists instead: a profile JSON, or one element count per line
    #[arg(long, value_name = "FILE", conflicts_with = "model", value_hint = ValueHint::FilePath)]
    profile: Option<PathBuf>,
    /// Timed steps [default: 50]. With --autotune: most steps to wait for the verdict, after which 20 are timed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    steps: Option<u32>,
    /// Untimed steps at the start
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    warmup: u32,
    /// Spread the submissions over a backward pass of this length, in ms
    #[arg(long, value_name = "MS", default_value_t = 0.0, allow_negative_numbers = true, value_parser = parse_compute_ms)]
    compute_ms: f64,
    /// Whether that pass leaves the CPU free (sleep: an accelerator) or needs it (spin)
    #[arg(long, value_name = "KIND", default_value = "sleep", value_parser = parse_compute_kind)]
    compute_kind: ComputeKind,
    /// Have this rank compute longer than the others, in ms: a straggler, for `ronde timeline` to find
    #[arg(long, value_name = "RANK,MS", value_parser = parse_slow_rank)]
    slow_rank: Option<SlowRank>,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Print the tensors' element counts, one per line, and end
    #[arg(long, hide = true)]
    print_elements: bool,
    #[command(flatten)]
    flags: KnobFlags,
}

/// A rank whose backward pass takes longer than that of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SlowRank {
    rank: usize,
    /// By how much.
    ms: f64,
}

/// What can be wrong before a benchmark starts; the text says what to do.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error(transparent)]
    Model(#[from] models::UnknownModelError),
    #[error(transparent)]
    Profile(#[from] profile::ProfileError),
    #[error(transparent)]
    Identity(#[from] crate::identity::IdentityError),
    #[error(transparent)]
    Knob(#[from] crate::knobs::KnobError),
    #[error("-np {np} is out of range: give 1 to {MAX_RANKS} ranks")]
    RankCount { np: usize },
    #[error("--slow-rank {rank} is not one of the {ranks} ranks: give 0 to {}", ranks - 1)]
    SlowRank { rank: usize, ranks: usize },
    #[error(
        "-np {np} contradicts the job of {size} ranks that this process was started in; leave -np out here"
    )]
    InnerRankCount { np: usize, size: usize },
    #[error("cannot write {}: {source}", path.display())]
    Output { path: PathBuf, source: std::io::Error },
    #[error(
        "{workload} needs {} MB on {ranks} ranks (gradients and a copy for the memcpy baseline), but only {} MB are \
         available; take fewer ranks or a smaller model", needed_bytes / 1_000_000, available_bytes / 1_000_000
    )]
    Memory {
        workload: String,
        ranks: usize,
        needed_bytes: u64,
        available_bytes: u64,
    },
}

impl SetupError {
    /// 2 where the command line is to blame, 1 where the world is.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Model(_) | Self::RankCount { .. } | Self::SlowRank { .. } | Self::InnerRankCount { .. } => {
                EXIT_USAGE
            }
            _ => 1,
        }
    }
}

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> ExitCode {
    match start(args) {
        Ok(code) => code,
        Err(error) => fail(&error.to_string(), error.exit_code()),
    }
}

fn start(args: &Args) -> Result<ExitCode, SetupError> {
    let workload = match &args.profile {
        Some(path) => profile::load(path)?,
        None => models::workload(args.model.as_deref().unwrap_or(MODEL_DEFAULT))?,
    };
    if args.print_elements {
        let lines = workload
            .tensors
            .iter()
            .map(|tensor| format!("{}\n", tensor.elements()));
        return Ok(print(&lines.collect::<String>()));
    }
    let knobs = args.flags.knobs()?;
    let identity = Identity::from_env()?;
    let ranks = match (identity.source, args.np) {
        (Source::Single, np) => np.unwrap_or(NP_DEFAULT),
        (_, Some(np)) if np != identity.size => {
            return Err(SetupError::InnerRankCount {
                np,
                size: identity.size,
            });
        }
        _ => identity.size,
    };
    if !(1..=MAX_RANKS).contains(&ranks) {
        return Err(SetupError::RankCount { np: ranks });
    }
    if let Some(SlowRank { rank, .. }) = args.slow_rank
        && rank >= ranks
    {
        return Err(SetupError::SlowRank { rank, ranks });
    }
    if identity.rank == 0
        && let Some(path) = &args.json
    {
        check_writable(path)?;
    }
    if identity.source == Source::Single {
        check_memory(&workload, ranks, available_memory_bytes())?;
        if ranks > 1 {
            return Ok(launch(args, ranks));
        }
    }
    let plan = plan(args, workload, &knobs, (identity.rank, ranks));
    Ok(rank::main(args, &knobs, &plan))
}

/// Starts the ranks: this program again, with the same arguments.
fn launch(args: &Args, ranks: usize) -> ExitCode {
    let mut argv = std::env::args_os();
    let name = argv.next();
    // Under another name or after an upgrade the path may be gone; then the name it was called by is what is left.
    let program = std::env::current_exe().ok().map(OsString::from).or(name);
    let outcome = run::launch(&LaunchSpec {
        label: "ronde bench".to_owned(),
        command: program.into_iter().chain(argv).collect(),
        num_proc: ranks,
        environment: args
            .flags
            .settings()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        output: Output::Live,
        output_dir: None,
        verbose: false,
        guard: std::env::current_exe().ok(),
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(&format!("bench: {error}"), error.exit_code()),
    }
}

/// What rank `rank` of `ranks` does.
fn plan(args: &Args, workload: Workload, knobs: &Knobs, (rank, ranks): (usize, usize)) -> Plan {
    let steps = args.steps.map(|steps| steps as usize);
    let (tuning_steps_max, steps) = if knobs.autotune {
        (steps.unwrap_or(TUNING_STEPS_MAX), STEPS_AFTER_TUNING)
    } else {
        (0, steps.unwrap_or(STEPS_DEFAULT))
    };
    let slower_ms = match args.slow_rank {
        Some(slow) if slow.rank == rank => slow.ms,
        _ => 0.0,
    };
    let compute = Duration::from_secs_f64((args.compute_ms + slower_ms) / 1e3);
    let schedule = Schedule::new(&workload, compute, args.compute_kind);
    Plan {
        workload,
        schedule,
        warmup_steps: args.warmup as usize,
        tuning_steps_max,
        steps,
        chunk_bytes: LocalCollective::chunk_bytes(ranks),
    }
}

fn parse_compute_ms(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ms) if (0.0..=COMPUTE_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err(format!("give a number from 0 to {COMPUTE_MS_MAX} (ms)")),
    }
}

fn parse_slow_rank(text: &str) -> Result<SlowRank, String> {
    let parse = |(rank, ms): (&str, &str)| {
        let (rank, ms) = (rank.trim().parse().ok()?, ms.trim().parse().ok()?);
        (0.0..=COMPUTE_MS_MAX)
            .contains(&ms)
            .then_some(SlowRank { rank, ms })
    };
    text.split_once(',')
        .and_then(parse)
        .ok_or_else(|| format!("give a rank and a number from 0 to {COMPUTE_MS_MAX} (ms), such as 1,10"))
}

fn parse_compute_kind(text: &str) -> Result<ComputeKind, String> {
    [ComputeKind::Sleep, ComputeKind::Spin]
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .ok_or_else(|| "give sleep or spin".to_owned())
}

/// Opens the file for writing without touching what it holds: a result that cannot be kept should not cost a run.
fn check_writable(path: &Path) -> Result<(), SetupError> {
    let existed = path.exists();
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|source| SetupError::Output {
            path: path.to_owned(),
            source,
        })?;
    if !existed {
        // An empty file would look like a result of a run that then fails; it may be gone already.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// `MemAvailable` of `/proc/meminfo`; `None` where it cannot be read.
fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn check_memory(workload: &Workload, ranks: usize, available: Option<u64>) -> Result<(), SetupError> {
    const COPIES: u64 = 2; // the gradients and the baseline's target
    let needed_bytes = (workload.bytes() as u64)
        .saturating_mul(COPIES)
        .saturating_mul(ranks as u64);
    match available {
        Some(available_bytes) if needed_bytes > available_bytes => {
            let workload = workload.name.clone();
            Err(SetupError::Memory {
                workload,
                ranks,
                needed_bytes,
                available_bytes,
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_checked_for_all_ranks_and_both_copies() {
        let workload = models::workload("many-small").unwrap(); // 1,024,000 bytes
        let needed = 2 * 2 * 1_024_000;
        check_memory(&workload, 2, Some(needed)).unwrap();
        check_memory(&workload, 2, None).unwrap();
        let message = check_memory(&workload, 2, Some(needed - 1))
            .unwrap_err()
            .to_string();
        assert!(message.contains("many-small needs 4 MB on 2 ranks"), "{message}");
    }

    #[test]
    fn this_machine_says_how_much_memory_it_has() {
        assert!(available_memory_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn compute_time_is_a_number_in_range() {
        assert_eq!(parse_compute_ms("2.5"), Ok(2.5));
        for bad in ["-1", "nan", "inf", "60001", "x", ""] {
            assert!(parse_compute_ms(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_compute_kind("spin"), Ok(ComputeKind::Spin));
        assert!(parse_compute_kind("burn").is_err());
        assert_eq!(parse_slow_rank("1,2.5"), Ok(SlowRank { rank: 1, ms: 2.5 }));
        for bad in ["", "1", "1,", ",5", "-1,5", "1,-5", "1,nan", "1,60001", "one,5"] {
            assert!(parse_slow_rank(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_check_of_an_output_file_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o.json");
        check_writable(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "old").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let message = check_writable(&folder.path().join("no/o.json"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("no/o.json"), "{message}");
    }
}
