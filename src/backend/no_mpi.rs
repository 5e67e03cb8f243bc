//! Stand-in for MPI in a build without the feature: opening it fails, and the error names the
//! feature.

use super::Opened;
use crate::error::Failure;
use crate::error::{Error, StartError};
use crate::knobs::Knobs;
use crate::rendezvous::RendezvousConfig;
use crate::traffic::MpiTraffic;

/// Has no values.
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
