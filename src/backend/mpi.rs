//! Any hosts: MPI.

use std::sync::{Arc, OnceLock};

use super::{Failure, Opened};
use crate::collective::mpi::MpiCollective;
use crate::error::Error;
use crate::knobs::Knobs;
use crate::mpi::{self, Hall};
use crate::shm::Watch;
use crate::transport::local::Meeting;
use crate::transport::mpi::MpiTransport;

/// A context's MPI.
pub(crate) struct Mpi {
    /// Where its ranks have met, once they have.
    hall: OnceLock<Arc<Hall>>,
}

impl Mpi {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { hall: OnceLock::new() })
    }

    pub(super) fn open(&self, meeting: &Meeting, cache_words: usize, knobs: &Knobs) -> Result<Opened, Failure> {
        let (rank, size) = (meeting.rank, meeting.members.len());
        let is_world = self.hall.get().is_none();
        let (hall, met) = match self.hall.get() {
            None => {
                // A rank here is two threads that may be busy at once: its own and MPI's.
                let (hall, met) = mpi::meet_job(meeting, cache_words, |ranks_here| {
                    super::local::patience(knobs, 2 * ranks_here)
                })?;
                (self.hall.get_or_init(|| Arc::new(hall)), met)
            }
            Some(hall) => {
                let met = mpi::meet_set(hall, meeting).map_err(|error| -> Failure { Arc::new(error) })?;
                (hall, met)
            }
        };
        Ok(Opened {
            transport: Box::new(MpiTransport::new(hall, met, rank, &meeting.members, is_world)),
            collective: Box::new(MpiCollective::new(hall, met, rank, size)),
            watch: Arc::clone(&hall.pulse) as Arc<dyn Watch>,
        })
    }
}
