//! What the engine's thread has at hand: its communicators.

#![allow(unsafe_code)] // calls to MPI

use std::cell::RefCell;
use std::rc::Rc;

use ronde_mpi_table::{Comm as RawComm, Table};

use super::calls::{Comm, MpiError, check};
use super::finalize::Inbox;
use super::pending::Moved;

/// A communicator of this process, by its place in a list that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommId(usize);

/// MPI as this process sees it. Lives on the engine's thread. A set of ranks has a communicator for each kind of traffic,
/// which go on at the same time.
#[derive(Debug)]
pub(crate) struct World {
    table: &'static Table,
    /// `MPI_COMM_WORLD`. If MPI is not ours it is duplicated and nothing else: others use it too.
    all: Comm,
    ours: bool,
    comms: RefCell<Vec<Comm>>,
    /// Open receives of heartbeats that have ended.
    inboxes: RefCell<Vec<Inbox>>,
    moved: Rc<Moved>,
}

impl World {
    /// To be made on the thread that has initialized MPI, or that makes all calls of this room at least. If MPI is `ours`,
    /// errors of `MPI_COMM_WORLD` are returned from now on; otherwise whoever initialized it has the say.
    ///
    /// # Errors
    /// MPI's.
    pub(super) fn new(table: &'static Table, ours: bool) -> Result<Self, MpiError> {
        let moved = Rc::default();
        // SAFETY: `MPI_COMM_WORLD` lives from initialization on.
        let all = unsafe {
            let all = (table.world)();
            match ours {
                true => Comm::new(table, all, &moved),
                false => Comm::as_it_is(table, all, &moved),
            }
        }?;
        Ok(Self {
            table,
            all,
            ours,
            comms: RefCell::default(),
            inboxes: RefCell::default(),
            moved,
        })
    }

    /// `MPI_COMM_WORLD`.
    pub(super) fn all(&self) -> &Comm {
        &self.all
    }

    /// Whether MPI was initialized by this engine.
    pub(super) fn is_ours(&self) -> bool {
        self.ours
    }

    /// The communicator `id`.
    pub(crate) fn comm(&self, id: CommId) -> Comm {
        self.comms.borrow()[id.0].clone()
    }

    /// Whether anything has happened since the last time.
    pub(super) fn moved(&self) -> &Moved {
        &self.moved
    }

    /// A copy of `comm`; every rank of it makes this call. What a former context had may still hold calls that not all
    /// ranks have begun: nothing is used twice.
    pub(super) async fn duplicate(&self, comm: &Comm) -> Result<CommId, MpiError> {
        let raw = *comm.duplicate()?.await?;
        // SAFETY: made just now, and never freed.
        unsafe { self.keep(raw) }
    }

    /// A communicator of `members` of `comm`, all of whom are about to make this call: it blocks until they have.
    pub(super) fn of_members(
        &self,
        comm: &Comm,
        members: &[usize],
        tag: u16,
    ) -> Result<CommId, MpiError> {
        let raw = comm.of_members(members, tag)?;
        // SAFETY: as above.
        unsafe { self.keep(raw) }
    }

    /// # Safety
    /// That of [`Comm::new`].
    unsafe fn keep(&self, raw: RawComm) -> Result<CommId, MpiError> {
        // SAFETY: the caller's promise.
        let comm = unsafe { Comm::new(self.table, raw, &self.moved) }?;
        let mut comms = self.comms.borrow_mut();
        comms.push(comm);
        Ok(CommId(comms.len() - 1))
    }

    /// Keeps the receive of a heartbeat that has ended. If MPI is not ours the receive is cancelled.
    ///
    /// # Errors
    /// MPI's.
    pub(super) fn leave(&self, inbox: Inbox) -> Result<(), MpiError> {
        if !self.ours {
            return inbox.receive.cancel();
        }
        self.inboxes.borrow_mut().push(inbox);
        Ok(())
    }

    /// All that were left.
    pub(super) fn take_inboxes(&self) -> Vec<Inbox> {
        self.inboxes.take()
    }

    /// Ends MPI in this process; all ranks of the job do so.
    pub(super) fn finalize(&self) -> Result<(), MpiError> {
        // SAFETY: no request is under way that anybody waits for, and nothing is called afterwards: the engine ends.
        check(self.table, "MPI_Finalize", unsafe {
            (self.table.finalize)()
        })
    }
}
