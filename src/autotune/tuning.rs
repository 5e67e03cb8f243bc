//! Tuner as part of the cycle's observer: receives cycles and batches, returns settings.

use std::sync::Arc;

use super::{Autotune, Progress, Purpose, Tracer};
use crate::clock::Nanos;
use crate::error::Error;
use crate::identity::Hosts;
use crate::knobs::Knobs;
use crate::observer::{CycleEnd, Executed, Negotiated};
use crate::queue::Tensor;
use crate::settings::Settings;
use crate::timeline::step_meter::{ExecutedBatch, Step, StepMeter};

/// Tuner with step detection and tracer. Its methods are those of
/// [`Observer`](crate::observer::Observer).
pub(crate) struct Tuning {
    meter: StepMeter,
    tracer: Tracer,
    autotune: Autotune,
    progress: Arc<Progress>,
    /// Settings to begin with, until they have been returned.
    start: Option<Settings>,
    next: Option<Settings>,
}

impl Tuning {
    /// Makes the tuner of a job of this many ranks on these hosts. `quiet`: the program shows the
    /// progress itself.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(crate) fn new(
        knobs: &Knobs,
        ranks_on: (usize, Hosts),
        progress: &Arc<Progress>,
        quiet: bool,
    ) -> Result<Self, Error> {
        let autotune = Autotune::new(knobs, ranks_on, Arc::clone(progress), quiet)?;
        let start = Some(autotune.start());
        Ok(Self {
            meter: StepMeter::new(),
            tracer: Tracer::default(),
            autotune,
            progress: Arc::clone(progress),
            start,
            next: None,
        })
    }

    pub(crate) fn connected(&mut self, hosts: Hosts) {
        self.autotune.connected(hosts);
        self.start = Some(self.autotune.start());
    }

    /// Whether [`negotiated`](Self::negotiated) has a use.
    pub(crate) fn wants_times(&self) -> bool {
        self.autotune.wants_traces()
    }

    /// A tensor became ready on the first rank at `first` and on the last one at `last`.
    pub(crate) fn negotiated(&mut self, negotiated: &Negotiated<'_>, first: Nanos, last: Nanos) {
        if self.autotune.wants_traces() {
            self.tracer.negotiated(negotiated, first, last);
        }
    }

    pub(crate) fn agreed(&mut self, began: Nanos, now: Nanos, joined: bool) {
        self.meter.cycle(began, (now - began).as_nanos() as u64);
        self.tracer.agreed(began, now);
        if joined {
            self.meter.disturbed(); // a step with joined ranks is no sample
            self.tracer.disturbed();
        }
    }

    pub(crate) fn executed(&mut self, batch: &Executed<'_>) {
        let executed = ExecutedBatch {
            ended: batch.ended,
            transfer_ns: batch.moving_ns(),
        };
        if batch.on_device.is_some() {
            self.tracer.executed_on_device();
        } else if self.autotune.wants_traces() {
            self.tracer.executed(batch);
        }
        let items = batch.members.iter().map(|member| member.submission.item);
        let step = self.meter.executed(&executed, items);
        self.take(step);
    }

    pub(crate) fn refused(&mut self, tensor: &Tensor) {
        self.tracer.refused(tensor);
    }

    /// Purpose of the next step.
    pub(crate) fn purpose(&self) -> Purpose {
        self.autotune.purpose()
    }

    pub(crate) fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        for &mark in &cycle.step_marks {
            let step = self.meter.mark_step(mark);
            self.take(step);
        }
        let whole = self.meter.take_whole();
        if self.autotune.wants_traces() {
            self.tracer.cycle_ended(&cycle.settings, whole);
        }
        if self.progress.take_stop() {
            self.next = self.autotune.stop().or(self.next.take());
        }
        let start = self.start.take();
        let change = start
            .filter(|start| *start != cycle.settings.value)
            .or_else(|| self.next.take());
        if change.is_some() {
            self.meter.settings_change();
        }
        change
    }

    fn take(&mut self, step: Option<Step>) {
        if let Some(Step::Sample(sample)) = step {
            // A change waits for the end of the cycle; a later one in the same cycle replaces it.
            self.next = self
                .autotune
                .on_step(&sample, &mut self.tracer)
                .or(self.next.take());
            // In each visit a pause counts alike, whether or not its setting is new.
            if self.autotune.begins_visit() {
                self.meter.settings_change();
            }
        }
    }
}
