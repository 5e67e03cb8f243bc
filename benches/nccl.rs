//! Benchmark of a step of ResNet-50's gradients on a GPU, compared with plain copies, and of the
//! host's time per submission.
//!
//! One rank on device 0; every round measures everything, and ratios are within a round. Device
//! times are those of its events: uncounted copies come first, and the measured work is on the
//! stream before they end. Host times are from the host's clock. `--rounds N` sets the number of
//! rounds; `--small` runs a few rounds on a small model (tests use it). Prints the table that is
//! kept in `results/nccl/`; without a device it prints a message.

#![allow(unsafe_code)] // submits tensors with the stream that makes them

use std::time::{Duration, Instant};

use ronde::internal::gpu::{self, Stopwatch, Stream};
use ronde::knobs::Knobs;
use ronde::{
    Context, CudaVec, Device, Dtype, Operation, RawHandle, RawOutput, RawTensor, ReduceOp,
};
use ronde_lab::bench::models;

type Failure = Box<dyn std::error::Error>;

/// Warm-up rounds, which are not kept: connections are made, clock rates rise.
const WARMUP: usize = 20;

/// Command-line options.
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
            "--rounds" => {
                options.rounds = arguments.next().ok_or("--rounds needs a number")?.parse()?
            }
            // Argument that cargo passes to every bench.
            "--bench" => {}
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    if let Err(error) = gpu::check() {
        println!("skipped: {error}");
        return Ok(());
    }
    let workload = models::workload(options.model)?;
    let elements: Vec<usize> = workload
        .tensors
        .iter()
        .map(ronde_lab::bench::TensorSpec::elements)
        .collect();
    let names: Vec<&str> = workload
        .tensors
        .iter()
        .map(|tensor| &*tensor.name)
        .collect();

    let stopwatch = Stopwatch::new(0)?;
    let mut step = Step::new(&names, &elements)?;
    let [bytes, buffer_bytes] = step.bytes();
    let rounds = rounds_of(options, || step.round(&stopwatch))?;
    let notings = rounds_of(options, || {
        Ok(micros(stopwatch.recording_time(names.len() as u32)?))
    })?;
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

/// Runs the rounds and returns all except the first ones.
fn rounds_of<T>(
    options: Options,
    mut round: impl FnMut() -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    for _ in 0..WARMUP {
        round()?;
    }
    (0..options.rounds).map(|_| round()).collect()
}

/// Copies of all bytes that give the host time to put a kernel or a copy on the stream: each takes
/// tens of microseconds.
const LEAD: usize = 6;

/// The number for a step through the runtime, whose ranks agree on it first.
const LEAD_OF_STEP: usize = 64;

/// Tensors of a step, on device 0, and the objects with which one rank sums them.
struct Step<'a> {
    names: &'a [&'a str],
    tensors: Vec<CudaVec<f32>>,
    /// Has the length of all tensors in the fusion buffer.
    buffer: CudaVec<f32>,
    flat: CudaVec<f32>,
    /// Its tickets complete when a batch is launched.
    context: Context,
}

/// One round: microseconds on the device.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// All tensors to the fusion buffer, by one kernel.
    copy_in_us: f64,
    /// Copy of as many bytes by the driver.
    plain_us: f64,
    /// Fusion buffer to all tensors.
    copy_out_us: f64,
    /// All tensors through the runtime, as one group.
    step_us: f64,
    /// As many bytes: a plain copy, one tensor through the runtime, a plain copy.
    flat_step_us: f64,
}

