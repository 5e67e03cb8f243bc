//! Nonblocking call of MPI in progress, and the memory that MPI uses meanwhile.

#![allow(unsafe_code)] // calls to MPI

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use ronde_mpi_table::{Request, Table};
use smallvec::SmallVec;

use super::calls::{Comm, MpiError, check};

/// Requests under way and the memory that MPI reads and writes meanwhile, which comes back when all
/// have completed. What is dropped before leaves its memory to MPI for ever: requests of
/// collectives cannot be cancelled.
#[derive(Debug)]
pub(crate) struct Pending<B> {
    table: &'static Table,
    requests: SmallVec<[Request; 4]>,
    call: &'static str,
    /// Taken out on completion, by `poll` alone.
    memory: Option<ManuallyDrop<B>>,
    /// It stays on the thread that has begun it.
    _thread: PhantomData<Rc<()>>,
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
            _thread: PhantomData,
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
        // SAFETY: requests that were started on this thread and have not been seen to complete.
        check(self.table, self.call, unsafe {
            (self.table.test_all)(self.requests.as_mut_ptr(), count, &mut done)
        })?;
        if done == 0 {
            return Ok(None);
        }
        let memory = self.memory.take().expect("requests complete once");
        Ok(Some(ManuallyDrop::into_inner(memory)))
    }
}

impl<B> Pending<B> {
    /// Takes back a receive, whatever has come of it.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn cancel(mut self) -> Result<(), MpiError> {
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
