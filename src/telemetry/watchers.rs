//! Watchers of the job: metrics and live page. They share the ends of steps and the times of ranks.

use std::sync::Arc;

use super::step_ends::{StepEnd, StepEnds};
use crate::autotune::Purpose;
use crate::clock::{Clock, Nanos};
use crate::command::TimelineCommand;
use crate::error::Error;
use crate::identity::Hosts;
use crate::negotiation::OpKind;
use crate::observer::{Agreed, CycleEnd, Executed};
use crate::{dash, prometheus, rank_times};

/// Watchers on one rank, for the set of all ranks. The methods are those of
/// [`Observer`](crate::observer::Observer).
pub(crate) struct Watchers {
    clock: Arc<dyn Clock>,
    times: rank_times::Recorder,
    metrics: Option<prometheus::Recorder>,
    page: Option<dash::Recorder>,
    /// On rank 0.
    ends: Option<StepEnds>,
}

impl Watchers {
    pub(crate) fn new(
        rank: usize,
        clock: Arc<dyn Clock>,
        times: rank_times::Recorder,
        metrics: Option<prometheus::Recorder>,
        page: Option<dash::Recorder>,
    ) -> Self {
        Self {
            clock,
            times,
            metrics,
            page,
            ends: (rank == 0).then(StepEnds::default),
        }
    }

    pub(super) fn connected(&mut self, hosts: Hosts) {
        self.times.connected();
        if let Some(page) = &mut self.page {
            page.connected(hosts);
        }
    }

    pub(super) fn agreed(&mut self, agreed: &Agreed) {
        let took = agreed.ended - agreed.began;
        if let Some(ends) = &mut self.ends {
            ends.cycle(agreed.began, took);
        }
        if let Some(metrics) = &self.metrics {
            metrics.negotiated(took);
        }
        if let Some(page) = &mut self.page {
            page.agreed(agreed);
        }
    }

    /// `agreed`: the time by which the ranks had agreed on the batch.
    pub(super) fn executed(&mut self, batch: &Executed<'_>, agreed: Nanos) {
        let submissions = || batch.members.iter().map(|member| &member.submission);
        let is_of = |is: fn(&OpKind) -> bool| submissions().all(|one| is(&one.params.kind));
        if is_of(|kind| *kind == OpKind::Agree) {
            return;
        }
        for submission in submissions().filter(|submission| !submission.is_absent()) {
            self.times.waited(submission.at, agreed);
        }
        if !is_of(|kind| kind.moves_data()) {
            return; // barriers
        }
        self.times.transferred(batch.transfer());
        let Some(ends) = &mut self.ends else { return };
        let bytes = submissions()
            .map(|submission| submission.item.bytes())
            .sum();
        if let Some(metrics) = &self.metrics {
            metrics.executed(bytes);
        }
        if let Some(page) = &mut self.page {
            page.executed(bytes, batch.on_device.is_some());
        }
        if let Some(end) = ends.executed(batch) {
            self.step_ended(&end);
        }
    }

    pub(super) fn timeline_command(
        &mut self,
        command: &TimelineCommand,
        outcome: &Result<(), Error>,
    ) {
        if let Some(page) = &mut self.page {
            page.timeline_command(command, outcome);
        }
    }

    /// `purpose`: purpose of the next step.
    pub(super) fn cycle_ended(&mut self, cycle: &CycleEnd, purpose: Purpose) {
        for &mark in &cycle.step_marks {
            if let Some(ends) = &mut self.ends {
                let end = ends.marked(mark);
                self.step_ended(&end);
            }
        }
        if let Some(metrics) = &self.metrics {
            metrics.cycle_ended(cycle);
        }
        if let Some(page) = &mut self.page {
            page.cycle_ended(cycle, purpose);
        }
        self.times.cycle_ended(self.clock.now());
    }

    /// Tensors have stalled, as `text` reports.
    pub(super) fn stalled(&mut self, text: &str) {
        if let Some(page) = &mut self.page {
            page.stalled(text);
        }
    }

    pub(super) fn ended(&mut self, error: &Error) {
        if let Some(metrics) = &self.metrics {
            metrics.ended(error);
        }
        if let Some(page) = &mut self.page {
            page.ended(error);
        }
    }

    fn step_ended(&mut self, end: &StepEnd) {
        if let Some(metrics) = &self.metrics {
            metrics.step_ended(end.took);
        }
        if let Some(page) = &mut self.page {
            page.step_ended(end);
        }
    }
}
