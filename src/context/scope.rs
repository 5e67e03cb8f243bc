//! Borrowed tensors, in the manner of `std::thread::scope`.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::handle::RawHandle;
use super::{Allreduce, Context};
use crate::error::Error;
use crate::tensor::Element;

/// Submits slices that outlive the scope; see [`Context::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    context: &'scope Context,
    in_flight: RefCell<Vec<RawHandle>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A slice in flight within a [`Scope`].
pub struct ScopedHandle<'scope> {
    raw: RawHandle,
    scope: PhantomData<&'scope ()>,
}

impl ScopedHandle<'_> {
    /// Whether the outcome is known; never blocks.
    pub fn is_done(&self) -> bool {
        self.raw.is_done()
    }

    /// Sleeps until the operation is over. The slice is free when the scope ends.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(self) -> Result<(), Error> {
        self.raw.wait()
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Combines `tensor` with the other ranks' in place.
    ///
    /// # Errors
    /// As for [`Context::allreduce`].
    pub fn allreduce<T: Element>(
        &'scope self,
        name: &str,
        tensor: &'scope mut [T],
        options: impl Into<Allreduce>,
    ) -> Result<ScopedHandle<'scope>, Error> {
        let (address, elements) = (tensor.as_mut_ptr().cast(), tensor.len());
        // SAFETY: the slice is borrowed mutably for 'scope, and `run` does not return, nor unwind, before the
        // operation is over.
        let raw = unsafe {
            self.context
                .submit_allreduce(name, T::DTYPE, address, address, elements, options.into())
        }?;
        Ok(self.keep(raw))
    }

    /// Replaces `tensor` by `root`'s.
    ///
    /// # Errors
    /// As for [`Context::broadcast`].
    pub fn broadcast<T: Element>(
        &'scope self,
        name: &str,
        tensor: &'scope mut [T],
        root: usize,
    ) -> Result<ScopedHandle<'scope>, Error> {
        let (address, elements) = (tensor.as_mut_ptr().cast(), tensor.len());
        // SAFETY: as for `allreduce`.
        let raw = unsafe {
            self.context
                .submit_broadcast(name, T::DTYPE, address, address, elements, root, None)
        }?;
        Ok(self.keep(raw))
    }

    fn keep(&self, raw: RawHandle) -> ScopedHandle<'scope> {
        let copy = RawHandle {
            engine: Arc::clone(&raw.engine),
            ticket: Arc::clone(&raw.ticket),
        };
        self.in_flight.borrow_mut().push(copy);
        ScopedHandle {
            raw,
            scope: PhantomData,
        }
    }
}

pub(super) fn run<'env, R>(
    context: &Context,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> R {
    /// Waits also when the body unwinds: the slices must not die before their operations are over.
    struct WaitForAll<'a>(&'a RefCell<Vec<RawHandle>>);
    impl Drop for WaitForAll<'_> {
        fn drop(&mut self) {
            for handle in self.0.borrow().iter() {
                // The outcome belongs to the scoped handle; here it only matters that there is one. (In a forked
                // child nobody works on the slices.)
                let _ = handle.wait();
            }
        }
    }
    let scope = Scope {
        context,
        in_flight: RefCell::new(Vec::new()),
        scope: PhantomData,
        env: PhantomData,
    };
    let guard = WaitForAll(&scope.in_flight);
    let result = body(&scope);
    drop(guard);
    result
}
