//! The benchmark's loop: steps of submissions and waits, timed, verified, with the memcpy baseline in between.
//!
//! Every rank runs the same sequence:
//!
//! 0. the ranks make sure that they run the same plan;
//! 1. one untimed step, checked in full; then the rest of the warm-up;
//! 2. with the tuner on, tuning steps until all ranks know that rank 0 has a verdict (or the limit is reached);
//! 3. the timed steps, sentinels checked, the baseline every [`MEMCPY_INTERVAL_STEPS`];
//! 4. one untimed step, checked in full; then the ranks' times are combined: the slowest rank's counts.
//!
//! A step's time runs from its first submission to its last completion. Writing and checking values lie outside.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::memcpy::{CopyMethod, MemcpyTimes};
use super::payload::{Extent, Flight, Payload, Runtime};
use super::report::percentile;
use super::schedule::Schedule;
use super::verify::{Place, Verifier, VerifyError};
use super::workload::Workload;
use crate::error::Error;
use crate::tensor::ReduceOp;

/// Timed steps between two rounds of the memcpy baseline.
pub const MEMCPY_INTERVAL_STEPS: usize = 10;

/// Tuning steps between two questions to rank 0 whether it has a verdict; each is a 4-byte allreduce.
const VERDICT_INTERVAL_STEPS: usize = 10;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tensors.
    pub workload: Workload,
    /// When they are submitted.
    pub schedule: Schedule,
    /// Untimed steps at the start, the fully checked one included; at least 1.
    pub warmup_steps: usize,
    /// Most steps given to the tuner after the warm-up; 0 when it is off.
    pub tuning_steps_max: usize,
    /// Timed steps; at least 1.
    pub steps: usize,
    /// Edges of the chunks that the collective works in, for the sentinels, in bytes.
    pub chunk_bytes: usize,
}

impl Plan {
    /// A number that differs, in all likelihood, between plans that would not fit together: 53 bits, so that it and its
    /// opposite are exact and an allreduce of both tells whether all ranks have the same.
    fn fingerprint(&self) -> f64 {
        let mut hasher = DefaultHasher::new();
        for tensor in &self.workload.tensors {
            (&tensor.name, tensor.dtype, tensor.elements()).hash(&mut hasher);
        }
        (self.warmup_steps, self.tuning_steps_max, self.steps).hash(&mut hasher);
        (hasher.finish() >> 11) as f64
    }
}

/// What a run measured; the same on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Time of each timed step on its slowest rank, in ms.
    pub step_ms: Vec<f64>,
    /// Bandwidth of copying the payload, on the slowest rank of each round, median over rounds, in GB/s.
    pub memcpy_gb_per_s: f64,
    /// Tuning steps run.
    pub tuning_steps: usize,
}

/// Where a run is; given to the progress callback after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// In the warm-up.
    Warmup {
        /// Steps done.
        done: usize,
        /// Of how many.
        total: usize,
    },
    /// The tuner is at work.
    Tuning {
        /// Steps done.
        done: usize,
        /// At most so many.
        limit: usize,
    },
    /// Among the timed steps.
    Timed {
        /// Steps done.
        done: usize,
        /// Of how many.
        total: usize,
    },
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The runtime failed.
    #[error("step {step}: {source}")]
    Runtime {
        /// Step, from 0, warm-up included.
        step: usize,
        /// What it said.
        source: Error,
    },
    /// A result was wrong.
    #[error(transparent)]
    Wrong(#[from] VerifyError),
    /// Ranks would wait for tensors or steps that others do not have.
    #[error(
        "the ranks run different benchmarks: give all of them the same model or profile, steps and warm-up"
    )]
    PlansDiffer,
}

/// Asks whoever runs the benchmark, between steps: has this rank's tuner reached its verdict? Told where the run is.
pub trait Observer {
    /// Called after each step.
    fn progress(&mut self, progress: Progress);

    /// Whether the tuner is done, as far as this rank knows; some rank must come to know.
    fn verdict_reached(&mut self) -> bool;
}

/// Runs `plan` on this rank; every rank calls it with the same plan.
///
/// # Errors
/// [`RunError`] when the runtime fails or a result is wrong. The other ranks then lose this one.
///
/// # Panics
/// If the plan has no tensors, no warm-up or no timed step.
pub fn run<R: Runtime>(
    runtime: &R,
    plan: &Plan,
    observer: &mut impl Observer,
) -> Result<Measurement, RunError> {
    assert!(
        !plan.workload.tensors.is_empty() && plan.warmup_steps > 0 && plan.steps > 0,
        "nothing to measure"
    );
    let mut job = Job::new(runtime, plan);
    job.agree()?;
    let mut baseline = Baseline::new(&job.payloads, plan);

    job.step(Extent::Full)?;
    for done in 1..=plan.warmup_steps {
        observer.progress(Progress::Warmup {
            done,
            total: plan.warmup_steps,
        });
        if done < plan.warmup_steps {
            job.step(Extent::Sentinels)?;
        }
    }
    let tuning_steps = tune(&mut job, observer)?;
    let mut own_ms = Vec::with_capacity(plan.steps);
    for done in 1..=plan.steps {
        if (done - 1).is_multiple_of(MEMCPY_INTERVAL_STEPS) {
            baseline.round(&mut job)?;
        }
        own_ms.push(milliseconds(job.step(Extent::Sentinels)?));
        observer.progress(Progress::Timed {
            done,
            total: plan.steps,
        });
    }
    job.step(Extent::Full)?;
    Ok(Measurement {
        step_ms: job.slowest("bench.step_ms", own_ms)?,
        memcpy_gb_per_s: baseline.gb_per_s(&job)?,
        tuning_steps,
    })
}

