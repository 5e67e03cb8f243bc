//! Benchmark of the shared-memory collective on this machine, compared with memcpy.
//!
//! Starts the ranks as processes (itself again, with the shared file's descriptor inherited) and
//! prints, for the gradients of ResNet-50 as 161 tensors in place, 1000 × 1 KiB, and 4 bytes: the
//! step's 10th, 50th and 90th percentile over all rounds, slowest rank. The baseline is `memcpy` of
//! the same tensors to other memory by all ranks at once, the faster of libc's and one with
//! non-temporal stores, interleaved every 10 steps; only ratios within one run are meaningful.
//! Ranks are pinned to a core each if there are enough cores. Options: `--ranks N`, `--rounds N`,
//! `--f16`. Without `--bench`, which `cargo bench` passes and `cargo test` does not, or with
//! `--small`, it runs with little data.

#![allow(unsafe_code)] // spans over the benchmark's own buffers

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use ronde::internal::collective::local::LocalCollective;
use ronde::internal::collective::{Collective, Phases, Reduction};
use ronde::tensor::{Dtype, ReduceOp, Span};

type Failure = Box<dyn std::error::Error>;

/// Options of the command line.
#[derive(Clone, Debug)]
struct Options {
    ranks: usize,
    rounds: usize,
    small: bool,
    dtype: Dtype,
    /// Rank and descriptor of the shared file, in a process that this program started.
    child: Option<(usize, i32)>,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        ranks: 2,
        rounds: 20,
        small: false,
        dtype: Dtype::F32,
        child: None,
    };
    let mut bench = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<usize, Failure> {
            Ok(arguments.next().ok_or("a number is missing")?.parse()?)
        };
        match argument.as_str() {
            "--ranks" => options.ranks = number()?.max(1),
            "--rounds" => options.rounds = number()?.max(1),
            "--small" => options.small = true,
            "--f16" => options.dtype = Dtype::F16,
            "--bench" => bench = true,
            "--child" => options.child = Some((number()?, i32::try_from(number()?)?)),
            other => {
                return Err(format!(
                    "unknown argument {other}; try --small, --ranks, --rounds, --f16"
                )
                .into());
            }
        }
    }
    options.small |= !bench;
    Ok(options)
}

fn main() -> Result<(), Failure> {
    let mut options = options()?;
    if options.small {
        options.rounds = options.rounds.min(2);
    }
    match options.child {
        Some((rank, descriptor)) => {
            let file = File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/self/fd/{descriptor}"))?;
            run(&options, rank, &file)
        }
        None => launch(&options),
    }
}

/// Creates the shared file, starts the other ranks, and runs rank 0.
fn launch(options: &Options) -> Result<(), Failure> {
    let file = File::from(LocalCollective::create_file(options.ranks)?);
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?; // the other ranks inherit it
    let mut children = Vec::new();
    for rank in 1..options.ranks {
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .args(["--child", &rank.to_string(), &file.as_raw_fd().to_string()])
            .spawn()?;
        children.push(child);
    }
    let outcome = run(options, 0, &file);
    for mut child in children {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("a rank ended with {status}").into());
        }
    }
    outcome
}

/// Returns the parameter counts of ResNet-50's tensors, from the last layer to the first, as the
/// backward pass produces them.
fn resnet50() -> Vec<usize> {
    let mut elements = vec![64 * 3 * 49, 64, 64];
    let mut inputs = 64;
    for (width, blocks) in [(64, 3), (128, 4), (256, 6), (512, 3)] {
        for block in 0..blocks {
            for (convolution, channels) in [
                (inputs * width, width),
                (9 * width * width, width),
                (4 * width * width, 4 * width),
            ] {
                elements.extend([convolution, channels, channels]);
            }
            if block == 0 {
                elements.extend([inputs * 4 * width, 4 * width, 4 * width]);
            }
            inputs = 4 * width;
        }
    }
    elements.extend([2048 * 1000, 1000]);
    assert_eq!((elements.len(), elements.iter().sum()), (161, 25_557_032));
    elements.reverse();
    elements
}

