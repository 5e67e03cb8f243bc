//! Buffers that callers lend or give to the runtime, and what comes back when something fails.

use crate::error::Error;
use crate::tensor::{Device, Dtype, Element};

/// Memory that the runtime may own while a tensor is in flight: `Vec<T>` or `Box<[T]>` of an [`Element`] type.
///
/// # Safety
/// `address` must stay valid for `elements` values of type `Element`, wherever the buffer itself is moved, for as
/// long as it is neither dropped nor otherwise used.
pub unsafe trait Buffer: Send + 'static {
    /// Element type.
    type Element: Element;
    /// Its tag.
    const DTYPE: Dtype = Self::Element::DTYPE;
    /// Number of elements.
    fn elements(&self) -> usize;
    /// The first element.
    fn address(&mut self) -> *mut u8;
    /// Where its memory is.
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

// SAFETY: as for vectors.
unsafe impl<T: Element> Buffer for Box<[T]> {
    type Element = T;
    fn elements(&self) -> usize {
        self.len()
    }
    fn address(&mut self) -> *mut u8 {
        self.as_mut_ptr().cast()
    }
}

/// An error, and the buffer that was given for the operation. After an error in flight its contents are
/// unspecified; `?` in a function that returns [`Error`] drops it.
pub struct Failed<B> {
    /// What went wrong.
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
    /// What is behind the error: it speaks for the error itself, which a report would else print twice.
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
