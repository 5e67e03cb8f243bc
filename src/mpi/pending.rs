//! A call under way.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::mpi::ffi;

use super::calls::{MpiError, check};

/// Whether any request has completed since the engine last looked: as long as some do, it does not sleep.
#[derive(Debug, Default)]
pub(crate) struct Moved(Cell<bool>);

impl Moved {
    /// Says that something has happened.
    pub(super) fn set(&self) {
        self.0.set(true);
    }

    /// Whether something has, since the last time.
    pub(super) fn take(&self) -> bool {
        self.0.take()
    }
}

/// A request under way and the memory that MPI reads and writes meanwhile, which comes back when it has completed. One
/// that is dropped before leaves its memory to MPI for ever: requests of collectives cannot be cancelled.
#[derive(Debug)]
pub(crate) struct Pending<B> {
    request: ffi::MPI_Request,
    call: &'static str,
    /// Taken out on completion, by `poll` alone.
    memory: Option<ManuallyDrop<B>>,
    moved: Rc<Moved>,
}

impl<B> Pending<B> {
    pub(super) fn new(request: ffi::MPI_Request, call: &'static str, memory: B, moved: &Rc<Moved>) -> Self {
        Self {
            request,
            call,
            memory: Some(ManuallyDrop::new(memory)),
            moved: Rc::clone(moved),
        }
    }

    /// The memory, if the request has completed.
    ///
    /// # Errors
    /// MPI's; the memory stays MPI's then.
    ///
    /// # Panics
    /// If it was taken before.
    pub(crate) fn test(&mut self) -> Result<Option<B>, MpiError> {
        let mut done = 0;
        // SAFETY: a request that was started on this thread (it is not `Send`) and has not been seen to complete.
        check(self.call, unsafe {
            ffi::MPI_Test(&mut self.request, &mut done, ffi::RSMPI_STATUS_IGNORE)
        })?;
        if done == 0 {
            return Ok(None);
        }
        self.moved.set();
        let memory = self.memory.take().expect("a request completes once");
        Ok(Some(ManuallyDrop::into_inner(memory)))
    }
}

// Nothing in it is pinned: MPI has the addresses of what the memory owns, not of the owner.
impl<B> Unpin for Pending<B> {}

impl<B> Future for Pending<B> {
    type Output = Result<B, MpiError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.test() {
            Ok(Some(memory)) => Poll::Ready(Ok(memory)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<B> Pending<B> {
    /// Takes back a receive, whatever has come of it.
    ///
    /// # Errors
    /// MPI's.
    pub(super) fn cancel(mut self) -> Result<(), MpiError> {
        // SAFETY: a live request of a receive, which `MPI_Wait` completes without any message once it is cancelled.
        unsafe {
            check("MPI_Cancel", ffi::MPI_Cancel(&mut self.request))?;
            check("MPI_Wait", ffi::MPI_Wait(&mut self.request, ffi::RSMPI_STATUS_IGNORE))?;
        }
        drop(self.memory.take().map(ManuallyDrop::into_inner));
        Ok(())
    }
}
