//! The simplest watch: waits so long and no longer.

use std::time::Duration;

use crate::error::{Error, PeerError};
use crate::shm::Watch;

/// Gives up after a time.
#[derive(Debug)]
pub(super) struct Patience {
    pub(super) limit: Duration,
}

impl Watch for Patience {
    fn check(&self, on: usize, waited: Duration) -> Result<(), Error> {
        if waited < self.limit {
            return Ok(());
        }
        Err(PeerError::Stalled {
            rank: on,
            waited_seconds: waited.as_secs(),
            limit_seconds: self.limit.as_secs(),
        }
        .into())
    }
}