/// Runs tuning steps until the verdict or the limit; returns how many.
fn tune<R: Runtime>(job: &mut Job<'_, R>, observer: &mut impl Observer) -> Result<usize, RunError> {
    let limit = job.plan.tuning_steps_max;
    for done in 1..=limit {
        job.step(Extent::Sentinels)?;
        observer.progress(Progress::Tuning { done, limit });
        if done.is_multiple_of(VERDICT_INTERVAL_STEPS) {
            let own = f64::from(u8::from(observer.verdict_reached()));
            if job.slowest("bench.verdict", vec![own])? != [0.0] {
                return Ok(done);
            }
        }
    }
    Ok(limit)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// One rank's part of the job: its buffers between steps, and the count of steps.
struct Job<'a, R: Runtime> {
    runtime: &'a R,
    plan: &'a Plan,
    verifier: Verifier,
    payloads: Vec<Payload>,
    flights: Vec<Flight<R>>,
    steps_done: usize,
}

impl<'a, R: Runtime> Job<'a, R> {
    fn new(runtime: &'a R, plan: &'a Plan) -> Self {
        let tensors = &plan.workload.tensors;
        Self {
            runtime,
            plan,
            verifier: Verifier::new(runtime.rank(), runtime.size(), plan.chunk_bytes),
            payloads: tensors
                .iter()
                .map(|tensor| Payload::zeros(tensor.dtype, tensor.elements()))
                .collect(),
            flights: Vec::with_capacity(tensors.len()),
            steps_done: 0,
        }
    }

    /// Checks that every rank has this plan.
    fn agree(&self) -> Result<(), RunError> {
        let own = self.plan.fingerprint();
        let largest = self.slowest("bench.plan", vec![own, -own])?;
        if largest == [own, -own] {
            Ok(())
        } else {
            Err(RunError::PlansDiffer)
        }
    }

    /// One step: write, submit and wait (the time returned), check.
    fn step(&mut self, extent: Extent) -> Result<Duration, RunError> {
        let step = self.steps_done;
        for (tensor, payload) in self.payloads.iter_mut().enumerate() {
            payload.write(&self.verifier, place(self.plan, step, tensor), extent);
        }
        let start = Instant::now();
        self.exchange(start)
            .map_err(|source| RunError::Runtime { step, source })?;
        let elapsed = start.elapsed();
        self.runtime.mark_step();
        for (tensor, payload) in self.payloads.iter().enumerate() {
            payload.check(&self.verifier, place(self.plan, step, tensor), extent)?;
        }
        self.steps_done += 1;
        Ok(elapsed)
    }

    /// Submits every buffer when it is due and gets all back, in the same order.
    fn exchange(&mut self, start: Instant) -> Result<(), Error> {
        for (index, payload) in self.payloads.drain(..).enumerate() {
            self.plan.schedule.wait(index, start);
            self.flights
                .push(payload.submit(self.runtime, &self.plan.workload.tensors[index].name)?);
        }
        for flight in self.flights.drain(..) {
            self.payloads.push(flight.land(self.runtime)?);
        }
        Ok(())
    }

    /// The largest of each value over all ranks.
    fn slowest(&self, name: &str, values: Vec<f64>) -> Result<Vec<f64>, RunError> {
        let step = self.steps_done;
        self.runtime
            .allreduce(name, values, ReduceOp::Max)
            .and_then(|pending| self.runtime.wait(pending))
            .map_err(|source| RunError::Runtime { step, source })
    }
}

fn place(plan: &Plan, step: usize, tensor: usize) -> Place<'_> {
    Place {
        step,
        tensor,
        name: &plan.workload.tensors[tensor].name,
    }
}

/// The memcpy baseline of this rank: a second set of buffers and the times of its rounds.
struct Baseline {
    targets: Vec<Payload>,
    times: MemcpyTimes,
}

impl Baseline {
    fn new(payloads: &[Payload], plan: &Plan) -> Self {
        let zeros = |tensor: &super::TensorSpec| Payload::zeros(tensor.dtype, tensor.elements());
        let mut targets: Vec<Payload> = plan.workload.tensors.iter().map(zeros).collect();
        copy_all(payloads, &mut targets, CopyMethod::Libc); // an untimed round: pages are mapped and warm afterwards
        Self {
            targets,
            times: MemcpyTimes::default(),
        }
    }

    /// One round by each method, all ranks at once.
    fn round<R: Runtime>(&mut self, job: &mut Job<'_, R>) -> Result<(), RunError> {
        for &method in CopyMethod::available() {
            job.slowest("bench.barrier", vec![0.0])?;
            let targets = &mut self.targets;
            self.times
                .round(method, |method| copy_all(&job.payloads, targets, method));
        }
        Ok(())
    }

    /// The faster method's bandwidth: payload over the median of its rounds, each as long as its slowest rank took.
    fn gb_per_s<R: Runtime>(&self, job: &Job<'_, R>) -> Result<f64, RunError> {
        let bytes = job.plan.workload.bytes();
        let mut best = 0.0_f64;
        for &method in CopyMethod::available() {
            let own_ms = self
                .times
                .rounds(method)
                .iter()
                .copied()
                .map(milliseconds)
                .collect();
            let mut round_ms = job.slowest("bench.memcpy_ms", own_ms)?;
            round_ms.sort_by(f64::total_cmp);
            if let Some(median_ms) = percentile(&round_ms, 0.5) {
                best = best.max(super::report::gb_per_s(bytes, median_ms));
            }
        }
        Ok(best)
    }
}

fn copy_all(sources: &[Payload], targets: &mut [Payload], method: CopyMethod) {
    for (source, target) in sources.iter().zip(targets) {
        source.copy_to(target, method);
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
