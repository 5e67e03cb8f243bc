//! Recorder: passes events of the job to the metrics.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::exporter::Exporter;
use super::metrics::JobMetrics;
use crate::error::Error;
use crate::observer::CycleEnd;

/// Recorder of the first rank of a host, for the set of all ranks.
pub(crate) struct Recorder {
    exporter: Arc<Exporter>,
}

impl Recorder {
    pub(super) fn new(exporter: Arc<Exporter>) -> Self {
        Self { exporter }
    }

    /// Metrics of the job, on rank 0.
    fn job(&self) -> Option<&JobMetrics> {
        self.exporter.metrics.job.as_ref()
    }

    /// A negotiation took this time.
    pub(crate) fn negotiated(&self, took: Duration) {
        if let Some(job) = self.job() {
            job.negotiation.inc_by(took.as_secs_f64());
        }
    }

    /// A batch of this size was executed.
    pub(crate) fn executed(&self, bytes: u64) {
        if let Some(job) = self.job() {
            job.messages.inc();
            job.bytes.inc_by(bytes);
        }
    }

    /// A step ended, which took this time, if that is known.
    pub(crate) fn step_ended(&self, took: Option<Duration>) {
        let Some(job) = self.job() else { return };
        if let Some(took) = took {
            job.step.observe(took.as_secs_f64());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        job.last_step.set(now.unwrap_or_default().as_secs_f64());
    }

    pub(crate) fn cycle_ended(&self, cycle: &CycleEnd) {
        let Some(job) = self.job() else { return };
        job.exposed.inc_by(cycle.blocked.as_secs_f64());
        let settings = &cycle.settings.value;
        job.fusion_threshold
            .set(settings.fusion_threshold_bytes as f64);
        job.gpu_fusion_threshold
            .set(settings.device_threshold_bytes() as f64);
        job.cycle_time.set(settings.cycle_time_ns as f64 / 1e9);
    }

    pub(crate) fn ended(&self, error: &Error) {
        if let (Some(job), true) = (self.job(), error.is_peer_gone()) {
            job.peers_lost.inc();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.exporter.metrics.end();
        self.exporter.write_file();
    }
}
