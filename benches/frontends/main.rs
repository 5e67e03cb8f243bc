//! Benchmark of one call that reduces many tensors into other memory: the baseline of the front
//! ends of TensorFlow and JAX.
//!
//! A rank of a job that `ronde run` starts, or a job of its own. Reads the numbers of elements of
//! the float32 tensors from a file, one a line. Prints on rank 0, as a JSON list, the time of each
//! step in ms, of the slowest rank: from the submission of all tensors in one call until all have
//! completed. Options: `--elements FILE`, `--steps N`. Without `--bench`, which `cargo bench`
//! passes and `cargo test` does not, or with `--small`, it runs with little data.

#![allow(unsafe_code)] // submits the benchmark's own buffers

use std::time::Instant;

use ronde::{Context, Dtype, Operation, RawOutput, RawTensor, ReduceOp};

type Failure = Box<dyn std::error::Error>;

const WARMUP_STEPS: usize = 5;

/// Options of the command line.
struct Options {
    elements: Vec<usize>,
    steps: usize,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        elements: vec![1000, 1, 0, 100_000],
        steps: 3,
    };
    let (mut bench, mut small) = (false, false);
    let mut given = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--elements" => given = Some(std::fs::read_to_string(value()?)?),
            "--steps" => options.steps = value()?.parse()?,
            "--small" => small = true,
            "--bench" => bench = true,
            other => {
                return Err(
                    format!("unknown argument {other}; try --elements, --steps, --small").into(),
                );
            }
        }
    }
    if let Some(text) = given {
        let numbers = text.split_whitespace().map(str::parse);
        options.elements = numbers.collect::<Result<_, _>>()?;
    } else if bench && !small {
        return Err("--elements FILE is missing: numbers of elements, one a line".into());
    }
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let context = Context::from_env()?;
    let mut times = Vec::with_capacity(options.steps);
    let names: Vec<String> = (0..options.elements.len())
        .map(|index| format!("gradient.{index}"))
        .collect();
    let inputs: Vec<Vec<f32>> = options
        .elements
        .iter()
        .map(|&count| vec![context.rank() as f32 + 1.0; count])
        .collect();
    let mut outputs: Vec<Vec<f32>> = options
        .elements
        .iter()
        .map(|&count| vec![0.0; count])
        .collect();
    for step in 0..WARMUP_STEPS + options.steps {
        context.barrier()?;
        let began = Instant::now();
        reduce(&context, &names, &inputs, &mut outputs)?;
        if step >= WARMUP_STEPS {
            times.push(1e3 * began.elapsed().as_secs_f64());
        }
    }
    let size = context.size();
    let expected = (size * (size + 1) / 2) as f32;
    if outputs.iter().flatten().any(|&sum| sum != expected) {
        return Err(format!("rank {}: not {expected} everywhere", context.rank()).into());
    }
    let slowest = context.allreduce("slowest", times, ReduceOp::Max)?.wait()?;
    if context.rank() == 0 {
        println!("{}", serde_json::to_string(&slowest)?);
    }
    Ok(())
}

/// Reduces all inputs into the outputs.
fn reduce(
    context: &Context,
    names: &[String],
    inputs: &[Vec<f32>],
    outputs: &mut [Vec<f32>],
) -> Result<(), Failure> {
    let operation = Operation::Allreduce {
        op: ReduceOp::Sum,
        prescale: 1.0,
        postscale: 1.0,
    };
    let shapes: Vec<[usize; 1]> = inputs.iter().map(|input| [input.len()]).collect();
    let tensors = names.iter().zip(&shapes).zip(inputs.iter().zip(outputs));
    let parts = tensors.map(|((name, shape), (input, output))| {
        let tensor = RawTensor {
            name,
            dtype: Dtype::F32,
            wire_dtype: None,
            shape,
            device: ronde::Device::Cpu,
            input: input.as_ptr().cast(),
            output: RawOutput::Into {
                address: output.as_mut_ptr().cast(),
                bytes: size_of_val(output.as_slice()),
            },
        };
        (operation, tensor)
    });
    let parts: Vec<_> = parts.collect();
    let set = context
        .process_set(0)
        .ok_or("no process set of all ranks")?;
    // SAFETY: inputs and outputs are disjoint, borrowed by this function, and have the lengths of
    // the shapes; all operations have completed before it returns, also after an error.
    let handles = unsafe { set.submit_batch(&parts) }?;
    let outcomes: Vec<_> = handles.iter().map(|handle| handle.wait()).collect();
    outcomes.into_iter().collect::<Result<(), _>>()?;
    Ok(())
}
