//! The metrics: names, units and help texts.

use std::fmt::Error;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex};

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::Job;
use super::tuner::TunerCollector;
use super::waits::WaitsCollector;
use crate::autotune::Progress;
use crate::rank_times::Shared;
use crate::sync::lock;

/// Buckets of the step time: 1 ms, 1.5 ms, … 57 s.
const STEP_BUCKETS: (f64, f64, u16) = (0.001, 1.5, 28);

/// Contexts of this process that a lost rank ended. After it the number of ranks is often another
/// one, for which other counters begin at 0.
static PEERS_LOST: LazyLock<Counter> = LazyLock::new(Counter::default);

pub(super) type Seconds = Counter<f64, AtomicU64>;

/// Metrics of a process.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    sources: Arc<Sources>,
    /// Of the job; `None` on a rank other than 0.
    pub(super) job: Option<JobMetrics>,
}

/// Metrics of the job, on rank 0.
#[derive(Debug)]
pub(super) struct JobMetrics {
    pub(super) running: Gauge<f64, AtomicU64>,
    pub(super) step: Histogram,
    pub(super) exposed: Seconds,
    pub(super) negotiation: Seconds,
    pub(super) bytes: Counter,
    pub(super) messages: Counter,
    pub(super) fusion_threshold: Gauge<f64, AtomicU64>,
    pub(super) gpu_fusion_threshold: Gauge<f64, AtomicU64>,
    pub(super) cycle_time: Gauge<f64, AtomicU64>,
    pub(super) last_step: Gauge<f64, AtomicU64>,
    pub(super) peers_lost: Counter,
    resets: Counter,
}

/// Values that are read for each scrape; another context of the process replaces them.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) progress: Mutex<Option<Arc<Progress>>>,
    pub(super) times: Mutex<Option<Arc<Shared>>>,
}

impl Metrics {
    /// Metrics of a job. They name the file that they are written to, if there is one:
    /// node-exporter refuses equal series in two files of a folder, and a host may have two jobs.
    pub(super) fn new(job: &Job<'_>, file: Option<&Path>) -> Self {
        let file = file.map(|path| ("file".into(), path.display().to_string().into()));
        let mut registry = Registry::with_prefix_and_labels("ronde", file.into_iter());
        let sources = Arc::<Sources>::default();
        registry.register(
            "build",
            "Version of Ronde, backend and number of ranks",
            Info::new([
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("backend", job.backend.to_owned()),
                ("ranks", job.identity.size.to_string()),
            ]),
        );
        registry.register_collector(Box::new(WaitsCollector(Arc::clone(&sources))));
        let is_first = job.identity.rank == 0;
        let job = is_first.then(|| {
            registry.register_collector(Box::new(TunerCollector(Arc::clone(&sources))));
            JobMetrics::new(&mut registry)
        });
        Self {
            registry,
            sources,
            job,
        }
    }

    /// Continues with another context of the process.
    pub(super) fn continue_with(&self, job: &Job<'_>) {
        self.set_running(true);
        if let Some(own) = &self.job {
            own.resets
                .inc_by(job.resets.saturating_sub(own.resets.get()));
        }
        *lock(&self.sources.progress) = Some(Arc::clone(job.progress));
        lock(&self.sources.times).clone_from(job.times);
    }

    /// The job has ended. The times of the ranks end with it: a rank that waits no longer would
    /// look like a slow one.
    pub(super) fn end(&self) {
        self.set_running(false);
        *lock(&self.sources.times) = None;
    }

    /// States whether the job runs.
    fn set_running(&self, runs: bool) {
        if let Some(job) = &self.job {
            job.running.set(f64::from(u8::from(runs)));
        }
    }

    /// Returns the metrics in the Prometheus text format, version 0.0.4.
    pub(super) fn prometheus(&self) -> Result<String, Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Returns the metrics in the OpenMetrics text format, version 1.0.0.
    pub(super) fn open_metrics(&self) -> Result<String, Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl JobMetrics {
    fn new(registry: &mut Registry) -> Self {
        let (start, factor, count) = STEP_BUCKETS;
        let own = Self {
            running: Gauge::default(),
            step: Histogram::new(exponential_buckets(start, factor, count)),
            exposed: Seconds::default(),
            negotiation: Seconds::default(),
            bytes: Counter::default(),
            messages: Counter::default(),
            fusion_threshold: Gauge::default(),
            gpu_fusion_threshold: Gauge::default(),
            cycle_time: Gauge::default(),
            last_step: Gauge::default(),
            peers_lost: PEERS_LOST.clone(),
            resets: Counter::default(),
        };
        registry.register(
            "job_running",
            "1 while the job runs, 0 after its end",
            own.running.clone(),
        );
        let seconds = || Unit::Seconds;
        registry.register_with_unit(
            "step",
            "Duration of a training step, from the end of the previous one",
            seconds(),
            own.step.clone(),
        );
        registry.register_with_unit(
            "communication_exposed",
            "Time that callers on rank 0 were blocked waiting for results, summed over threads",
            seconds(),
            own.exposed.clone(),
        );
        registry.register_with_unit(
            "negotiation",
            "Time of agreeing with the other ranks on which tensors are ready, on rank 0",
            seconds(),
            own.negotiation.clone(),
        );
        registry.register_with_unit(
            "last_step_timestamp",
            "Unix time of the end of the last step",
            seconds(),
            own.last_step.clone(),
        );
        registry.register_with_unit(
            "cycle_time",
            "Cycle time in force",
            seconds(),
            own.cycle_time.clone(),
        );
        registry.register_with_unit(
            "fusion_threshold",
            "Fusion threshold in force, for tensors in host memory",
            Unit::Bytes,
            own.fusion_threshold.clone(),
        );
        registry.register_with_unit(
            "gpu_fusion_threshold",
            "Fusion threshold in force, for tensors in device memory",
            Unit::Bytes,
            own.gpu_fusion_threshold.clone(),
        );
        registry.register(
            "bytes",
            "Bytes of the tensors that rank 0 has exchanged",
            own.bytes.clone(),
        );
        registry.register(
            "messages",
            "Collective operations on rank 0, each for one batch of fused tensors",
            own.messages.clone(),
        );
        registry.register(
            "peers_lost",
            "Contexts of rank 0 that ended because another rank died, left or stopped",
            own.peers_lost.clone(),
        );
        registry.register(
            "job_resets",
            "Resets of the elastic job, after a rank was lost or came",
            own.resets.clone(),
        );
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    #[test]
    fn resets_are_counted_once_each() {
        let progress = Arc::default();
        let identity = Identity::single();
        let job = |resets| Job {
            identity: &identity,
            backend: "local",
            resets,
            progress: &progress,
            times: &None,
        };
        let metrics = Metrics::new(&job(0), None);
        // A process may have no context between two resets.
        for resets in [0, 1, 1, 3] {
            metrics.continue_with(&job(resets));
            let text = metrics.prometheus().unwrap();
            let line = format!("ronde_job_resets_total {resets}");
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
