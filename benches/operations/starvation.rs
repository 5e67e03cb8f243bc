//! Benchmark of starvation: many ranks on few cores.
//!
//! Every rank submits the same 1000 tensors of 1 KiB per step and waits for all of them, so no rank
//! can be ahead of another by more than a step, and a rank that gets no CPU time delays all others.
//! Measured with one clock for all processes (`CLOCK_MONOTONIC`):
//!
//! - *step*: from a rank's first submission to its last result, per rank;
//! - *lag*: delay between the first rank and this rank until all results of a step are there. All
//!   ranks end a step together, apart from the scheduler's time slices: a rank that starves is late
//!   by more than a step, repeatedly;
//! - *CPU*: CPU time of each rank over all steps. The work is equal, so a rank that gets too little
//!   CPU time or that spins has a different value.

use std::time::Duration;

use ronde::{Context, ReduceOp};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::{Failure, Options, quantile};

const TENSORS: usize = 1000;
const ELEMENTS: usize = 256;
const WARMUP_STEPS: usize = 5;

/// Median lag in median steps above which a rank starves …
const LAG_STEPS_MAX: f64 = 1.0;

/// … and lag of a single result in median steps above which it does.
const LAG_STEPS_ONCE_MAX: f64 = 10.0;

/// Runs the steps and, on rank 0, prints a table; returns the results as JSON.
pub(crate) fn measure(context: &Context, options: &Options) -> Result<Value, Failure> {
    let (rank, size) = (context.rank(), context.size());
    let names: Vec<String> = (0..TENSORS)
        .map(|index| format!("tensor.{index}"))
        .collect();
    let mut tensors = vec![[0.0f32; ELEMENTS]; TENSORS];
    let mut times = Vec::with_capacity(2 * options.steps + 1);
    let mut cpu_before = Duration::ZERO;
    for step in 0..WARMUP_STEPS + options.steps {
        if step == WARMUP_STEPS {
            cpu_before = now(ClockId::ProcessCPUTime);
        }
        tensors
            .iter_mut()
            .for_each(|tensor| tensor.fill((rank + step) as f32));
        let began = now(ClockId::Monotonic);
        context.scope(|scope| {
            let tensors = names.iter().zip(&mut tensors);
            let tensors = tensors.map(|(name, tensor)| (&name[..], &mut tensor[..]));
            let handles = if options.batch {
                scope.allreduce_batch(tensors, ReduceOp::Sum)?
            } else {
                let submitted =
                    tensors.map(|(name, tensor)| scope.allreduce(name, tensor, ReduceOp::Sum));
                submitted.collect::<Result<_, _>>()?
            };
            handles.into_iter().try_for_each(|handle| handle.wait())
        })?;
        let ended = now(ClockId::Monotonic);
        let expected = (size * (size - 1) / 2 + size * step) as f32; // exact: below 2^24
        if tensors
            .as_flattened()
            .iter()
            .any(|element| *element != expected)
        {
            return Err(format!("rank {rank}, step {step}: not {expected} everywhere").into());
        }
        if step >= WARMUP_STEPS {
            times.extend([began.as_secs_f64(), ended.as_secs_f64()]);
        }
    }
    times.push((now(ClockId::ProcessCPUTime) - cpu_before).as_secs_f64());
    let columns = times.len();
    let all = context
        .allgather("operations.bench.times", times, &[columns])?
        .wait()?
        .tensor;
    let ranks: Vec<&[f64]> = all.chunks(columns).collect();
    let report = report(&ranks, options.steps);
    if rank == 0 {
        let figure = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
        println!(
            "{size} ranks, {} steps of {TENSORS} x {} B, all right on all ranks; starving: {}",
            options.steps,
            ELEMENTS * size_of::<f32>(),
            report["starving"]
        );
        println!(
            "ms, least and most over the ranks: {}",
            report["over_ranks"]
        );
        println!(
            "step of the slowest rank: p50 {:.3}, p90 {:.3}",
            figure("p50"),
            figure("p90")
        );
    }
    Ok(report)
}

/// Each rank's row: start and end of every step in s, then its CPU time in s.
fn report(ranks: &[&[f64]], steps: usize) -> Value {
    let ended = |rank: &[f64], step: usize| rank[2 * step + 1];
    let step_ms = |rank: &[f64], step: usize| 1e3 * (rank[2 * step + 1] - rank[2 * step]);
    let slowest = |step: usize| {
        ranks
            .iter()
            .map(|rank| step_ms(rank, step))
            .fold(0.0, f64::max)
    };
    let slowest: Vec<f64> = (0..steps).map(slowest).collect();
    let first = |step: usize| {
        ranks
            .iter()
            .map(|rank| ended(rank, step))
            .fold(f64::INFINITY, f64::min)
    };
    let first: Vec<f64> = (0..steps).map(first).collect();

    let median_step = quantile(&slowest, 0.5);
    let mut starving = Vec::new();
    let mut rows: Vec<[f64; 6]> = Vec::new();
    for (number, rank) in ranks.iter().enumerate() {
        let own: Vec<f64> = (0..steps).map(|step| step_ms(rank, step)).collect();
        let lag: Vec<f64> = (0..steps)
            .map(|step| 1e3 * (ended(rank, step) - first[step]))
            .collect();
        let row = [
            quantile(&own, 0.5),
            quantile(&own, 0.9),
            quantile(&own, 1.0),
            quantile(&lag, 0.5),
            quantile(&lag, 1.0),
            1e3 * rank[2 * steps],
        ];
        if row[3] > LAG_STEPS_MAX * median_step || row[4] > LAG_STEPS_ONCE_MAX * median_step {
            starving.push(number);
        }
        rows.push(row.map(|figure| (figure * 1e3).round() / 1e3));
    }
    const COLUMNS: [&str; 6] = [
        "step_p50", "step_p90", "step_max", "lag_p50", "lag_max", "cpu",
    ];
    let over_ranks: serde_json::Map<String, Value> = COLUMNS
        .iter()
        .enumerate()
        .map(|(column, name)| {
            let figures: Vec<f64> = rows.iter().map(|row| row[column]).collect();
            (
                (*name).to_owned(),
                json!([quantile(&figures, 0.0), quantile(&figures, 1.0)]),
            )
        })
        .collect();
    json!({
        "np": ranks.len(), "steps": steps, "p50": median_step, "p90": quantile(&slowest, 0.9),
        "lag_steps_max": LAG_STEPS_MAX, "lag_steps_once_max": LAG_STEPS_ONCE_MAX, "starving": starving, "over_ranks": over_ranks, "columns": COLUMNS, "ranks": rows,
    })
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
