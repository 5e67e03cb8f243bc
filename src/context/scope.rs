//! Scoped operations on borrowed tensors, like `std::thread::scope`.

#![allow(unsafe_code)] // submits borrowed memory; the scope waits for the operations

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::handle;
use super::operation::{Operation, RawOutput, RawTensor, shape_of};
use super::{ProcessSet, Reduce};
use crate::cycle::engine::Engine;
use crate::error::Error;
use crate::queue::Ticket;
use crate::tensor::{Device, Element};

/// Submits slices that outlive the scope; see [`ProcessSet::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    set: &'scope ProcessSet,
    in_flight: RefCell<Vec<Arc<Ticket>>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A slice in flight within a [`Scope`].
#[must_use = "an error of the operation is returned by `wait` alone; the scope only waits for its end"]
pub struct ScopedHandle<'scope> {
    engine: &'scope Engine,
    ticket: Arc<Ticket>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("set", &self.set.id())
            .field("tensors", &self.in_flight.borrow().len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ScopedHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedHandle")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

impl ScopedHandle<'_> {
    /// Whether the outcome is known; never blocks.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Sleeps until the operation has completed. The slice can be used again when the scope ends.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait(self) -> Result<(), Error> {
        handle::wait(self.engine, &self.ticket)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Combines `tensor` in place with the tensors of the other ranks.
    ///
    /// # Errors
    /// As for [`ProcessSet::allreduce`].
    pub fn allreduce<T: Element>(
        &'scope self,
        name: &str,
        tensor: &'scope mut [T],
        options: impl Into<Reduce>,
    ) -> Result<ScopedHandle<'scope>, Error> {
        let (operation, shape) = options.into().allreduce();
        self.submit(name, shape.as_deref(), Lent::Both(tensor), &operation)
    }

    /// Combines tensors in place with those of the other ranks, each under its own name. Submits
    /// all or none of them.
    ///
    /// The result equals that of a call of [`allreduce`](Self::allreduce) for each tensor. It is
    /// faster for many small tensors: 1,000 of them share one lock and one reading of the clock.
    /// Ranks may divide their tensors into batches differently.
    ///
    /// ```no_run
    /// # let context = ronde::Context::from_env()?;
    /// # let (mut weights, mut bias) = ([0.5f32; 64], [0.5f32; 8]);
    /// context.scope(|scope| {
    ///     let tensors = [("weights", &mut weights[..]), ("bias", &mut bias[..])];
    ///     let handles = scope.allreduce_batch(tensors, ronde::ReduceOp::Average)?;
    ///     handles.into_iter().try_for_each(|handle| handle.wait())
    /// })?;
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`ProcessSet::allreduce`], for the first tensor with an error.
    pub fn allreduce_batch<'name, T: Element>(
        &'scope self,
        tensors: impl IntoIterator<Item = (&'name str, &'scope mut [T])>,
        options: impl Into<Reduce>,
    ) -> Result<Vec<ScopedHandle<'scope>>, Error> {
        let (operation, shape) = options.into().allreduce();
        let tensors = tensors.into_iter().map(|(name, tensor)| {
            let shape = shape_of(name, shape.as_deref(), tensor.len())?;
            Ok((name, Lent::Both(tensor), shape))
        });
        let mut tensors = tensors.collect::<Result<Vec<_>, Error>>()?;
        let parts: Vec<_> = tensors
            .iter_mut()
            .map(|(name, lent, shape)| (operation, lent.raw(name, shape)))
            .collect();
        // SAFETY: as in `submit`, for each tensor.
        let (engine, tickets) = unsafe { self.set.submit_all(&parts, None, true) }?;
        self.in_flight.borrow_mut().extend(tickets.iter().cloned());
        let handle = |ticket| ScopedHandle { engine, ticket };
        Ok(tickets.into_iter().map(handle).collect())
    }

    /// Replaces `tensor` by the tensor of `root`.
    ///
    /// # Errors
    /// As for [`ProcessSet::broadcast`].
    pub fn broadcast<T: Element>(
        &'scope self,
        name: &str,
        tensor: &'scope mut [T],
        root: usize,
    ) -> Result<ScopedHandle<'scope>, Error> {
        self.submit(
            name,
            None,
            Lent::Both(tensor),
            &Operation::Broadcast { root },
        )
    }

    /// Concatenates the rows of all ranks in `output`, which must have exactly their size.
    ///
    /// # Errors
    /// As for [`ProcessSet::allgather`]; from the handle also an output of another size.
    pub fn allgather<T: Element>(
        &'scope self,
        name: &str,
        input: &'scope [T],
        shape: &[usize],
        output: &'scope mut [T],
    ) -> Result<ScopedHandle<'scope>, Error> {
        self.submit(
            name,
            Some(shape),
            Lent::Two(input, output),
            &Operation::Allgather,
        )
    }

    /// Sends `splits[r]` rows to set rank r, and writes the rows sent to this rank into `output`,
    /// which must have exactly their size.
    ///
    /// # Errors
    /// As for [`ProcessSet::alltoall`]; from the handle also an output of another size.
    pub fn alltoall<T: Element>(
        &'scope self,
        name: &str,
        input: &'scope [T],
        shape: &[usize],
        splits: &[usize],
        output: &'scope mut [T],
    ) -> Result<ScopedHandle<'scope>, Error> {
        let operation = Operation::Alltoall { splits };
        self.submit(name, Some(shape), Lent::Two(input, output), &operation)
    }

    /// Combines tensors as an allreduce does, and writes this rank's share of the rows into
    /// `output`, which must have exactly its size.
    ///
    /// # Errors
    /// As for [`ProcessSet::reducescatter`]; from the handle also an output of another size.
    pub fn reducescatter<T: Element>(
        &'scope self,
        name: &str,
        input: &'scope [T],
        options: impl Into<Reduce>,
        output: &'scope mut [T],
    ) -> Result<ScopedHandle<'scope>, Error> {
        let (operation, shape) = options.into().reducescatter();
        self.submit(name, shape.as_deref(), Lent::Two(input, output), &operation)
    }

    fn submit<T: Element>(
        &'scope self,
        name: &str,
        shape: Option<&[usize]>,
        mut lent: Lent<'scope, T>,
        operation: &Operation<'_>,
    ) -> Result<ScopedHandle<'scope>, Error> {
        let shape = shape_of(name, shape, lent.elements())?;
        let tensor = lent.raw(name, &shape);
        // SAFETY: the slices are borrowed for 'scope, the written ones mutably, and `run` neither
        // returns nor unwinds before the operation has completed.
        let entry = unsafe { operation.entry(self.set, &tensor, true) }?;
        let engine = self.set.engine()?;
        let ticket = engine.queue.submit(entry)?;
        self.in_flight.borrow_mut().push(Arc::clone(&ticket));
        Ok(ScopedHandle { engine, ticket })
    }
}

