//! Results of operations whose output size the caller does not know: allgather, alltoall and
//! reducescatter.

#![allow(unsafe_code)] // takes over memory that the collective has written

use crate::buffer::Buffer;
use crate::delivery::Delivery;
use crate::error::GpuError;

/// Result of an allgather, an alltoall or a reducescatter.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered<B: Buffer> {
    /// Elements of the result; those on a GPU are copied to host memory.
    pub tensor: Vec<B::Element>,
    /// Dimensions of the result.
    pub shape: Vec<usize>,
    /// Alltoall: the rows received from each rank of the process set. Empty otherwise.
    pub splits: Vec<usize>,
    /// Buffer that was submitted, unchanged.
    pub input: B,
}

mod sealed {
    pub trait Sealed<B> {}
    impl<B: super::Buffer> Sealed<B> for B {}
    impl<B: super::Buffer> Sealed<B> for super::Gathered<B> {}
}

/// Result of a [`Handle`](super::Handle): the buffer itself, or a [`Gathered`].
pub trait Returned<B: Buffer>: sealed::Sealed<B> + Sized {
    /// Returns the result of a successful operation on `buffer`; `delivery` returns the output that
    /// the runtime allocated.
    ///
    /// # Errors
    /// The device of the output has failed.
    #[doc(hidden)]
    fn returned(
        buffer: B,
        delivery: impl FnOnce() -> Option<Delivery>,
    ) -> Result<Self, (B, GpuError)>;
}

impl<B: Buffer> Returned<B> for B {
    fn returned(
        buffer: B,
        _delivery: impl FnOnce() -> Option<Delivery>,
    ) -> Result<Self, (B, GpuError)> {
        Ok(buffer)
    }
}

impl<B: Buffer> Returned<B> for Gathered<B> {
    fn returned(
        input: B,
        delivery: impl FnOnce() -> Option<Delivery>,
    ) -> Result<Self, (B, GpuError)> {
        let Delivery {
            memory,
            shape,
            splits,
            ..
        } = delivery().unwrap_or_default();
        // SAFETY: the operation has succeeded, so the collective has written all elements of the
        // result.
        let tensor = memory
            .map(|memory| unsafe { memory.into_vec() })
            .transpose();
        match tensor {
            Ok(tensor) => Ok(Self {
                tensor: tensor.flatten().unwrap_or_default(),
                shape: shape.to_vec(),
                splits,
                input,
            }),
            Err(error) => Err((input, error)),
        }
    }
}
