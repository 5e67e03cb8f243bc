//! Benchmark of the timeline's cost for a job: steps of ResNet-50's gradients among processes, with
//! and without a recording, in alternating windows of one run.
//!
//! Starts the ranks as processes (itself again), each of which records
//! (`RONDE_TIMELINE_ALL_RANKS`); rank 0 starts and stops the timeline between windows, with a
//! barrier before each step. It prints the slowest rank's step: medians of windows with and without
//! a recording, and the differences between neighbours. There is no computation and the link is the
//! machine's own, so steps are as short, and the share of recording as large, as possible.
//!
//! Options: `--ranks N`, `--windows N` (pairs of windows), `--steps N` (of a window). Without
//! `--bench`, which `cargo bench` passes and `cargo test` does not, or with `--small`, it runs with
//! a small model.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use ronde::{Context, ReduceOp};
use ronde_lab::bench::models;
use ronde_lab::bench::report::percentile;

type Failure = Box<dyn std::error::Error>;

/// Options of the command line.
#[derive(Clone, Debug)]
struct Options {
    ranks: usize,
    windows: usize,
    steps: usize,
    model: &'static str,
    /// File to record into, in a process that this program started.
    child: Option<PathBuf>,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        ranks: 2,
        windows: 40,
        steps: 10,
        model: "resnet50",
        child: None,
    };
    let (mut bench, mut small) = (false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument}: what?"));
        match argument.as_str() {
            "--ranks" => options.ranks = value()?.parse::<usize>()?.max(1),
            "--windows" => options.windows = value()?.parse::<usize>()?.max(1),
            "--steps" => options.steps = value()?.parse::<usize>()?.max(1),
            "--small" => small = true,
            "--bench" => bench = true,
            "--child" => options.child = Some(value()?.into()),
            _ => {
                return Err(format!(
                    "unknown argument {argument}; try --ranks, --windows, --steps"
                )
                .into());
            }
        }
    }
    if small || !bench {
        (options.windows, options.steps, options.model) = (2, 3, "many-small");
    }
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    if let Some(path) = &options.child {
        return run(&options, path);
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("t.json");
    let start = |rank: usize| {
        Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .arg("--child")
            .arg(&path)
            .envs([
                ("HOROVOD_RANK", rank.to_string()),
                ("HOROVOD_SIZE", options.ranks.to_string()),
                (
                    "RONDE_JOB_ID",
                    format!("bench-timeline-{}", std::process::id()),
                ),
                ("HOROVOD_TIMELINE", "DYNAMIC".to_owned()),
                ("RONDE_TIMELINE_ALL_RANKS", "1".to_owned()),
            ])
            .spawn()
    };
    let ranks: Vec<_> = (0..options.ranks).map(start).collect::<Result<_, _>>()?;
    for mut rank in ranks {
        let status = rank.wait()?;
        if !status.success() {
            return Err(format!("a rank ended with {status}").into());
        }
    }
    Ok(())
}

/// Runs one rank; rank 0 reports.
fn run(options: &Options, path: &PathBuf) -> Result<(), Failure> {
    let context = Context::from_env()?;
    let workload = models::workload(options.model)?;
    let mut gradients: Vec<(String, Vec<f32>)> = workload
        .tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), vec![1.0; tensor.elements()]))
        .collect();
    let mut step = || -> Result<f64, Failure> {
        context.barrier()?;
        let began = Instant::now();
        let submitted: Result<Vec<_>, _> = gradients
            .drain(..)
            .map(|(name, gradient)| Ok((context.allreduce(&name, gradient, ReduceOp::Max)?, name)))
            .collect();
        for (handle, name) in submitted.map_err(|error: ronde::Error| error)? {
            gradients.push((name, handle.wait()?));
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    // The recorded window is first in every second pair, so that a drift of the machine favours
    // neither.
    let mut medians = [Vec::new(), Vec::new()];
    for window in 0..2 * options.windows {
        let recorded = window % 4 == 1 || window % 4 == 2;
        if recorded {
            context.start_timeline(path, false)?;
        } else {
            context.stop_timeline()?;
        }
        step()?; // writes names to the file and warms up other state
        let mut steps: Vec<f64> = (0..options.steps)
            .map(|_| step())
            .collect::<Result<_, _>>()?;
        steps.sort_by(f64::total_cmp);
        let median = percentile(&steps, 0.5).unwrap_or(f64::NAN);
        let slowest = context
            .allreduce("window", vec![median], ReduceOp::Max)?
            .wait()?;
        medians[usize::from(recorded)].push(slowest[0]);
    }
    if context.rank() == 0 {
        let [off, on] = &medians;
        let change: Vec<f64> = off
            .iter()
            .zip(on)
            .map(|(off, on)| 100.0 * (on / off - 1.0))
            .collect();
        let quantiles = |values: &[f64]| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            let [p10, p50, p90] =
                [0.1, 0.5, 0.9].map(|share| percentile(&sorted, share).unwrap_or(f64::NAN));
            format!("{p50:.3} ({p10:.3} to {p90:.3})")
        };
        let (windows, steps, model) = (options.windows, options.steps, options.model);
        println!(
            "{model}, {} ranks, {windows} pairs of windows of {steps} steps; median (p10 to p90)",
            options.ranks
        );
        println!("not recorded  {} ms a step", quantiles(off));
        println!("recorded      {} ms a step", quantiles(on));
        println!("change        {} %, pair by pair", quantiles(&change));
    }
    context.barrier()?;
    Ok(())
}
