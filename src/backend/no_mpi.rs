//! MPI in a build without it: it cannot be had.

use super::Opened;
use crate::error::Failure;
use crate::error::{Error, StartError};
use crate::knobs::Knobs;
use crate::rendezvous::RendezvousConfig;
use crate::traffic::MpiTraffic;

/// There is none.
pub(crate) enum Mpi {}

impl Mpi {
    pub(super) fn new() -> Result<Self, Error> {
        Err(StartError::NoMpi.into())
    }

    pub(super) fn traffic(&self) -> MpiTraffic {
        match *self {}
    }

    pub(super) fn open(&self, _: &RendezvousConfig, _: &Knobs) -> Result<Opened, Failure> {
        match *self {}
    }
}