/// Runs one rank: the lines of the table, in order.
fn run(options: &Options, rank: usize, file: &File) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism()?.get();
    let spin = if options.ranks <= cores {
        Duration::from_micros(200)
    } else {
        Duration::ZERO
    };
    if options.ranks <= cores {
        // One core each: the benchmark measures the collective, not the scheduler's placement of
        // the processes.
        let before = rustix::thread::sched_getaffinity(None)?;
        let own = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|core| before.is_set(*core))
            .nth(rank);
        if let Some(core) = own {
            let mut allowed = rustix::thread::CpuSet::new();
            allowed.set(core);
            rustix::thread::sched_setaffinity(None, &allowed)?;
        }
    }
    let mut collective =
        LocalCollective::over_file(file, rank, options.ranks, spin, Duration::from_secs(20))?;
    let shrink = if options.small { 64 } else { 1 };
    let resnet50: Vec<usize> = resnet50()
        .iter()
        .map(|elements| elements.div_ceil(shrink))
        .collect();
    let small_tensors = vec![256; 1000_usize.div_ceil(shrink)];
    if rank == 0 {
        println!(
            "{} ranks, {cores} cores, {}; ms\n{:<22} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}",
            options.ranks,
            options.dtype,
            "what",
            "p10",
            "p50",
            "p90",
            "GB/s p50",
            "ratio p10",
            "ratio p50"
        );
    }
    Line {
        name: "resnet50",
        elements: &resnet50,
        rounds: options.rounds,
        steps: 10,
    }
    .measure(&mut collective, rank, options.dtype)?;
    Line {
        name: "1000 x 1 KiB",
        elements: &small_tensors,
        rounds: options.rounds,
        steps: 20,
    }
    .measure(&mut collective, rank, options.dtype)?;
    Line {
        name: "4 bytes",
        elements: &[1],
        rounds: options.rounds,
        steps: 200,
    }
    .measure(&mut collective, rank, options.dtype)
}

/// Batch to be measured.
struct Line<'a> {
    name: &'static str,
    elements: &'a [usize],
    rounds: usize,
    steps: usize,
}

impl Line<'_> {
    fn measure(
        &self,
        collective: &mut LocalCollective,
        rank: usize,
        dtype: Dtype,
    ) -> Result<(), Failure> {
        let width = dtype.size_bytes();
        let mut tensors: Vec<Vec<u8>> = self
            .elements
            .iter()
            .map(|elements| vec![0; elements * width])
            .collect();
        let mut copies = tensors.clone();
        fill(&mut tensors, dtype, rank);
        let spans: Vec<Span> = tensors
            .iter_mut()
            .map(|tensor| {
                let base = tensor.as_mut_ptr();
                // SAFETY: the vectors live until the end of this function; they are accessed
                // through the spans, or between operations.
                unsafe { Span::new(base, base, tensor.len()) }
            })
            .collect();
        let reduction = Reduction {
            dtype,
            op: ReduceOp::Average,
            prescale: 1.0,
            postscale: 1.0,
        };
        let (mut steps, mut libc, mut streamed) = (Vec::new(), Vec::new(), Vec::new());
        let mut phases = Phases::default();
        for round in 0..=self.rounds {
            let mut samples = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..self.steps {
                meet(collective)?;
                let began = Instant::now();
                let step = collective.allreduce(&spans, &reduction, &[])?;
                samples[0].push(began.elapsed().as_secs_f64());
                phases = add(phases, step);
            }
            for _ in 0..self.steps.div_ceil(2) {
                for (kind, copy) in [
                    (1, copy_libc as fn(&[Span], &mut [Vec<u8>])),
                    (2, copy_streamed),
                ] {
                    meet(collective)?;
                    let began = Instant::now();
                    copy(&spans, &mut copies);
                    samples[kind].push(began.elapsed().as_secs_f64());
                }
            }
            for samples in &mut samples {
                slowest(collective, samples)?;
            }
            if round == 0 {
                phases = Phases::default(); // pages were not mapped yet
                continue;
            }
            let [step, plain, stream] = samples;
            steps.extend(step);
            libc.extend(plain);
            streamed.extend(stream);
        }
        fill(&mut tensors, dtype, rank);
        collective.allreduce(&spans, &reduction, &[])?;
        if rank == 0 {
            self.report(&steps, &libc, &streamed, phases, width, hash(&tensors));
        }
        Ok(())
    }

    fn report(
        &self,
        steps: &[f64],
        libc: &[f64],
        streamed: &[f64],
        phases: Phases,
        width: usize,
        hash: u64,
    ) {
        let bytes = (self.elements.iter().sum::<usize>() * width) as f64;
        let best = |share| quantile(libc, share).min(quantile(streamed, share));
        let row = |name: &str, samples: &[f64]| {
            println!(
                "{name:<22} {:>9.4} {:>9.4} {:>9.4} {:>8.3} {:>9.3} {:>9.3}",
                quantile(samples, 0.1) * 1e3,
                quantile(samples, 0.5) * 1e3,
                quantile(samples, 0.9) * 1e3,
                bytes / quantile(samples, 0.5) / 1e9,
                best(0.1) / quantile(samples, 0.1),
                best(0.5) / quantile(samples, 0.5),
            );
        };
        row(self.name, steps);
        row("  memcpy, libc", libc);
        row("  memcpy, non-temporal", streamed);
        let per_step = |total: u64| total as f64 / 1e6 / steps.len() as f64;
        println!(
            "  copy in {:.4}, reduce {:.4}, copy out {:.4}, wait {:.4}; hash {hash:016x}",
            per_step(phases.copy_in_ns),
            per_step(phases.reduce_ns),
            per_step(phases.copy_out_ns),
            per_step(phases.wait_ns),
        );
    }
}

