//! Results whose size the caller cannot know beforehand.

use crate::buffer::Buffer;
use crate::delivery::Delivery;

/// What an allgather, an alltoall or a reducescatter gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered<B: Buffer> {
    /// The elements of the result; of a buffer on a GPU, copied to host memory.
    pub tensor: Vec<B::Element>,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Alltoall: the rows received from each rank of the process set. Empty otherwise.
    pub splits: Vec<usize>,
    /// The buffer that was submitted, unchanged.
    pub input: B,
}

mod sealed {
    pub trait Sealed<B> {}
    impl<B: super::Buffer> Sealed<B> for B {}
    impl<B: super::Buffer> Sealed<B> for super::Gathered<B> {}
}

/// What a [`Handle`](super::Handle) gives back: the buffer itself, or something [`Gathered`].
pub trait Returned<B: Buffer>: sealed::Sealed<B> + Sized {
    /// The result of an operation on `buffer` that is over and has succeeded; `delivery` fetches what else it brought.
    #[doc(hidden)]
    fn returned(buffer: B, delivery: impl FnOnce() -> Option<Delivery>) -> Self;
}

impl<B: Buffer> Returned<B> for B {
    fn returned(buffer: B, _delivery: impl FnOnce() -> Option<Delivery>) -> Self {
        buffer
    }
}

impl<B: Buffer> Returned<B> for Gathered<B> {
    fn returned(input: B, delivery: impl FnOnce() -> Option<Delivery>) -> Self {
        let Delivery {
            memory,
            shape,
            splits,
            ..
        } = delivery().unwrap_or_default();
        // SAFETY: the operation has succeeded, so the collective has written all elements of the result.
        let tensor = memory.and_then(|memory| unsafe { memory.into_vec() });
        Self {
            tensor: tensor.unwrap_or_default(),
            shape: shape.to_vec(),
            splits,
            input,
        }
    }
}
