//! Buffer of one tensor, reduced in host memory or on a GPU.
//!
//! Values on a GPU are written and checked in host memory: a step is uploaded before its time
//! begins, and downloaded after its time ends. If only sentinels are checked, only the sentinels of
//! all tensors are transferred, together ([`Shuttle`]).

#![allow(unsafe_code)] // elements as bytes

use super::memcpy::{self, CopyMethod};
use super::payload::{Extent, Runtime};
use super::verify::{PatternElement, TensorInstance, Verifier};
use ronde::error::Error;
use ronde::internal::gpu::{CudaVec, GpuError, Shuttle, Stopwatch, Stream};
use ronde::tensor::ReduceOp;

/// Values of one tensor, in host memory or on a GPU.
pub(super) enum Buffer<T: PatternElement> {
    Host(Vec<T>),
    Gpu { values: Vec<T>, there: CudaVec<T> },
}

/// Buffer in flight.
pub(super) enum Flight<R: Runtime, T: PatternElement> {
    Host(R::Pending<Vec<T>>),
    Gpu {
        values: Vec<T>,
        there: R::Pending<CudaVec<T>>,
    },
}

impl<T: PatternElement> Buffer<T> {
    /// Allocates `elements` zeros, on CUDA device `ordinal` if it is given.
    pub(super) fn zeros(ordinal: Option<u32>, elements: usize) -> Result<Self, GpuError> {
        let values = vec![T::from_small(0); elements];
        Ok(match ordinal {
            None => Self::Host(values),
            Some(ordinal) => Self::Gpu {
                there: CudaVec::from_slice(ordinal, &values)?,
                values,
            },
        })
    }

    /// Allocates a target for copies of this buffer. `stopwatch` is that of its GPU.
    pub(super) fn target(&self, stopwatch: Option<&Stopwatch>) -> Result<Self, GpuError> {
        Ok(match (self, stopwatch) {
            (Self::Host(values), _) => {
                let mut target = vec![T::from_small(0); values.len()];
                target.copy_from_slice(values); // maps and warms the pages
                Self::Host(target)
            }
            (Self::Gpu { there, .. }, Some(stopwatch)) => Self::Gpu {
                values: Vec::new(), // never read
                there: there.cloned_on(stopwatch.stream())?,
            },
            (Self::Gpu { .. }, None) => unreachable!("what is on a GPU is copied by its clock"),
        })
    }

    /// Returns the values in host memory, where they are written and checked.
    pub(super) fn values(&self) -> &[T] {
        match self {
            Self::Host(values) | Self::Gpu { values, .. } => values,
        }
    }

    /// Writes this rank's inputs, all elements or the sentinels. On a GPU it uploads all elements,
    /// or loads the sentinels into the shuttle.
    pub(super) fn write(
        &mut self,
        verifier: &Verifier,
        place: TensorInstance<'_>,
        extent: Extent,
        shuttle: Option<&mut Shuttle>,
    ) -> Result<(), GpuError> {
        let (Self::Host(values) | Self::Gpu { values, .. }) = self;
        match extent {
            Extent::Full => verifier.fill(place, values),
            Extent::Sentinels => verifier.write_sentinels(place, values),
        }
        if let Self::Gpu { values, there } = self
            && extent == Extent::Full
        {
            there.copy_from(values)?;
        }
        self.load(verifier, place, extent, shuttle);
        Ok(())
    }

    /// Downloads all results from the GPU; for sentinels, loads their positions into the shuttle.
    pub(super) fn fetch(
        &mut self,
        verifier: &Verifier,
        place: TensorInstance<'_>,
        extent: Extent,
        shuttle: Option<&mut Shuttle>,
    ) -> Result<(), GpuError> {
        if let Self::Gpu { values, there } = self
            && extent == Extent::Full
        {
            there.read_front(values)?;
        }
        self.load(verifier, place, extent, shuttle);
        Ok(())
    }

    /// Loads the shuttle with sentinels, if only these are needed and the buffer is on a GPU.
    fn load(
        &self,
        verifier: &Verifier,
        place: TensorInstance<'_>,
        extent: Extent,
        shuttle: Option<&mut Shuttle>,
    ) {
        let (Self::Gpu { values, there }, Extent::Sentinels, Some(shuttle)) =
            (self, extent, shuttle)
        else {
            return;
        };
        for index in verifier.sentinels::<T>(place.step, values.len()) {
            shuttle.load(there, index, bytes(&values[index..=index]));
        }
    }

    /// Takes the values that were loaded for [`fetch`](Self::fetch) from the shuttle.
    pub(super) fn unload(
        &mut self,
        verifier: &Verifier,
        place: TensorInstance<'_>,
        extent: Extent,
        shuttle: Option<&mut Shuttle>,
    ) {
        let (Self::Gpu { values, .. }, Extent::Sentinels, Some(shuttle)) = (self, extent, shuttle)
        else {
            return;
        };
        for index in verifier.sentinels::<T>(place.step, values.len()) {
            shuttle.unload(bytes_mut(&mut values[index..=index]));
        }
    }

    /// Copies all values to `target`, which has the same length, in host memory.
    pub(super) fn copy_to(&self, target: &mut Self, method: CopyMethod) {
        match (self, target) {
            (Self::Host(source), Self::Host(target)) => memcpy::copy(source, target, method),
            _ => unreachable!("copies on a GPU go onto a stream"),
        }
    }

    /// Enqueues the copy to `target` on `stream`, on a GPU.
    pub(super) fn copy_on(&self, target: &mut Self, stream: Stream) -> Result<(), GpuError> {
        match (self, target) {
            (Self::Gpu { there: source, .. }, Self::Gpu { there: target, .. }) => {
                target.copy_on(source, stream)
            }
            _ => unreachable!("the target of a copy is where its source is"),
        }
    }

    /// Submits the buffer.
    pub(super) fn submit<R: Runtime>(self, runtime: &R, name: &str) -> Result<Flight<R, T>, Error> {
        Ok(match self {
            Self::Host(values) => {
                Flight::Host(runtime.allreduce(name, values, ReduceOp::Average)?)
            }
            Self::Gpu { values, there } => Flight::Gpu {
                values,
                there: runtime.allreduce(name, there, ReduceOp::Average)?,
            },
        })
    }
}

impl<R: Runtime, T: PatternElement> Flight<R, T> {
    /// Waits for the submission and returns the buffer.
    pub(super) fn land(self, runtime: &R) -> Result<Buffer<T>, Error> {
        Ok(match self {
            Self::Host(values) => Buffer::Host(runtime.wait(values)?),
            Self::Gpu { values, there } => Buffer::Gpu {
                values,
                there: runtime.wait(there)?,
            },
        })
    }
}

/// Returns the bytes of the values.
fn bytes<T: PatternElement>(values: &[T]) -> &[u8] {
    // SAFETY: all pattern elements are numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the bytes of the values for overwriting.
fn bytes_mut<T: PatternElement>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: all pattern elements are numbers without padding, and any bits are a valid number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
