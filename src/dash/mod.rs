//! Live page of the job: rank 0 passes events of the cycle and of the tuner to the page's server.
//!
//! The cycle puts a small record of each step into a ring. A thread, the feed, makes events of the
//! records and of the tuner's news, and publishes them. The server belongs to the process: a
//! context that ends and another one that begins use the same page. Without `RONDE_DASH` there is
//! no thread, listener or record.

mod controls;
#[cfg(not(feature = "dash"))]
mod disabled;
#[cfg(feature = "dash")]
mod enabled;

#[cfg(not(feature = "dash"))]
use disabled as page;
#[cfg(feature = "dash")]
use enabled as page;

use std::sync::{Arc, OnceLock};

use crate::autotune::Progress;
use crate::error::Error;
use crate::identity::Identity;
use crate::knobs::Knobs;
use crate::rank_times;

pub(crate) use controls::Controls;
pub(crate) use page::Recorder;

/// Variable that names the address.
const ADDRESS: &str = "RONDE_DASH";

/// Properties of a job that its page depends on.
#[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
pub(crate) struct Job<'a> {
    pub(crate) identity: &'a Identity,
    /// Name of the backend.
    pub(crate) backend: &'static str,
    pub(crate) progress: &'a Arc<Progress>,
    /// Times of the ranks of this host.
    pub(crate) times: &'a Option<Arc<rank_times::Shared>>,
    /// Set when the job runs.
    pub(crate) controls: &'a Arc<OnceLock<Arc<dyn Controls>>>,
}

impl Knobs {
    /// Whether this job has a live page.
    pub(crate) fn has_page(&self) -> bool {
        self.dash_addr.is_some()
    }
}

/// Opens the page on rank 0, if the knobs ask for it.
///
/// # Errors
/// An address that cannot be listened on, an invalid token.
pub(crate) fn open(knobs: &Knobs, job: &Job<'_>) -> Result<Option<Recorder>, Error> {
    match &knobs.dash_addr {
        Some(address) if job.identity.rank == 0 => page::open(knobs, address, job).map(Some),
        _ => Ok(None),
    }
}
