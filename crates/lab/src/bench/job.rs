//! One rank's part of a benchmark job: its buffers, and the steps that reduce them.
//!
//! A step writes the inputs, submits them, waits for the results (the time measured), and checks
//! them. [`super::run()`] runs a benchmark, [`Job::measure`] one of several measurements of the
//! same job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::agree::{self, Difference};
use super::payload::{Extent, Flight, Payload, Runtime};
use super::schedule::Schedule;
use super::verify::{TensorInstance, Verifier, VerifyError};
use super::workload::Workload;
use ronde::error::{DeviceError, Error};
use ronde::internal::gpu::{GpuError, Shuttle};
use ronde::tensor::ReduceOp;

/// Work of each step of a job.
#[derive(Clone, Debug)]
pub struct Load {
    /// Tensors to reduce.
    pub workload: Workload,
    /// Submission times of the tensors.
    pub schedule: Schedule,
    /// Chunk size of the collective, in bytes; sentinels lie at chunk edges.
    pub chunk_bytes: usize,
}

/// Error that ends a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The runtime failed.
    #[error("step {step}: {source}")]
    Runtime {
        /// Step, from 0, warm-up included.
        step: usize,
        /// Error of the runtime.
        source: Error,
    },
    /// A result is wrong.
    #[error(transparent)]
    Wrong(#[from] VerifyError),
    /// The plans of the ranks differ, so ranks would wait for tensors or steps that others do not
    /// have.
    #[error(
        "the ranks run different benchmarks: {0}; give all of them the same model or profile, steps and warm-up"
    )]
    PlansDiffer(Difference),
}

/// One rank's buffers of a benchmark job.
pub struct Job<'a, R: Runtime> {
    pub(super) runtime: &'a R,
    pub(super) load: &'a Load,
    verifier: Verifier,
    pub(super) payloads: Vec<Payload>,
    /// Transfers sentinels to and from the GPU that holds the buffers.
    shuttle: Option<Shuttle>,
    flights: Vec<Flight<R>>,
    steps_done: usize,
}

impl<'a, R: Runtime> Job<'a, R> {
    /// Allocates the buffers of `load` on this rank.
    ///
    /// # Errors
    /// The GPU that is to hold the buffers does not have enough memory.
    ///
    /// # Panics
    /// If `load` has no tensors.
    pub fn new(runtime: &'a R, load: &'a Load) -> Result<Self, RunError> {
        let tensors = &load.workload.tensors;
        assert!(!tensors.is_empty(), "nothing to measure");
        let on_gpu = |source| gpu_error(runtime, 0, source);
        let ordinal = runtime.ordinal().map_err(on_gpu)?;
        let payloads = tensors
            .iter()
            .map(|tensor| Payload::zeros(tensor.dtype, tensor.elements(), ordinal))
            .collect::<Result<_, _>>();
        Ok(Self {
            runtime,
            load,
            verifier: Verifier::new(runtime.rank(), runtime.size(), load.chunk_bytes),
            payloads: payloads.map_err(on_gpu)?,
            shuttle: ordinal.map(Shuttle::new).transpose().map_err(on_gpu)?,
            flights: Vec::with_capacity(tensors.len()),
            steps_done: 0,
        })
    }

    /// Checks that every rank has this load and these `numbers`, given with their names; all ranks
    /// call it.
    ///
    /// # Errors
    /// [`RunError::PlansDiffer`] if not, [`RunError::Runtime`] if the runtime fails.
    pub fn agree(&self, numbers: &[(&str, usize)]) -> Result<(), RunError> {
        match agree::difference(self, numbers)? {
            None => Ok(()),
            Some(difference) => Err(RunError::PlansDiffer(difference)),
        }
    }

    /// Runs one step: writes the inputs, submits and waits (the time returned), checks the results.
    pub(super) fn step(&mut self, extent: Extent) -> Result<Duration, RunError> {
        let step = self.steps_done;
        self.write(extent).map_err(|error| self.gpu_error(error))?;
        let start = Instant::now();
        self.exchange(start)
            .map_err(|source| RunError::Runtime { step, source })?;
        let elapsed = start.elapsed();
        self.runtime.mark_step();
        self.fetch(extent).map_err(|error| self.gpu_error(error))?;
        for (tensor, payload) in self.payloads.iter().enumerate() {
            payload.check(&self.verifier, place(self.load, step, tensor), extent)?;
        }
        self.steps_done += 1;
        Ok(elapsed)
    }

    /// Writes this rank's inputs.
    fn write(&mut self, extent: Extent) -> Result<(), GpuError> {
        let Self {
            load,
            verifier,
            shuttle,
            ..
        } = self;
        for (tensor, payload) in self.payloads.iter_mut().enumerate() {
            let place = place(load, self.steps_done, tensor);
            payload.write(verifier, place, extent, shuttle.as_mut())?;
        }
        shuttle.as_mut().map_or(Ok(()), Shuttle::send)
    }

    /// Copies results to host memory, where they are checked, if they are on a GPU.
    fn fetch(&mut self, extent: Extent) -> Result<(), GpuError> {
        let Self { load, verifier, .. } = self;
        let Some(shuttle) = &mut self.shuttle else {
            return Ok(());
        };
        for (tensor, payload) in self.payloads.iter_mut().enumerate() {
            let place = place(load, self.steps_done, tensor);
            payload.fetch(verifier, place, extent, Some(shuttle))?;
        }
        shuttle.fetch()?;
        for (tensor, payload) in self.payloads.iter_mut().enumerate() {
            let place = place(load, self.steps_done, tensor);
            payload.unload(verifier, place, extent, Some(shuttle));
        }
        Ok(())
    }

    /// Submits every buffer when it is due, and waits for all of them in the same order.
    fn exchange(&mut self, start: Instant) -> Result<(), Error> {
        for (index, payload) in self.payloads.drain(..).enumerate() {
            self.load.schedule.wait(index, start);
            self.flights
                .push(payload.submit(self.runtime, &self.load.workload.tensors[index].name)?);
        }
        for flight in self.flights.drain(..) {
            self.payloads.push(flight.land(self.runtime)?);
        }
        Ok(())
    }

    /// Returns the maximum of each value over all ranks.
    pub(super) fn slowest(&self, name: &str, values: Vec<f64>) -> Result<Vec<f64>, RunError> {
        let step = self.steps_done;
        self.runtime
            .allreduce(name, values, ReduceOp::Max)
            .and_then(|pending| self.runtime.wait(pending))
            .map_err(|source| RunError::Runtime { step, source })
    }

    /// Converts an error of this rank's GPU between steps.
    pub(super) fn gpu_error(&self, source: GpuError) -> RunError {
        gpu_error(self.runtime, self.steps_done, source)
    }
}

fn gpu_error<R: Runtime>(runtime: &R, step: usize, source: GpuError) -> RunError {
    RunError::Runtime {
        step,
        source: DeviceError::Rank {
            rank: runtime.rank(),
            source: Arc::new(source),
        }
        .into(),
    }
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn place(load: &Load, step: usize, tensor: usize) -> TensorInstance<'_> {
    TensorInstance {
        step,
        tensor,
        name: &load.workload.tensors[tensor].name,
    }
}
