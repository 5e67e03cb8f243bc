//! Metrics of the job for Prometheus: taken from the cycle's events, served over HTTP and written
//! to a file for node-exporter.
//!
//! The first rank of each host has a listener (`RONDE_METRICS_ADDR`) and a file
//! (`RONDE_METRICS_FILE`). Both have the waits of that host's ranks; on rank 0 they have the
//! metrics of the job as well. They belong to the process: a context that ends and another one that
//! begins continue the same counters. Without the two settings there is no thread, file or
//! listener.

mod exporter;
mod file;
mod metrics;
mod recorder;
mod server;
mod tuner;
mod waits;

use std::sync::Arc;

use crate::autotune::Progress;
use crate::error::Error;
use crate::identity::Identity;
use crate::knobs::Knobs;
use crate::rank_times::Shared;

pub(crate) use recorder::Recorder;

/// Properties of a job that its metrics depend on.
pub(crate) struct Job<'a> {
    pub(crate) identity: &'a Identity,
    /// Name of the backend.
    pub(crate) backend: &'static str,
    /// Resets of an elastic job so far.
    pub(crate) resets: u64,
    pub(crate) progress: &'a Arc<Progress>,
    /// Times of the ranks of this host.
    pub(crate) times: &'a Option<Arc<Shared>>,
}

impl Knobs {
    /// Whether this process has metrics.
    pub(crate) fn has_metrics(&self) -> bool {
        self.metrics_addr.is_some() || self.metrics_file.is_some()
    }
}

/// Opens the metrics of this rank, which the knobs ask for; `None` unless it is the first one of
/// its host.
///
/// # Errors
/// An address that cannot be listened on, a file that cannot be written, an invalid token.
pub(crate) fn open(knobs: &Knobs, job: &Job<'_>) -> Result<Option<Recorder>, Error> {
    if job.identity.local_rank != 0 {
        exporter::close(); // after a reset, another process may be the first one of the host
        return Ok(None);
    }
    exporter::open(knobs, job).map(|exporter| Some(Recorder::new(exporter)))
}
