//! Metrics of the job for Prometheus: taken from the cycle's events, served over HTTP and written
//! to a file for node-exporter.
//!
//! The first rank of each host has a listener (`RONDE_METRICS_ADDR`) and a file
//! (`RONDE_METRICS_FILE`). Both have the waits of that host's ranks; on rank 0 they have the metrics
//! of the job as well. They belong to the process: a context that ends and another one that begins
//! continue the same counters. Without the two settings there is no thread, file or listener.

mod exporter;
mod file;
mod metrics;
mod recorder;
mod server;
mod tuner;
mod waits;

use std::sync::Arc;

use crate::autotune::Progress;
use crate::clock::Clock;
use crate::error::Error;
use crate::identity::Identity;
use crate::knobs::Knobs;

pub(crate) use recorder::Recorder;

/// Properties of a job that its metrics depend on.
pub(crate) struct Job<'a> {
    /// A text that the ranks of this host share, and no other job or context.
    pub(crate) key: &'a str,
    pub(crate) identity: &'a Identity,
    /// Name of the backend.
    pub(crate) backend: &'static str,
    pub(crate) progress: &'a Arc<Progress>,
    pub(crate) clock: &'a Arc<dyn Clock>,
}

impl Knobs {
    /// Whether this process has metrics.
    pub(crate) fn has_metrics(&self) -> bool {
        self.metrics_addr.is_some() || self.metrics_file.is_some()
    }
}

/// Opens the metrics of this rank, which the knobs ask for.
///
/// # Errors
/// An address that cannot be listened on, a file that cannot be written, an invalid token.
pub(crate) fn open(knobs: &Knobs, job: &Job<'_>) -> Result<Recorder, Error> {
    let waits = waits::Shared::open(job.key, job.identity);
    let exporter = match job.identity.local_rank {
        0 => Some(exporter::open(knobs, job, &waits)?),
        _ => None,
    };
    Ok(Recorder::new(job, exporter, waits))
}
