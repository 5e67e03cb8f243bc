//! What the engine's thread has at hand: its communicators.

use std::cell::RefCell;
use std::rc::Rc;

use ::mpi::ffi;

use super::calls::{Comm, MpiError, check};
use super::pending::Moved;

/// A communicator of this process, by its place in a list that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommId(usize);

impl CommId {
    /// `MPI_COMM_WORLD`.
    pub(super) const ALL: Self = Self(0);
}

/// MPI as this process sees it. Lives on the engine's thread. A set of ranks has a communicator for each kind of traffic,
/// which go on at the same time.
#[derive(Debug)]
pub(crate) struct World {
    /// The first is `MPI_COMM_WORLD`; on it only process sets come together.
    comms: RefCell<Vec<Comm>>,
    moved: Rc<Moved>,
}

impl World {
    /// To be made on the thread that has initialized MPI, or that makes all calls of this room at least.
    ///
    /// # Errors
    /// MPI's.
    pub(super) fn new() -> Result<Self, MpiError> {
        let moved = Rc::default();
        // SAFETY: `MPI_COMM_WORLD` lives from initialization on.
        let all = unsafe { Comm::new(ffi::RSMPI_COMM_WORLD, &moved) }?;
        Ok(Self {
            comms: RefCell::new(vec![all]),
            moved,
        })
    }

    /// `MPI_COMM_WORLD`.
    pub(super) fn all(&self) -> Comm {
        self.comms.borrow()[0].clone()
    }

    /// The communicator `id`.
    pub(crate) fn comm(&self, id: CommId) -> Comm {
        self.comms.borrow()[id.0].clone()
    }

    /// Whether anything has happened since the last time.
    pub(super) fn moved(&self) -> &Moved {
        &self.moved
    }

    /// A copy of `MPI_COMM_WORLD`; every rank of the job makes this call. One that a former context had may still hold
    /// calls that not all ranks have begun: nothing is used twice.
    pub(super) async fn duplicate(&self) -> Result<CommId, MpiError> {
        let raw = *self.all().duplicate()?.await?;
        // SAFETY: made just now, and never freed.
        unsafe { self.keep(raw) }
    }

    /// A communicator of `members`, all of whom are about to make this call: it blocks until they have.
    pub(super) fn of_members(&self, members: &[usize], tag: u16) -> Result<CommId, MpiError> {
        let raw = self.all().of_members(members, tag)?;
        // SAFETY: as above.
        unsafe { self.keep(raw) }
    }

    /// # Safety
    /// That of [`Comm::new`].
    unsafe fn keep(&self, raw: ffi::MPI_Comm) -> Result<CommId, MpiError> {
        // SAFETY: the caller's promise.
        let comm = unsafe { Comm::new(raw, &self.moved) }?;
        let mut comms = self.comms.borrow_mut();
        comms.push(comm);
        Ok(CommId(comms.len() - 1))
    }

    /// Ends MPI in this process; all ranks of the job do so.
    pub(super) fn finalize(&self) -> Result<(), MpiError> {
        // SAFETY: no request is under way that anybody waits for, and nothing is called afterwards: the engine ends.
        check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }
}
