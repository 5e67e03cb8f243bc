//! Memcpy baseline of a run: copies the same tensors between the timed steps.

use super::job::{Job, RunError, milliseconds};
use super::memcpy::{CopyMethod, MemcpyTimes};
use super::payload::{Payload, Runtime};
use ronde::internal::gpu::Stopwatch;
use ronde_job::percentile::percentile_of;

/// A second set of buffers, and the times of the rounds.
pub(super) struct Baseline {
    /// Stopwatch of the GPU that holds the tensors.
    stopwatch: Option<Stopwatch>,
    targets: Vec<Payload>,
    times: MemcpyTimes,
}

impl Baseline {
    /// Creates the baseline for the tensors of `job`, and runs an untimed round.
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

    /// Runs one round by each method, on all ranks simultaneously.
    pub(super) fn round<R: Runtime>(&mut self, job: &Job<'_, R>) -> Result<(), RunError> {
        for &method in self.methods() {
            job.slowest("bench.barrier", vec![0.0])?;
            let mut both = job.payloads.iter().zip(&mut self.targets);
            match &self.stopwatch {
                None => self.times.round(method, |method| {
                    both.for_each(|(source, target)| source.copy_to(target, method));
                }),
                Some(stopwatch) => {
                    let copied = stopwatch.time(|stream| {
                        both.try_for_each(|(source, target)| source.copy_on(target, stream))
                    });
                    self.times
                        .keep(method, copied.map_err(|error| job.gpu_error(error))?);
                }
            }
        }
        Ok(())
    }

    /// Returns the bandwidth of the faster method: payload over the median of its rounds, where a
    /// round takes the time of its slowest rank.
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

    /// Copy methods for the memory that holds the tensors.
    fn methods(&self) -> &'static [CopyMethod] {
        match self.stopwatch {
            None => CopyMethod::available(),
            Some(_) => &[CopyMethod::Device],
        }
    }
}
