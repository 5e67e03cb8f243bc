//! The memcpy baseline of a run: the same tensors, copied where they are, in rounds between the timed steps.

use super::job::{Job, RunError, milliseconds};
use super::memcpy::{CopyMethod, MemcpyTimes};
use super::payload::{Payload, Runtime};
use ronde::internal::gpu::Stopwatch;
use ronde_job::percentile::percentile_of;

/// A second set of buffers, and the times of the rounds.
pub(super) struct Baseline {
    /// Of the GPU that the tensors are on.
    stopwatch: Option<Stopwatch>,
    targets: Vec<Payload>,
    times: MemcpyTimes,
}

impl Baseline {
    /// For the tensors of `job`, with an untimed round.
    pub(super) fn new<R: Runtime>(job: &Job<'_, R>) -> Result<Self, RunError> {
        let ordinal = job.runtime.ordinal();
        let stopwatch = ordinal.and_then(|ordinal| ordinal.map(Stopwatch::new).transpose());
        let stopwatch = stopwatch.map_err(|error| job.gpu_error(error))?;
        let targets = job
            .payloads
            .iter()
            .map(|payload| payload.target(stopwatch.as_ref()))
            .collect::<Result<_, _>>();
        Ok(Self {
            targets: targets.map_err(|error| job.gpu_error(error))?,
            stopwatch,
            times: MemcpyTimes::default(),
        })
    }

    /// One round by each method, all ranks at once.
    pub(super) fn round<R: Runtime>(&mut self, job: &Job<'_, R>) -> Result<(), RunError> {
        for &method in self.methods() {
            job.slowest("bench.barrier", vec![0.0])?;
            let mut both = job.payloads.iter().zip(&mut self.targets);
            match &self.stopwatch {
                None => self.times.round(method, |method| {
                    both.for_each(|(source, target)| source.copy_to(target, method));
                }),
                Some(stopwatch) => {
                    let copied = stopwatch
                        .time(|stream| both.try_for_each(|(source, target)| source.copy_on(target, stream)));
                    self.times
                        .keep(method, copied.map_err(|error| job.gpu_error(error))?);
                }
            }
        }
        Ok(())
    }

    /// The faster method's bandwidth: payload over the median of its rounds, each as long as its slowest rank took.
    pub(super) fn gb_per_s<R: Runtime>(&self, job: &Job<'_, R>) -> Result<f64, RunError> {
        let bytes = job.load.workload.bytes();
        let mut best = 0.0_f64;
        for &method in self.methods() {
            let own_ms = self
                .times
                .rounds(method)
                .iter()
                .copied()
                .map(milliseconds)
                .collect();
            let round_ms = job.slowest("bench.memcpy_ms", own_ms)?;
            if let Some(median_ms) = percentile_of(round_ms, 0.5) {
                best = best.max(super::report::gb_per_s(bytes, median_ms));
            }
        }
        Ok(best)
    }

    /// How the tensors can be copied where they are.
    fn methods(&self) -> &'static [CopyMethod] {
        match self.stopwatch {
            None => CopyMethod::available(),
            Some(_) => &[CopyMethod::Device],
        }
    }
}
