//! What a step of ResNet-50's gradients costs on a GPU beside plain copies, and what submitting a tensor costs the host.
//!
//! One rank on device 0; every round measures everything, and ratios are those within a round. Times on the device are those of its
//! events, with the host kept ahead of it (`gpu_measure`); what the host does is timed by its own clock. `--rounds N`, and `--small`
//! for a few rounds on a small model (it is what tests run). Prints the table that `results/nccl/` keeps; without a device it says so.

use std::time::{Duration, Instant};

use ronde::internal::gpu_measure::{self, Round, Step};
use ronde::{Context, CudaVec, ReduceOp};
use ronde_lab::bench::models;

type Failure = Box<dyn std::error::Error>;

/// Rounds that are not kept: connections are made, clocks rise.
const WARMUP: usize = 20;

/// What the command line says.
#[derive(Clone, Copy, Debug)]
struct Options {
    rounds: usize,
    model: &'static str,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        rounds: 300,
        model: "resnet50",
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--small" => {
                options = Options {
                    rounds: 3,
                    model: "many-small",
                }
            }
            "--rounds" => options.rounds = arguments.next().ok_or("--rounds needs a number")?.parse()?,
            // What cargo passes to every bench.
            "--bench" => {}
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    if let Err(error) = gpu_measure::devices_count() {
        println!("skipped: {error}");
        return Ok(());
    }
    let workload = models::workload(options.model)?;
    let elements: Vec<usize> = workload
        .tensors
        .iter()
        .map(ronde_lab::bench::TensorSpec::elements)
        .collect();
    let names: Vec<&str> = workload.tensors.iter().map(|tensor| &*tensor.name).collect();

    let step = Step::new(0, &elements)?;
    let [bytes, buffer_bytes] = step.bytes();
    let rounds = rounds_of(options, || Ok(step.round()?))?;
    let notings = rounds_of(options, || Ok(step.noting_us(names.len() as u32)?))?;
    drop(step);
    let submissions = submissions(options, &names, &elements)?;

    println!(
        "{}: {} tensors, {:.1} MB ({} bytes of padding in the fusion buffer), 1 rank, {} rounds after {WARMUP}\n",
        options.model,
        names.len(),
        bytes as f64 / 1e6,
        buffer_bytes - bytes,
        options.rounds,
    );
    println!("| what | target | median | p10 to p90 |\n| --- | --- | --- | --- |");
    let of = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    row(
        "copy in, speed against a plain copy",
        "≥ 0.85",
        "",
        of(|round| round.plain_us / round.copy_in_us),
    );
    row(
        "copy out, speed against a plain copy",
        "≥ 0.85",
        "",
        of(|round| round.plain_us / round.copy_out_us),
    );
    row(
        "step, time against one flat call and two flat copies",
        "≤ 1.10",
        "",
        of(|round| round.step_us / round.flat_step_us),
    );
    let of_host = |value: fn(&Submission) -> f64| submissions.iter().map(value).collect::<Vec<_>>();
    row(
        "submission of a cached tensor, on the caller's thread",
        "≤ 2 µs",
        " µs",
        of_host(|s| s.submit_us),
    );
    row(
        "of that, the driver's note that the data is ready",
        "",
        " µs",
        notings,
    );
    row("plain copy", "", " µs", of(|round| round.plain_us));
    row("copy in", "", " µs", of(|round| round.copy_in_us));
    row("copy out", "", " µs", of(|round| round.copy_out_us));
    row("step on the device", "", " µs", of(|round| round.step_us));
    row(
        "flat step on the device",
        "",
        " µs",
        of(|round| round.flat_step_us),
    );
    row(
        "step, first submission to last result, host's clock",
        "",
        " µs",
        of_host(|s| s.step_us),
    );
    Ok(())
}

/// What every round but the first ones gives.
fn rounds_of<T>(options: Options, mut round: impl FnMut() -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    for _ in 0..WARMUP {
        round()?;
    }
    (0..options.rounds).map(|_| round()).collect()
}

/// A step through the runtime, by the host's clock.
#[derive(Clone, Copy, Debug)]
struct Submission {
    /// Of one tensor, on average over the step.
    submit_us: f64,
    /// From the first submission to the last result.
    step_us: f64,
}

fn submissions(options: Options, names: &[&str], elements: &[usize]) -> Result<Vec<Submission>, Failure> {
    let context = Context::builder().alone().build()?;
    let mut tensors: Vec<CudaVec<f32>> = elements
        .iter()
        .map(|&elements| CudaVec::from_slice(0, &vec![1.0; elements]))
        .collect::<Result<_, _>>()?;
    let mut handles = Vec::with_capacity(names.len());
    rounds_of(options, || {
        let began = Instant::now();
        for (name, tensor) in names.iter().zip(tensors.drain(..)) {
            handles.push(context.allreduce(name, tensor, ReduceOp::Sum)?);
        }
        let submitted = began.elapsed();
        for handle in handles.drain(..) {
            tensors.push(handle.wait()?);
        }
        context.mark_step();
        Ok(Submission {
            submit_us: micros(submitted) / names.len() as f64,
            step_us: micros(began.elapsed()),
        })
    })
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A line of the table.
fn row(what: &str, target: &str, unit: &str, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    let quantile = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
    let [p10, median, p90] = [0.1, 0.5, 0.9].map(quantile);
    println!("| {what} | {target} | {median:.2}{unit} | {p10:.2} to {p90:.2} |");
}
