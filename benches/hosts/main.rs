//! Benchmark of ranks on several hosts: one rank of a measurement, started on every host.
//!
//! `scripts/bench-hosts` starts it in network namespaces. The launcher's variables tell which rank
//! it is. Every rank prints one line of JSON with its CPU time; rank 0's has the times of the
//! steps, each that of the slowest rank.
//!
//! | mode | a step |
//! | --- | --- |
//! | `gradients FILE` | average of one tensor for each line of FILE, a number of float32 elements |
//! | `small` | one synchronous sum of 4 bytes |
//! | `negotiation` | sum of 160 tensors of 4 bytes, cached |
//! | `idle` | one second without operations |
//! | `exchange FILE` | raw socket: the same bytes as `gradients`, in both directions at once |
//! | `round-trip` | raw socket: 4 bytes to the other rank and back |
//!
//! Options: `--steps N`, `--warmup N`. Without a mode, it runs `small` on one rank.

mod raw;

use std::time::{Duration, Instant};

use ronde::{Context, ReduceOp};
use ronde_job::percentile::percentile;
use serde::Serialize;

type Failure = Box<dyn std::error::Error>;

/// Tensors of the mode `negotiation`.
const TENSORS: usize = 160;

const USAGE: &str = "usage: hosts gradients FILE | small | negotiation | idle | exchange FILE | \
                     round-trip [--steps N] [--warmup N]";

/// Output of one rank.
#[derive(Serialize)]
struct Report {
    rank: usize,
    mode: String,
    steps: usize,
    /// CPU time of this process during all measured steps, seconds.
    cpu_s: f64,
    /// Duration of all measured steps, seconds.
    wall_s: f64,
    /// Percentiles of the steps, on rank 0.
    step_ms: Option<Percentiles>,
}

#[derive(Serialize)]
struct Percentiles {
    p10: f64,
    p50: f64,
    p90: f64,
}

struct Options {
    mode: String,
    elements: Vec<usize>,
    steps: usize,
    warmup: usize,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        mode: "alone".into(),
        elements: Vec::new(),
        steps: 20,
        warmup: 5,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--steps" => options.steps = value()?.parse::<usize>()?.max(1),
            "--warmup" => options.warmup = value()?.parse()?,
            "--bench" | "--small" => {}
            "gradients" | "exchange" => {
                let lines = std::fs::read_to_string(value()?)?;
                let counts = lines.split_whitespace().map(str::parse);
                options.elements = counts.collect::<Result<_, _>>()?;
                options.mode = argument;
            }
            "small" | "negotiation" | "idle" | "round-trip" => options.mode = argument,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let report = match options.mode.as_str() {
        "exchange" | "round-trip" => raw::run(&options)?,
        "alone" => {
            let context = Context::builder().alone().build()?;
            with_ronde(&context, &options)?
        }
        _ => with_ronde(&Context::from_env()?, &options)?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Measures a mode that uses the runtime.
fn with_ronde(context: &Context, options: &Options) -> Result<Report, Failure> {
    let mut tensors: Vec<Vec<f32>> = match options.mode.as_str() {
        "gradients" => options
            .elements
            .iter()
            .map(|&count| vec![1.0; count])
            .collect(),
        "negotiation" => vec![vec![1.0]; TENSORS],
        _ => vec![vec![1.0]],
    };
    let names: Vec<String> = (0..tensors.len())
        .map(|index| format!("tensor.{index}"))
        .collect();
    let mut step = || match options.mode.as_str() {
        "idle" => {
            std::thread::sleep(Duration::from_secs(1));
            Ok(())
        }
        // Every value stays 1.
        _ => context.scope(|scope| {
            let tensors = names.iter().zip(&mut tensors);
            let handles = tensors
                .map(|(name, tensor)| scope.allreduce(name, tensor, ReduceOp::Average))
                .collect::<Result<Vec<_>, _>>()?;
            handles.into_iter().try_for_each(|handle| handle.wait())
        }),
    };
    let measured = measure(options, || Ok(step()?))?;
    if let Some(value) = tensors.iter().flatten().find(|value| **value != 1.0) {
        return Err(format!("an average of ones is {value}").into());
    }
    let slowest = context
        .allreduce("times", measured.step_ms.clone(), ReduceOp::Max)?
        .wait()?;
    context.barrier()?;
    Ok(measured.report(context.rank(), options, slowest))
}

/// Times of the steps of this rank.
struct Measured {
    step_ms: Vec<f64>,
    cpu_s: f64,
    wall_s: f64,
}

impl Measured {
    fn report(&self, rank: usize, options: &Options, slowest_ms: Vec<f64>) -> Report {
        Report {
            rank,
            mode: options.mode.clone(),
            steps: options.steps,
            cpu_s: self.cpu_s,
            wall_s: self.wall_s,
            step_ms: (rank == 0).then(|| percentiles(slowest_ms)),
        }
    }
}

/// Runs the steps: first those that do not count.
fn measure(
    options: &Options,
    mut step: impl FnMut() -> Result<(), Failure>,
) -> Result<Measured, Failure> {
    for _ in 0..options.warmup {
        step()?;
    }
    let (cpu_before, began) = (cpu(), Instant::now());
    let mut step_ms = Vec::with_capacity(options.steps);
    for _ in 0..options.steps {
        let before = Instant::now();
        step()?;
        step_ms.push(before.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Measured {
        step_ms,
        cpu_s: (cpu() - cpu_before).as_secs_f64(),
        wall_s: began.elapsed().as_secs_f64(),
    })
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn percentiles(mut values: Vec<f64>) -> Percentiles {
    values.sort_unstable_by(f64::total_cmp);
    // As the programs of the other packages interpolate.
    let at = |fraction: f64| percentile(&values, fraction).unwrap_or(f64::NAN);
    Percentiles {
        p10: at(0.1),
        p50: at(0.5),
        p90: at(0.9),
    }
}
