//! Recorder: passes the cycle's events to the metrics.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Job;
use super::exporter::Exporter;
use super::metrics::JobMetrics;
use super::waits::{Shared, WaitMeter};
use crate::clock::{Clock, Nanos};
use crate::error::Error;
use crate::negotiation::OpKind;
use crate::observer::{CycleEnd, Executed};
use crate::timeline::step_meter::{ExecutedBatch, StepMeter};

/// Shortest time between two writes of this rank's wait.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// Recorder of one rank, for the set of all ranks. Its methods are those of
/// [`Observer`](crate::observer::Observer).
pub(crate) struct Recorder {
    clock: Arc<dyn Clock>,
    /// On the first rank of a host.
    exporter: Option<Arc<Exporter>>,
    steps: Steps,
    waits: WaitMeter,
    shared: Option<Arc<Shared>>,
    written: Nanos,
}

/// Ends of steps: those that the caller marks, or else those that the meter finds.
#[derive(Default)]
struct Steps {
    meter: StepMeter,
    are_marked: bool,
    /// End of the last step.
    ended: Option<Nanos>,
}

impl Recorder {
    pub(super) fn new(
        job: &Job<'_>,
        exporter: Option<Arc<Exporter>>,
        shared: Option<Arc<Shared>>,
    ) -> Self {
        Self {
            clock: Arc::clone(job.clock),
            exporter,
            steps: Steps::default(),
            waits: WaitMeter::default(),
            shared,
            written: Nanos(0),
        }
    }

    /// Metrics of the job, on rank 0.
    fn job(&self) -> Option<&JobMetrics> {
        self.exporter.as_ref()?.metrics.job.as_ref()
    }

    pub(crate) fn connected(&mut self) {
        if let Some(shared) = &self.shared {
            shared.all_have_opened();
        }
    }

    pub(crate) fn agreed(&mut self, began: Nanos, now: Nanos) {
        let took = now - began;
        if let Some(job) = self.job() {
            job.negotiation.inc_by(took.as_secs_f64());
            self.steps.meter.cycle(began, took.as_nanos() as u64);
        }
    }

    /// `agreed`: the time at which the ranks agreed on the present cycle.
    pub(crate) fn executed(&mut self, batch: &Executed<'_>, agreed: Nanos) {
        let submissions = || batch.members.iter().map(|member| &member.submission);
        let is_of = |is: fn(&OpKind) -> bool| submissions().all(|one| is(&one.params.kind));
        if is_of(|kind| *kind == OpKind::Agree) {
            return;
        }
        // A batch on a device may have been agreed on in an earlier cycle.
        let agreed = agreed.min(batch.began);
        for submission in submissions().filter(|submission| !submission.is_absent()) {
            self.waits.add(submission.at, agreed);
        }
        if !is_of(|kind| kind.moves_data()) {
            return; // barriers
        }
        let Some(exporter) = &self.exporter else {
            return;
        };
        let Some(job) = &exporter.metrics.job else {
            return;
        };
        job.messages.inc();
        job.bytes.inc_by(
            submissions()
                .map(|submission| submission.item.bytes())
                .sum(),
        );
        if !self.steps.are_marked {
            let executed = ExecutedBatch {
                ended: batch.ended,
                collective_ns: 0,
                wait_ns: 0,
            };
            let items = submissions().map(|submission| submission.item);
            if self.steps.meter.executed(&executed, items).is_some() {
                self.steps.end(batch.ended, job);
            }
        }
    }

    pub(crate) fn cycle_ended(&mut self, cycle: &CycleEnd) {
        if let Some(exporter) = &self.exporter
            && let Some(job) = &exporter.metrics.job
        {
            for &mark in &cycle.step_marks {
                if !std::mem::replace(&mut self.steps.are_marked, true) {
                    self.steps.ended = None; // the ends so far are not those of the caller's steps
                }
                self.steps.end(mark, job);
            }
            job.exposed.inc_by(cycle.blocked.as_secs_f64());
            let settings = &cycle.settings.value;
            job.fusion_threshold
                .set(settings.fusion_threshold_bytes as f64);
            job.cycle_time.set(settings.cycle_time_ns as f64 / 1e9);
        }
        let now = self.clock.now();
        if now - self.written >= WRITE_INTERVAL {
            self.written = now;
            self.write_wait();
        }
    }

    pub(crate) fn ended(&mut self, error: &Error) {
        if let (Some(job), true) = (self.job(), error.is_peer_gone()) {
            job.peers_lost.inc();
        }
    }

    fn write_wait(&self) {
        if let Some(shared) = &self.shared {
            let _ = shared.write(self.waits.total()); // memory: it could be written at the start
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.write_wait();
        if let Some(exporter) = &self.exporter {
            exporter.write_file();
        }
    }
}

impl Steps {
    fn end(&mut self, ended: Nanos, job: &JobMetrics) {
        if let Some(before) = self.ended.replace(ended) {
            job.step.observe((ended - before).as_secs_f64());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        job.last_step.set(now.unwrap_or_default().as_secs_f64());
    }
}