impl<'a> Step<'a> {
    fn new(names: &'a [&'a str], elements: &[usize]) -> Result<Self, Failure> {
        let tensors: Vec<_> = elements
            .iter()
            .map(|&elements| CudaVec::from_slice(0, &vec![1.0; elements]))
            .collect::<Result<_, _>>()?;
        let fused = vec![0.0; CudaVec::packed_len(&tensors)];
        let knobs = Knobs {
            async_completion: true,
            ..Knobs::from_env()?
        };
        Ok(Self {
            names,
            tensors,
            buffer: CudaVec::from_slice(0, &fused)?,
            flat: CudaVec::from_slice(0, &fused)?,
            context: Context::builder().alone().knobs(knobs).build()?,
        })
    }

    /// Bytes of the tensors, and of the fusion buffer with padding.
    fn bytes(&self) -> [usize; 2] {
        let tensors: usize = self.tensors.iter().map(CudaVec::len).sum();
        [tensors, self.buffer.len()].map(|elements| elements * size_of::<f32>())
    }

    /// Measures everything once.
    fn round(&mut self, stopwatch: &Stopwatch) -> Result<Round, Failure> {
        Ok(Round {
            copy_in_us: self.time(stopwatch, LEAD, |step, stream| {
                Ok(step.buffer.pack_on(&step.tensors, stream)?)
            })?,
            plain_us: self.time(stopwatch, LEAD, |step, stream| {
                Ok(step.flat.copy_on(&step.buffer, stream)?)
            })?,
            copy_out_us: self.time(stopwatch, LEAD, |step, stream| {
                Ok(step.buffer.unpack_on(&mut step.tensors, stream)?)
            })?,
            step_us: self.time(stopwatch, LEAD_OF_STEP, |step, stream| {
                let tensors = step.names.iter().zip(&step.tensors);
                let shapes: Vec<[usize; 1]> =
                    step.tensors.iter().map(|tensor| [tensor.len()]).collect();
                let parts: Vec<_> = tensors
                    .zip(&shapes)
                    .map(|((name, tensor), shape)| (SUM, in_place(name, tensor, shape, stream)))
                    .collect();
                // SAFETY: the tensors outlive the context's work on them, because the stream waits
                // for it and the host waits for the stream.
                follow(
                    unsafe { step.context.submit_group("step", &parts) }?,
                    stream,
                )
            })?,
            flat_step_us: self.time(stopwatch, LEAD_OF_STEP, |step, stream| {
                step.flat.copy_on(&step.buffer, stream)?;
                let shape = [step.flat.len()];
                let tensor = in_place("flat", &step.flat, &shape, stream);
                // SAFETY: as above.
                follow(vec![unsafe { step.context.submit(&SUM, &tensor) }?], stream)?;
                Ok(step.buffer.copy_on(&step.flat, stream)?)
            })?,
        })
    }

    /// Returns the microseconds of the work that `work` puts on the stream.
    fn time(
        &mut self,
        stopwatch: &Stopwatch,
        lead: usize,
        work: impl FnOnce(&mut Self, Stream) -> Result<(), Failure>,
    ) -> Result<f64, Failure> {
        for _ in 0..lead {
            self.flat.copy_on(&self.buffer, stopwatch.stream())?;
        }
        Ok(micros(stopwatch.time(|stream| work(self, stream))?))
    }
}

const SUM: Operation<'static> = Operation::Allreduce {
    op: ReduceOp::Sum,
    prescale: 1.0,
    postscale: 1.0,
};

/// Returns a tensor that is summed in place, and is ready when `stream` has finished its current
/// work.
fn in_place<'a>(
    name: &'a str,
    tensor: &CudaVec<f32>,
    shape: &'a [usize],
    stream: Stream,
) -> RawTensor<'a> {
    let address = std::ptr::with_exposed_provenance_mut(tensor.address() as usize);
    RawTensor {
        name,
        dtype: Dtype::F32,
        wire_dtype: None,
        shape,
        device: Device::Cuda {
            ordinal: 0,
            stream: stream.raw(),
        },
        input: address,
        output: RawOutput::Into {
            address,
            bytes: tensor.len() * size_of::<f32>(),
        },
    }
}

/// Makes the stream wait for the results.
fn follow(handles: Vec<RawHandle>, stream: Stream) -> Result<(), Failure> {
    for handle in handles {
        handle.wait()?;
        // SAFETY: a stream that exists until the end.
        unsafe { handle.put_before(stream.raw())? };
    }
    Ok(())
}

/// A step through the runtime, by the host's clock.
#[derive(Clone, Copy, Debug)]
struct Submission {
    /// Submission of one tensor, on average over the step.
    submit_us: f64,
    /// From the first submission to the last result.
    step_us: f64,
}

fn submissions(
    options: Options,
    names: &[&str],
    elements: &[usize],
) -> Result<Vec<Submission>, Failure> {
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

/// Formats a line of the table.
fn row(what: &str, target: &str, unit: &str, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    let quantile = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
    let [p10, median, p90] = [0.1, 0.5, 0.9].map(quantile);
    println!("| {what} | {target} | {median:.2}{unit} | {p10:.2} to {p90:.2} |");
}
