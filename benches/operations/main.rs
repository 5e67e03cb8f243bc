//! Benchmark of one collective operation on a large tensor, with the whole runtime and without, and
//! of starvation among many ranks.
//!
//! Starts the ranks as processes (itself again). For allgather, broadcast, reducescatter, alltoall
//! and allreduce of float32, it prints the 10th, 50th and 90th percentile over all steps, slowest
//! rank, with a barrier before each step: with the whole runtime (a
//! [`Scope`](ronde::context::Scope) with the caller's memory: submit, negotiate, move, wait), and
//! bare (the collective alone, with its phases). `--bytes` is the input of an allreduce, a
//! reducescatter and an alltoall on every rank, the input of a broadcast's root, and the output of
//! an allgather. Every element of the results is checked once per operation and variant, before the
//! measurement.
//!
//! `--many-small` instead lets every rank reduce 1000 tensors of 1 KiB per step and reports each
//! rank's times; see `starvation.rs`. With `--batch` a rank submits them in one call instead of
//! 1000.
//!
//! Options: `--ranks N`, `--steps N`, `--bytes N`, `--json FILE`. Without `--bench`, which `cargo
//! bench` passes and `cargo test` does not, or with `--small`, it runs with little data.

mod operation;
mod starvation;
mod timing;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use ronde::Context;
use ronde::internal::collective::local::LocalCollective;

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "try --ranks, --steps, --bytes, --json, --small, --many-small, --batch";

/// Longer than any wait within an operation.
const PATIENCE: Duration = Duration::from_secs(20);

/// Options of the command line.
#[derive(Clone, Debug)]
struct Options {
    ranks: usize,
    steps: usize,
    bytes: usize,
    json: Option<PathBuf>,
    many_small: bool,
    batch: bool,
    /// Rank, descriptor of the shared file and the job's key, in a process that this program
    /// started.
    child: Option<(usize, i32, String)>,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        ranks: 2,
        steps: 30,
        bytes: 64_000_000,
        json: None,
        many_small: false,
        batch: false,
        child: None,
    };
    let (mut bench, mut small) = (false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument}: what? {USAGE}"));
        match argument.as_str() {
            "--ranks" => options.ranks = value()?.parse::<usize>()?.max(1),
            "--steps" => options.steps = value()?.parse::<usize>()?.max(1),
            "--bytes" => options.bytes = value()?.parse()?,
            "--json" => options.json = Some(value()?.into()),
            "--many-small" => options.many_small = true,
            "--batch" => options.batch = true,
            "--small" => small = true,
            "--bench" => bench = true,
            "--child" => options.child = Some((value()?.parse()?, value()?.parse()?, value()?)),
            _ => return Err(format!("unknown argument {argument}; {USAGE}").into()),
        }
    }
    if small || !bench {
        options.steps = options.steps.min(2);
        options.bytes = options.bytes.min(1_200_000);
    }
    let row_bytes = options.ranks * size_of::<f32>();
    options.bytes = (options.bytes / row_bytes).max(1) * row_bytes; // equally many elements for each rank
    Ok(options)
}

fn main() -> Result<(), Failure> {
    // `cargo bench` starts this program in the package's folder; the given paths are relative to
    // the user's.
    if let Some(package) = std::env::var_os("CARGO_MANIFEST_DIR") {
        std::env::set_current_dir(std::path::Path::new(&package).join("../.."))?;
    }
    let options = options()?;
    let (rank, file, key, children) = match &options.child {
        Some((rank, descriptor, key)) => {
            let path = format!("/proc/self/fd/{descriptor}");
            let file = File::options().read(true).write(true).open(path)?;
            (*rank, file, key.clone(), Vec::new())
        }
        None => {
            let file = shared_file(options.ranks)?;
            let key = format!("bench-operations-{}", std::process::id());
            let children = start_others(&options, &file, &key)?;
            (0, file, key, children)
        }
    };
    let outcome = run(&options, rank, &file, key);
    for mut child in children {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("a rank ended with {status}").into());
        }
    }
    outcome
}

/// Creates the shared memory of the bare collective.
fn shared_file(ranks: usize) -> Result<File, Failure> {
    let file = LocalCollective::create_file(ranks)?;
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?; // the other ranks inherit it
    Ok(file.into())
}

fn start_others(options: &Options, file: &File, key: &str) -> Result<Vec<Child>, Failure> {
    let start = |rank: usize| {
        Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .args([
                "--child",
                &rank.to_string(),
                &file.as_raw_fd().to_string(),
                key,
            ])
            .spawn()
    };
    Ok((1..options.ranks).map(start).collect::<Result<_, _>>()?)
}

/// Runs one rank; rank 0 reports.
fn run(options: &Options, rank: usize, file: &File, key: String) -> Result<(), Failure> {
    let context = Context::builder()
        .rank(rank, options.ranks)
        .job(key)
        .build()?;
    let report = if options.many_small {
        starvation::measure(&context, options)?
    } else {
        timing::measure(&context, file, options)?
    };
    if let (0, Some(path)) = (rank, &options.json) {
        std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    context.barrier()?;
    Ok(())
}

/// Returns the value below which `share` of the samples lie.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    ronde_lab::bench::report::percentile(&sorted, share).unwrap_or(f64::NAN)
}
