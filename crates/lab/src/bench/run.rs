//! Main loop of the benchmark: timed and verified steps, with the memcpy baseline in between.
//!
//! Every rank runs the same sequence:
//!
//! 0. the ranks check that they run the same plan;
//! 1. one untimed step, checked in full; then the rest of the warm-up;
//! 2. with the tuner on, tuning steps until all ranks know that rank 0 has a verdict (or the limit
//!    is reached);
//! 3. the timed steps, sentinels checked, the baseline every [`MEMCPY_INTERVAL_STEPS`];
//! 4. one untimed step, checked in full; then the ranks' times are combined: the slowest rank's
//!    counts.
//!
//! A step's time runs from its first submission to its last completion. Writing and checking values
//! lie outside.

use serde::Serialize;

use super::baseline::Baseline;
use super::job::{Job, Load, RunError, milliseconds};
use super::payload::{Extent, Runtime};
use ronde::MpiTraffic;

/// Number of timed steps between two rounds of the memcpy baseline.
pub const MEMCPY_INTERVAL_STEPS: usize = 10;

/// Number of tuning steps between two exchanges of whether rank 0 has a verdict; each exchange is a
/// 4-byte allreduce.
const VERDICT_INTERVAL_STEPS: usize = 10;

/// Plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Work of each step.
    pub load: Load,
    /// Number of untimed steps at the start, including the fully checked one; at least 1.
    pub warmup_steps: usize,
    /// Maximum number of steps for the tuner after the warm-up; 0 if it is off.
    pub tuning_steps_max: usize,
    /// Number of timed steps; at least 1.
    pub steps: usize,
}

/// Measurements of a run, equal on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Time of each timed step on its slowest rank, in ms.
    pub step_ms: Vec<f64>,
    /// Bandwidth of copying the payload, in GB/s: median over rounds, each with the time of its
    /// slowest rank.
    pub memcpy_gb_per_s: f64,
    /// Number of tuning steps.
    pub tuning_steps: usize,
    /// Messages of a timed step over MPI or TCP; `None` with another backend.
    pub mpi: Option<MpiPerStep>,
}

/// MPI traffic of a step, averaged over the timed steps: for each field, that of the rank with the
/// largest value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MpiPerStep {
    /// Number of messages.
    pub messages: f64,
    /// Bytes in these messages.
    pub bytes: f64,
    /// Number of calls of MPI's own collectives.
    pub collectives: f64,
}

/// Progress of a run, passed to the progress callback after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// In the warm-up.
    Warmup {
        /// Steps done.
        done: usize,
        /// Total number of steps.
        total: usize,
    },
    /// The tuner is active.
    Tuning {
        /// Steps done.
        done: usize,
        /// Maximum number of steps.
        limit: usize,
    },
    /// In the timed steps.
    Timed {
        /// Steps done.
        done: usize,
        /// Total number of steps.
        total: usize,
    },
}

/// Callbacks of a run, called between steps: progress, and whether this rank's tuner has a verdict.
pub trait Observer {
    /// Called after each step.
    fn progress(&mut self, progress: Progress);

    /// Whether the tuner is done, as far as this rank knows; it must eventually be true on some
    /// rank.
    fn verdict_reached(&mut self) -> bool;
}

/// Runs `plan` on this rank; every rank calls it with the same plan.
///
/// # Errors
/// [`RunError`] when the runtime fails or a result is wrong. The other ranks then report that this
/// rank is lost.
///
/// # Panics
/// If the plan has no tensors, no warm-up or no timed step.
pub fn run<R: Runtime>(
    runtime: &R,
    plan: &Plan,
    observer: &mut impl Observer,
) -> Result<Measurement, RunError> {
    assert!(
        plan.warmup_steps > 0 && plan.steps > 0,
        "nothing to measure"
    );
    let mut job = Job::new(runtime, &plan.load)?;
    job.agree(&[
        ("warm-up steps", plan.warmup_steps),
        ("tuning steps at most", plan.tuning_steps_max),
        ("timed steps", plan.steps),
    ])?;
    let mut baseline = Baseline::new(&job)?;

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
    let tuning_steps = tune(&mut job, plan.tuning_steps_max, observer)?;
    let mut own_ms = Vec::with_capacity(plan.steps);
    let mut sent = runtime.mpi_traffic().map(|_| MpiTraffic::default());
    for done in 1..=plan.steps {
        if (done - 1).is_multiple_of(MEMCPY_INTERVAL_STEPS) {
            baseline.round(&job)?;
        }
        let before = runtime.mpi_traffic();
        own_ms.push(milliseconds(job.step(Extent::Sentinels)?));
        let step = runtime
            .mpi_traffic()
            .zip(before)
            .map(|(after, before)| after - before);
        sent = sent.zip(step).map(|(sent, step)| sent + step);
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
        mpi: sent
            .map(|sent| mpi_per_step(&job, sent, plan.steps))
            .transpose()?,
    })
}

/// Maximum traffic of a rank, per step.
fn mpi_per_step<R: Runtime>(
    job: &Job<'_, R>,
    sent: MpiTraffic,
    steps: usize,
) -> Result<MpiPerStep, RunError> {
    let own =
        [sent.messages, sent.bytes, sent.collectives].map(|count| count as f64 / steps as f64);
    let most = job.slowest("bench.mpi", own.to_vec())?;
    Ok(MpiPerStep {
        messages: most[0],
        bytes: most[1],
        collectives: most[2],
    })
}

/// Runs tuning steps until the verdict or the limit; returns their number.
fn tune<R: Runtime>(
    job: &mut Job<'_, R>,
    limit: usize,
    observer: &mut impl Observer,
) -> Result<usize, RunError> {
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

#[cfg(test)]
mod tests;
