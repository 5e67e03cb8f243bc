//! A call under way.

#![allow(unsafe_code)] // calls to MPI

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ronde_mpi_table::{Request, Table};
use smallvec::SmallVec;

use super::calls::{Comm, MpiError, check};

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

/// Requests under way and the memory that MPI reads and writes meanwhile, which comes back when all have completed. What
/// is dropped before leaves its memory to MPI for ever: requests of collectives cannot be cancelled.
#[derive(Debug)]
pub(crate) struct Pending<B> {
    table: &'static Table,
    requests: SmallVec<[Request; 4]>,
    call: &'static str,
    /// Taken out on completion, by `poll` alone.
    memory: Option<ManuallyDrop<B>>,
    moved: Rc<Moved>,
}

impl<B> Pending<B> {
    pub(super) fn new(
        requests: SmallVec<[Request; 4]>,
        call: &'static str,
        memory: B,
        comm: &Comm,
    ) -> Self {
        Self {
            table: comm.table(),
            requests,
            call,
            memory: Some(ManuallyDrop::new(memory)),
            moved: Rc::clone(comm.moved()),
        }
    }

    /// The memory, if the requests have completed.
    ///
    /// # Errors
    /// MPI's; the memory stays MPI's then.
    ///
    /// # Panics
    /// If it was taken before.
    pub(crate) fn test(&mut self) -> Result<Option<B>, MpiError> {
        let mut done = 0;
        let count = c_int::try_from(self.requests.len()).expect("a few");
        // SAFETY: requests that were started on this thread (`Rc` is not `Send`) and have not been seen to complete.
        check(self.table, self.call, unsafe {
            (self.table.test_all)(self.requests.as_mut_ptr(), count, &mut done)
        })?;
        if done == 0 {
            return Ok(None);
        }
        self.moved.set();
        let memory = self.memory.take().expect("requests complete once");
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
        for request in &mut self.requests {
            // SAFETY: a live request of a receive.
            check(self.table, "MPI_Cancel", unsafe {
                (self.table.cancel)(request)
            })?;
        }
        drop(self.memory.take().map(ManuallyDrop::into_inner));
        Ok(())
    }
}