/// Slices that a caller lends for an operation.
enum Lent<'scope, T> {
    /// Input and output are the same.
    Both(&'scope mut [T]),
    /// Input and output.
    Two(&'scope [T], &'scope mut [T]),
}

impl<T: Element> Lent<'_, T> {
    /// Elements of the input.
    fn elements(&self) -> usize {
        match self {
            Self::Both(tensor) => tensor.len(),
            Self::Two(input, _) => input.len(),
        }
    }

    fn raw<'a>(&mut self, name: &'a str, shape: &'a [usize]) -> RawTensor<'a> {
        let (input, output, room) = match self {
            Self::Both(tensor) => {
                let address = tensor.as_mut_ptr();
                (address.cast_const(), address, tensor.len())
            }
            Self::Two(input, output) => (input.as_ptr(), output.as_mut_ptr(), output.len()),
        };
        RawTensor {
            name,
            dtype: T::DTYPE,
            wire_dtype: None,
            shape,
            device: Device::Cpu,
            input: input.cast(),
            output: RawOutput::Into {
                address: output.cast(),
                bytes: room * size_of::<T>(),
            },
        }
    }
}

pub(super) fn run<'env, R>(
    set: &ProcessSet,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> R {
    /// Waits also when the body unwinds: the slices must not be dropped before their operations
    /// have completed.
    struct WaitForAll<'a>(&'a ProcessSet, &'a RefCell<Vec<Arc<Ticket>>>);
    impl Drop for WaitForAll<'_> {
        fn drop(&mut self) {
            // No engine: nothing was submitted, or this is a forked child, in which no thread uses
            // the slices.
            let Ok(engine) = self.0.engine() else { return };
            for ticket in self.1.borrow().iter() {
                // The scoped handle returns the outcome; here only completion matters.
                engine.wait(ticket, None);
            }
        }
    }
    let scope = Scope {
        set,
        in_flight: RefCell::new(Vec::new()),
        scope: PhantomData,
        env: PhantomData,
    };
    let guard = WaitForAll(set, &scope.in_flight);
    let result = body(&scope);
    drop(guard);
    result
}
