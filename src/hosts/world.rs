//! World: the communicators of an engine's thread, and the library that moves their messages.

use std::cell::RefCell;
use std::rc::Rc;

use ronde_net::Mesh;

use super::comm::{Comm, CommError, Moved};
use super::mpi::finalize::Inbox;
use crate::mpi::Session;

/// A communicator of an engine, by its place in a list that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommId(usize);

/// Library that moves messages.
pub(super) enum Carrier {
    Mpi(Session),
    Tcp(Rc<Mesh>),
}

/// Communicators of the engine's thread. A set of ranks has a communicator for each kind of
/// traffic, because operations of all kinds are in progress at the same time.
pub(crate) struct World {
    carrier: Carrier,
    comms: RefCell<Vec<Comm>>,
    /// Open receives of heartbeats that have ended.
    inboxes: RefCell<Vec<Inbox>>,
    moved: Rc<Moved>,
}

impl World {
    pub(super) fn new(carrier: Carrier) -> Self {
        Self {
            carrier,
            comms: RefCell::default(),
            inboxes: RefCell::default(),
            moved: Rc::default(),
        }
    }

    pub(super) fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// The mesh, if this is a world over TCP.
    pub(super) fn as_mesh(&self) -> Option<&Rc<Mesh>> {
        match &self.carrier {
            Carrier::Mpi(_) => None,
            Carrier::Tcp(mesh) => Some(mesh),
        }
    }

    /// Whether any operation has completed since the last call.
    pub(super) fn take_moved(&self) -> bool {
        self.moved.take()
    }

    /// Number of operations that have completed.
    pub(super) fn completed(&self) -> u64 {
        self.moved.count()
    }

    /// The communicator `id`.
    pub(crate) fn comm(&self, id: CommId) -> Comm {
        self.comms.borrow()[id.0].clone()
    }

    /// Adds a communicator.
    pub(super) fn add(&self, comm: impl FnOnce(&Rc<Moved>) -> Comm) -> CommId {
        let mut comms = self.comms.borrow_mut();
        comms.push(comm(&self.moved));
        CommId(comms.len() - 1)
    }

    /// Makes a communicator of `members`, ranks of the communicator `lobby`, all of whom are about
    /// to make this call with the same `channel`, which no other communicator has: it may block
    /// until they have.
    pub(super) fn of_members(
        &self,
        lobby: &Comm,
        members: &[usize],
        channel: u64,
    ) -> Result<CommId, CommError> {
        match &self.carrier {
            Carrier::Mpi(session) => {
                let comm = session.of_members(lobby.as_mpi(), members, channel as u16)?;
                Ok(self.add(|moved| Comm::over_mpi(comm, moved)))
            }
            Carrier::Tcp(mesh) => {
                let comm = ronde_net::Comm::new(mesh, channel, members)?;
                Ok(self.add(|moved| Comm::over_tcp(comm, moved)))
            }
        }
    }

    /// Takes in the open receive of a heartbeat that has ended: nothing more is sent for it.
    ///
    /// # Errors
    /// Those of the receive.
    pub(super) fn leave(&self, inbox: Inbox) -> Result<(), CommError> {
        match &self.carrier {
            Carrier::Mpi(session) if session.is_ours() => self.inboxes.borrow_mut().push(inbox),
            Carrier::Mpi(_) => inbox.cancel()?,
            Carrier::Tcp(mesh) => mesh.say_farewell(),
        }
        Ok(())
    }

    /// Returns all receives that were left.
    pub(super) fn take_inboxes(&self) -> Vec<Inbox> {
        self.inboxes.take()
    }
}