fn add(a: Phases, b: Phases) -> Phases {
    Phases {
        copy_in_ns: a.copy_in_ns + b.copy_in_ns,
        reduce_ns: a.reduce_ns + b.reduce_ns,
        copy_out_ns: a.copy_out_ns + b.copy_out_ns,
        wait_ns: a.wait_ns + b.wait_ns,
        ..Phases::default()
    }
}

/// Fills the tensors with values that depend on rank and position and are exact in f16.
fn fill(tensors: &mut [Vec<u8>], dtype: Dtype, rank: usize) {
    for (tensor_index, tensor) in tensors.iter_mut().enumerate() {
        for (index, element) in tensor.chunks_exact_mut(dtype.size_bytes()).enumerate() {
            let value = ((index + 7 * tensor_index + 3 * rank) % 1024) as f32;
            match dtype {
                Dtype::F16 => element.copy_from_slice(&half::f16::from_f32(value).to_ne_bytes()),
                _ => element.copy_from_slice(&value.to_ne_bytes()),
            }
        }
    }
}

/// Returns the FNV-1a hash of all bytes.
fn hash(tensors: &[Vec<u8>]) -> u64 {
    tensors
        .iter()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Runs a barrier.
fn meet(collective: &mut LocalCollective) -> Result<(), Failure> {
    slowest(collective, &mut [0.0])
}

/// Replaces every sample by its maximum over the ranks.
fn slowest(collective: &mut LocalCollective, samples: &mut [f64]) -> Result<(), Failure> {
    let base = samples.as_mut_ptr().cast::<u8>();
    // SAFETY: the slice is not used until the operation is over.
    let span = unsafe { Span::new(base, base, size_of_val(samples)) };
    let reduction = Reduction {
        dtype: Dtype::F64,
        op: ReduceOp::Max,
        prescale: 1.0,
        postscale: 1.0,
    };
    collective.allreduce(&[span], &reduction, &[])?;
    Ok(())
}

/// Returns the value below which `share` of the samples lie.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn copy_libc(spans: &[Span], copies: &mut [Vec<u8>]) {
    for (span, copy) in spans.iter().zip(copies) {
        // SAFETY: vectors of the same length; the span's is not written meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(span.input(), copy.as_mut_ptr(), span.bytes()) };
        black_box(copy);
    }
}

#[cfg(target_arch = "x86_64")]
fn copy_streamed(spans: &[Span], copies: &mut [Vec<u8>]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    #[target_feature(enable = "avx")]
    unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
        let head = target.align_offset(64).min(bytes);
        let lines = (bytes - head) / 64;
        let tail = head + lines * 64;
        // SAFETY: head, lines and tail make up the two ranges; the lines of the target are aligned.
        unsafe {
            std::ptr::copy_nonoverlapping(source, target, head);
            for offset in (head..tail).step_by(64) {
                let low = _mm256_loadu_si256(source.add(offset).cast::<__m256i>());
                let high = _mm256_loadu_si256(source.add(offset + 32).cast::<__m256i>());
                _mm256_stream_si256(target.add(offset).cast(), low);
                _mm256_stream_si256(target.add(offset + 32).cast(), high);
            }
            std::ptr::copy_nonoverlapping(source.add(tail), target.add(tail), bytes - tail);
        }
    }

    if !is_x86_feature_detected!("avx") {
        return copy_libc(spans, copies);
    }
    for (span, target) in spans.iter().zip(copies) {
        // SAFETY: vectors of the same length; the processor has AVX.
        unsafe { copy(span.input(), target.as_mut_ptr(), span.bytes()) };
    }
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_streamed(spans: &[Span], copies: &mut [Vec<u8>]) {
    copy_libc(spans, copies);
}
