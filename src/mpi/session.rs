//! Session: MPI as this process sees it, and the communicators that are made from `MPI_COMM_WORLD`.

#![allow(unsafe_code)] // calls to MPI

use ronde_mpi_table::{Comm as RawComm, Table};

use super::calls::{Comm, MpiError, check};
use super::pending::Pending;

/// Session of MPI. It belongs to the thread that makes the calls.
#[derive(Debug)]
pub(crate) struct Session {
    table: &'static Table,
    all: Comm,
    ours: bool,
}

impl Session {
    /// Creates the session, on the thread that has initialized MPI or that makes all calls. If MPI
    /// is `ours`, errors of `MPI_COMM_WORLD` are returned from now on; otherwise the library that
    /// has initialized MPI decides.
    ///
    /// # Errors
    /// MPI's.
    pub(super) fn new(table: &'static Table, ours: bool) -> Result<Self, MpiError> {
        // SAFETY: `MPI_COMM_WORLD` lives from initialization on.
        let all = unsafe {
            let all = (table.world)();
            match ours {
                true => Comm::new(table, all),
                false => Comm::as_it_is(table, all),
            }
        }?;
        Ok(Self { table, all, ours })
    }

    /// `MPI_COMM_WORLD`. If MPI is not ours, it is duplicated and used for nothing else.
    pub(crate) fn all(&self) -> &Comm {
        &self.all
    }

    /// Whether this process's MPI was initialized here, and is finalized here.
    pub(crate) fn is_ours(&self) -> bool {
        self.ours
    }

    /// Begins to copy `comm`; every rank of it makes this call. Communicators are never used twice:
    /// those of a former context may still have calls that not all ranks have begun.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn duplicate(&self, comm: &Comm) -> Result<Pending<Vec<RawComm>>, MpiError> {
        comm.duplicate()
    }

    /// Takes in the communicator that [`duplicate`](Self::duplicate) has made.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn duplicated(&self, raw: &[RawComm]) -> Result<Comm, MpiError> {
        // SAFETY: made just now, and never freed.
        unsafe { Comm::new(self.table, raw[0]) }
    }

    /// Makes a communicator of `members` of `comm`, all of whom are about to make this call: it
    /// blocks until they have.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn of_members(
        &self,
        comm: &Comm,
        members: &[usize],
        tag: u16,
    ) -> Result<Comm, MpiError> {
        let raw = comm.of_members(members, tag)?;
        // SAFETY: made just now, and never freed.
        unsafe { Comm::new(self.table, raw) }
    }

    /// Ends MPI in this process; all ranks of the job do so.
    ///
    /// # Errors
    /// MPI's.
    pub(crate) fn finalize(&self) -> Result<(), MpiError> {
        // SAFETY: no request is under way that anybody waits for, and the caller makes no call
        // afterwards.
        check(self.table, "MPI_Finalize", unsafe {
            (self.table.finalize)()
        })
    }
}
