//! Watch with a time limit, for collectives without a context.

use std::time::Duration;

use crate::error::{Error, PeerError};
use crate::shm::Watch;

/// Fails a wait after a time limit.
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
