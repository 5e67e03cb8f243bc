//! One tensor's values, and where they are reduced: right there in host memory, or on a GPU.
//!
//! Values on a GPU are written and checked in host memory: a step is uploaded before its time begins, and downloaded when it is
//! over. Where only sentinels matter only these travel, those of all tensors together ([`Shuttle`]).

#![allow(unsafe_code)] // elements as bytes

use super::memcpy::{self, CopyMethod};
use super::payload::{Extent, Runtime};
use super::verify::{PatternElement, TensorInstance, Verifier};
use ronde::error::Error;
use ronde::internal::gpu::{CudaVec, GpuError, Shuttle, Stopwatch, Stream};
use ronde::tensor::ReduceOp;

/// See the module.
pub(super) enum Buffer<T: PatternElement> {
    Host(Vec<T>),
    Gpu { values: Vec<T>, there: CudaVec<T> },
}

/// One under way.
pub(super) enum Flight<R: Runtime, T: PatternElement> {
    Host(R::Pending<Vec<T>>),
    Gpu {
        values: Vec<T>,
        there: R::Pending<CudaVec<T>>,
    },
}

impl<T: PatternElement> Buffer<T> {
    /// `elements` zeros, on CUDA device `ordinal` if there is one named.
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

    /// A target for copies of it. `stopwatch` is that of the GPU which it is on.
    pub(super) fn target(&self, stopwatch: Option<&Stopwatch>) -> Result<Self, GpuError> {
        Ok(match (self, stopwatch) {
            (Self::Host(values), _) => {
                let mut target = vec![T::from_small(0); values.len()];
                target.copy_from_slice(values); // pages are mapped and warm afterwards
                Self::Host(target)
            }
            (Self::Gpu { there, .. }, Some(stopwatch)) => Self::Gpu {
                values: Vec::new(), // nobody looks
                there: there.cloned_on(stopwatch.stream())?,
            },
            (Self::Gpu { .. }, None) => unreachable!("what is on a GPU is copied by its clock"),
        })
    }

    /// The values, where they are written and checked.
    pub(super) fn values(&self) -> &[T] {
        match self {
            Self::Host(values) | Self::Gpu { values, .. } => values,
        }
    }

    /// Writes this rank's inputs, everywhere or at the sentinels, and brings them to where they are reduced, or loads the shuttle
    /// to there with them.
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

    /// Brings all results to where they are checked; of sentinels, loads the shuttle with their places.
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

    /// Loads the shuttle with sentinels, if they are what matters, and on a GPU.
    fn load(
        &self,
        verifier: &Verifier,
        place: TensorInstance<'_>,
        extent: Extent,
        shuttle: Option<&mut Shuttle>,
    ) {
        let (Self::Gpu { values, there }, Extent::Sentinels, Some(shuttle)) = (self, extent, shuttle) else {
            return;
        };
        for index in verifier.sentinels::<T>(place.step, values.len()) {
            shuttle.load(there, index, bytes(&values[index..=index]));
        }
    }

    /// Takes back from the shuttle what was loaded for [`fetch`](Self::fetch).
    pub(super) fn unload(
        &mut self,
        verifier: &Verifier,
        place: TensorInstance<'_>,
        extent: Extent,
        shuttle: Option<&mut Shuttle>,
    ) {
        let (Self::Gpu { values, .. }, Extent::Sentinels, Some(shuttle)) = (self, extent, shuttle) else {
            return;
        };
        for index in verifier.sentinels::<T>(place.step, values.len()) {
            shuttle.unload(bytes_mut(&mut values[index..=index]));
        }
    }

    /// Copies all values over `target`, which is as long, in host memory.
    pub(super) fn copy_to(&self, target: &mut Self, method: CopyMethod) {
        match (self, target) {
            (Self::Host(source), Self::Host(target)) => memcpy::copy(source, target, method),
            _ => unreachable!("copies on a GPU go onto a stream"),
        }
    }

    /// Puts the same onto `stream`, on a GPU.
    pub(super) fn copy_on(&self, target: &mut Self, stream: Stream) -> Result<(), GpuError> {
        match (self, target) {
            (Self::Gpu { there: source, .. }, Self::Gpu { there: target, .. }) => {
                target.copy_on(source, stream)
            }
            _ => unreachable!("the target of a copy is where its source is"),
        }
    }

    /// Submits it.
    pub(super) fn submit<R: Runtime>(self, runtime: &R, name: &str) -> Result<Flight<R, T>, Error> {
        Ok(match self {
            Self::Host(values) => Flight::Host(runtime.allreduce(name, values, ReduceOp::Average)?),
            Self::Gpu { values, there } => Flight::Gpu {
                values,
                there: runtime.allreduce(name, there, ReduceOp::Average)?,
            },
        })
    }
}

impl<R: Runtime, T: PatternElement> Flight<R, T> {
    /// Waits for it.
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

/// Numbers as bytes.
fn bytes<T: PatternElement>(values: &[T]) -> &[u8] {
    // SAFETY: all pattern elements are numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to be overwritten.
fn bytes_mut<T: PatternElement>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bits are a number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
