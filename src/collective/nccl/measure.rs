//! What a step costs on the device itself, beside plain copies: for `benches/nccl.rs`, on one rank.
//!
//! The host is kept ahead of the device: copies that nobody counts come first, and what is measured is on the stream before they are
//! done. So the events see the device's time and not the host's.

#![allow(unsafe_code)] // a span of device memory

use std::time::Instant;

use super::{Batch, Scratch, SetRank};
use crate::collective::Reduction;
use crate::gpu::{
    Call, Combine, Combined, Communicator, CudaVec, GpuError, Number, Stopwatch, Stream, devices,
};
use crate::negotiation::OpKind;
use crate::tensor::{Dtype, ReduceOp, Span};

const ALONE: SetRank = SetRank { rank: 0, size: 1 };

/// Copies of all bytes that give the host time: each takes tens of microseconds.
const LEAD: usize = 6;

/// Number of devices that there are.
///
/// # Errors
/// No driver, or no NCCL.
pub fn devices_count() -> Result<u32, GpuError> {
    devices().count()
}

/// The tensors of a step, of f32, on a device, with all that one rank needs to sum them.
pub struct Step {
    tensors: Vec<CudaVec<f32>>,
    /// As long as all tensors in the fusion buffer.
    buffer: CudaVec<f32>,
    flat: CudaVec<f32>,
    communicator: Communicator,
    stopwatch: Stopwatch,
}

/// One round: microseconds on the device.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// All tensors to the fusion buffer, by one kernel.
    pub copy_in_us: f64,
    /// As many bytes by the driver's copy.
    pub plain_us: f64,
    /// The fusion buffer to all tensors.
    pub copy_out_us: f64,
    /// In, NCCL's call, out.
    pub step_us: f64,
    /// As many bytes: a plain copy, NCCL's call, a plain copy.
    pub flat_step_us: f64,
}

impl Step {
    /// Tensors of so many elements on device `ordinal`.
    ///
    /// # Errors
    /// A device or libraries that are not there, too little memory.
    pub fn new(ordinal: u32, elements: &[usize]) -> Result<Self, GpuError> {
        let tensors: Vec<_> = elements
            .iter()
            .map(|&elements| CudaVec::from_slice(ordinal, &vec![1.0; elements]))
            .collect::<Result<_, _>>()?;
        let spans = spans(&tensors);
        let fused = vec![0.0; batch(&spans).buffer_bytes(ALONE) / size_of::<f32>()];
        let stopwatch = Stopwatch::new(ordinal)?;
        let gpu = &stopwatch.device.gpu;
        let communicator = gpu.join(&gpu.unique_id()?, ALONE.rank, ALONE.size)?;
        let step = Self {
            tensors,
            buffer: CudaVec::from_slice(ordinal, &fused)?,
            flat: CudaVec::from_slice(ordinal, &fused)?,
            communicator,
            stopwatch,
        };
        step.settle()?;
        Ok(step)
    }

    /// Bytes of the tensors, and of the fusion buffer with what lies between them.
    pub fn bytes(&self) -> [usize; 2] {
        let tensors: usize = self.tensors.iter().map(CudaVec::len).sum();
        [tensors, self.buffer.len()].map(|elements| elements * size_of::<f32>())
    }

    /// Measures everything once.
    ///
    /// # Errors
    /// What has gone wrong on the device.
    pub fn round(&self) -> Result<Round, GpuError> {
        let Stopwatch { device, .. } = &self.stopwatch;
        let spans = spans(&self.tensors);
        let scratch = Scratch {
            buffer: self.buffer.address(),
            sink: 0,
        };
        let program = batch(&spans).program(ALONE, scratch);
        let [bytes, _] = self.bytes();
        let (buffer, flat) = (self.buffer.address(), self.flat.address());
        let into = |stream| device.gpu.copy(flat, buffer, bytes, stream);
        let back = |stream| device.gpu.copy(buffer, flat, bytes, stream);
        let call = |address, stream| {
            let call = Call::Allreduce(Combined {
                from: address,
                to: address,
                count: bytes / size_of::<f32>(),
                number: Number::F32,
                combine: Combine::Sum,
            });
            device.gpu.call(self.communicator, &[call], stream)?;
            self.settle()
        };
        Ok(Round {
            copy_in_us: self.time(|stream| program.copy_in(device, stream))?,
            plain_us: self.time(into)?,
            copy_out_us: self.time(|stream| program.copy_out(device, stream))?,
            step_us: self.time(|stream| {
                program.copy_in(device, stream)?;
                program.call(device, self.communicator, stream)?;
                self.settle()?;
                program.copy_out(device, stream)
            })?,
            flat_step_us: self.time(|stream| {
                into(stream)?;
                call(flat, stream)?;
                back(stream)
            })?,
        })
    }

    /// What the driver takes on the host to note that a tensor's data is ready, microseconds, on average over `count` tensors.
    ///
    /// # Errors
    /// What has gone wrong on the device.
    pub fn noting_us(&self, count: u32) -> Result<f64, GpuError> {
        let Stopwatch { device, stream } = &self.stopwatch;
        let mut marks = Vec::with_capacity(count as usize);
        let began = Instant::now();
        for _ in 0..count {
            device.gpu.is_capturing(*stream)?;
            marks.push(device.mark(*stream, false)?);
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    /// What `work` puts onto the stream takes so many microseconds.
    fn time(&self, work: impl FnOnce(Stream) -> Result<(), GpuError>) -> Result<f64, GpuError> {
        let Stopwatch { device, stream } = &self.stopwatch;
        for _ in 0..LEAD {
            device.gpu.copy(
                self.flat.address(),
                self.buffer.address(),
                self.bytes()[1],
                *stream,
            )?;
        }
        Ok(self.stopwatch.time(work)?.as_secs_f64() * 1e6)
    }

    /// Waits until NCCL has put what it was asked for onto the stream.
    fn settle(&self) -> Result<(), GpuError> {
        while !self.stopwatch.device.gpu.is_ready(self.communicator)? {
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.stopwatch.device.gpu.abort(self.communicator);
    }
}

/// The tensors as the runtime sees them, in place.
fn spans(tensors: &[CudaVec<f32>]) -> Vec<Span> {
    let span = |tensor: &CudaVec<f32>| {
        let address = std::ptr::with_exposed_provenance_mut(tensor.address() as usize);
        // SAFETY: on the host nothing is read or written there; the device's memory lives as long as the tensor.
        unsafe { Span::new(address, address, tensor.len() * size_of::<f32>()) }
    };
    tensors.iter().map(span).collect()
}

fn batch(spans: &[Span]) -> Batch<'_> {
    Batch {
        kind: OpKind::Allreduce,
        spans,
        bytes: &[],
        reduction: Reduction {
            dtype: Dtype::F32,
            op: ReduceOp::Sum,
            prescale: 1.0,
            postscale: 1.0,
        },
        wire_dtype: None,
        root: 0,
    }
}
