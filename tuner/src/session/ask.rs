//! Proposals: a sample is closed, the next setting is requested, and training continues meanwhile.

use super::{Session, Stage, budget::CLIFF, sample::EARLY};
use crate::session::window::Window;
use crate::tuner::proposal::{Next, Proposal, ProposalJob};
use crate::{Action, Point};

/// While a proposal is computed, at most this many samples' worth of extra steps is kept.
const EXTRA_SAMPLES_MAX: u32 = 4;
/// Steps without an answer after which the session leaves a setting that is slower than the best.
const PATIENCE: u32 = 2;

impl Session {
    pub(super) fn on_extra(&mut self, log_time: f64, extra: u32) -> Action {
        if extra < EXTRA_SAMPLES_MAX * self.config.steps_per_sample {
            self.stage = Stage::Deciding { extra: extra + 1 };
            self.observe(&[log_time]);
        } else {
            // An answer that never comes must not make the window grow for ever.
            self.window = Window::new(false, self.known(&self.setting));
        }
        let safe = self.safe();
        let slower = self.known(&self.setting).zip(self.known(&safe));
        if extra >= PATIENCE && slower.is_some_and(|(here, there)| here - there > EARLY[2].1) {
            return self.go_to(safe);
        }
        Action::Keep
    }

    pub(super) fn close_sample(&mut self, aborted: bool) -> Action {
        let center = self.window.center();
        self.close_window(self.phase(), self.sample);
        if self.tuner.candidates() == 1 {
            return self.finish("default kept, nothing to tune: every parameter is fixed".into());
        }
        if let Some(reason) = self.as_recorded() {
            return self.finish(reason);
        }
        self.ask_from(if aborted && self.is_slower(center, CLIFF) {
            self.safe()
        } else {
            self.setting
        })
    }

    /// Asks for the next proposal, after a change to `point` if that is not in force.
    pub(super) fn ask_from(&mut self, point: Point) -> Action {
        if self.ledger.is_exceeded() {
            self.stage = Stage::Rest { is_contest: false };
            return self.go_to(self.tuner.start());
        }
        self.stage = Stage::Deciding { extra: 0 };
        match self.go_to(point) {
            Action::Keep => Action::Ask,
            action => {
                self.asks_next = true;
                action
            }
        }
    }

    /// A setting that is known to be good: the incumbent, or the default if that is what is in
    /// force.
    fn safe(&self) -> Point {
        if self.incumbent == self.setting {
            self.tuner.start()
        } else {
            self.incumbent
        }
    }

    /// The computation of the next proposal; run it on any thread and hand the result to
    /// [`propose`](Self::propose).
    pub fn proposal_job(&self) -> ProposalJob {
        let mut job = self.tuner.job();
        job.tuner.excess_max = self.excess_affordable();
        job.tuner.in_force = Some(self.setting);
        job
    }

    /// Takes the proposal that an [`Action::Ask`] asked for. One that nobody waits for is ignored.
    pub fn propose(&mut self, proposal: Proposal) -> Action {
        if !matches!(self.stage, Stage::Deciding { .. }) || !self.tuner.accept(&proposal) {
            return Action::Keep;
        }
        self.asks_next = false;
        self.incumbent = proposal.incumbent;
        proposal
            .warnings
            .iter()
            .for_each(|warning| self.warn(warning.clone()));
        let predicted = Some(proposal.prediction.0).filter(|p| p.is_finite());
        let excess = (predicted.zip(self.start_log())).map_or(0.0, |(log, start)| log - start);
        let why_not = match proposal.next {
            Next::Stop => "default kept, nothing to gain: no other setting looks faster",
            // A setting may be visited again and again: the tuner's cap counts settings, this one
            // visits.
            _ if self.sample + 1 >= self.config.max_samples => "default kept: no sample is left",
            _ if self.sample_cost(excess) > self.left() => {
                "default kept: the budget does not allow another sample"
            }
            Next::Sample(point) => {
                self.sample += 1;
                self.predicted = predicted;
                self.stage = Stage::Sample;
                return self.go_to(point);
            }
        };
        self.conclude(&proposal, why_not)
    }
}
