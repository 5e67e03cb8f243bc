//! Buffers that callers lend or give to the runtime, and the error that returns a buffer after a
//! failure.

#![allow(unsafe_code)] // the contract of a buffer: its address is stable

use crate::error::Error;
use crate::tensor::{Device, Dtype, Element};

/// Memory that the runtime may own while a tensor is in flight: a `Vec<T>` of an [`Element`] type,
/// or a [`CudaVec`](crate::CudaVec).
///
/// # Safety
/// Until the buffer is dropped or used otherwise, also while it is moved: `address` is aligned,
/// readable and writable for `elements` initialized values of type `Element`, on the device, and no
/// other code reads or writes them. `elements`, `address` and `device` do not change, and a stream
/// of the device exists. `DTYPE` is that of `Element`.
///
/// A `Box` or a `&mut` does not keep this: moving one asserts that nothing else accesses what it
/// points to.
pub unsafe trait Buffer: Send + 'static {
    /// Element type.
    type Element: Element;
    /// Tag of the element type.
    const DTYPE: Dtype = Self::Element::DTYPE;
    /// Number of elements.
    fn elements(&self) -> usize;
    /// Address of the first element.
    fn address(&mut self) -> *mut u8;
    /// Device that holds the memory.
    fn device(&self) -> Device {
        Device::Cpu
    }
}

// SAFETY: a vector's elements lie on the heap and stay there while the vector is only moved.
unsafe impl<T: Element> Buffer for Vec<T> {
    type Element = T;
    fn elements(&self) -> usize {
        self.len()
    }
    fn address(&mut self) -> *mut u8 {
        self.as_mut_ptr().cast()
    }
}

/// Error of an operation, with the buffer that was given to it. After an error in flight the
/// buffer's contents are unspecified. The operator `?` in a function that returns [`Error`] drops
/// the buffer; for other error types, such as `Box<dyn Error>`, convert first
/// (`.map_err(Error::from)?`), so that the error neither keeps the buffer nor hides the [`Error`].
pub struct Failed<B> {
    /// Error of the operation.
    pub error: Error,
    /// The buffer, given back.
    pub buffer: B,
}

impl<B> std::fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for Failed<B> {
    /// Source of `error`. `Display` prints the error itself, which a report would print twice
    /// otherwise.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<B> std::fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Failed")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error
    }
}
