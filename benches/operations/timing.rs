//! Measures the step times of each operation.

use std::fs::File;
use std::time::{Duration, Instant};

use ronde::internal::collective::Phases;
use ronde::internal::collective::local::LocalCollective;
use ronde::{Context, ReduceOp};
use serde_json::{Map, Value, json};

use crate::operation::{Exercise, Operation};
use crate::{Failure, Options, PATIENCE, quantile};

const WARMUP_STEPS: usize = 5;

/// Spin time of the bare collective if every rank has a core.
const SPIN: Duration = Duration::from_micros(200);

/// Measures all operations and, on rank 0, prints a table; returns the results as JSON.
pub(crate) fn measure(context: &Context, file: &File, options: &Options) -> Result<Value, Failure> {
    let (rank, size) = (context.rank(), context.size());
    let cores = std::thread::available_parallelism()?.get();
    let spin = if size <= cores { SPIN } else { Duration::ZERO };
    let mut collective = LocalCollective::over_file(file, rank, size, spin, PATIENCE)?;
    if rank == 0 {
        let megabytes = options.bytes as f64 / 1e6;
        println!("{size} ranks, {cores} cores, {megabytes} MB; ms: p10, p50, p90, slowest rank");
    }
    let mut operations = Map::new();
    for operation in Operation::ALL {
        let mut exercise = Exercise::new(operation, options.bytes, rank, size);

        exercise.check(|exercise| exercise.run(context))?;
        let runtime = steps(context, options.steps, || exercise.run(context))?;

        exercise.check(|exercise| exercise.run_bare(&mut collective).map(|_| ()))?;
        let mut phases = Vec::new();
        let bare = steps(context, options.steps, || {
            phases.push(exercise.run_bare(&mut collective)?);
            Ok(())
        })?;
        let phases = mean_ms(&phases);
        if rank == 0 {
            row(operation.name(), &runtime);
            row("  bare", &bare);
            println!("    rank 0: {phases}");
        }
        let entry = json!({"runtime_ms": summary(&runtime), "bare_ms": summary(&bare), "bare_phases_ms": phases});
        operations.insert(operation.name().to_owned(), entry);
    }
    Ok(
        json!({"np": size, "bytes": options.bytes, "steps": options.steps, "operations": operations}),
    )
}

/// Returns the times of `count` steps in ms, each that of the slowest rank.
fn steps(
    context: &Context,
    count: usize,
    mut step: impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<f64>, Failure> {
    let mut own = Vec::with_capacity(WARMUP_STEPS + count);
    for _ in 0..WARMUP_STEPS + count {
        context.barrier()?;
        let began = Instant::now();
        step()?;
        own.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let mut slowest = context
        .allreduce("operations.bench.slowest", own, ReduceOp::Max)?
        .wait()?;
    Ok(slowest.split_off(WARMUP_STEPS))
}

/// Returns the mean of each phase, in ms.
fn mean_ms(phases: &[Phases]) -> Value {
    let mean = |phase: fn(&Phases) -> u64| {
        let mean = phases.iter().map(phase).sum::<u64>() as f64 / phases.len() as f64 / 1e6;
        (mean * 1e3).round() / 1e3
    };
    json!({
        "copy_in": mean(|phases| phases.copy_in_ns),
        "reduce": mean(|phases| phases.reduce_ns),
        "copy_out": mean(|phases| phases.copy_out_ns),
        "wait": mean(|phases| phases.wait_ns),
    })
}

fn summary(samples: &[f64]) -> Value {
    json!({"p10": quantile(samples, 0.1), "p50": quantile(samples, 0.5), "p90": quantile(samples, 0.9)})
}

fn row(name: &str, samples: &[f64]) {
    let [p10, p50, p90] = [0.1, 0.5, 0.9].map(|share| quantile(samples, share));
    println!("{name:<14} {p10:>9.3} {p50:>9.3} {p90:>9.3}");
}
