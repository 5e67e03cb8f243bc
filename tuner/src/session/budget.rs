//! Budget of a search: its limit, and the cost so far.
//!
//! Cost is the excess over the start's step time of every step since the start was measured, in
//! steps of the start; what a faster setting saves on the way counts too. Measured steps count by
//! their setting's centre, so that spikes, which the start has as well, are not charged to the
//! search; the steps discarded after a change count as they were.

use super::contest::Contest;
use super::sample::EARLY;
use super::{Session, Stage};
use crate::Point;
use crate::acquisition::CHANGE_COST;
use crate::center::huber_center;
use crate::guard::ARMS;
use crate::session::window::STALL_FACTOR;

/// Share of the budget that samples leave for the comparison.
const GUARD_SHARE: f64 = 0.35;
/// No step counts as more than a million: beyond, f64 sums lose the rest.
const EXCESS_MAX: f64 = 1e6;
/// Log step time above the start from which a step is worth cutting a sample short for the sake
/// of the budget.
const WORSE: f64 = 0.01;

/// A factor in log step time that is a cliff: 2, well above what a change of setting costs.
pub(super) const CLIFF: f64 = std::f64::consts::LN_2;

impl Session {
    /// Cost so far, the window under way included; negative if the search has saved time. Before
    /// the start is known, only what it was before a reset of the job. In steps of the start.
    pub fn cost(&self) -> f64 {
        let Some(start_log) = self.start_log() else {
            return self.cost_before;
        };
        let running = match (&self.stage, self.window.center()) {
            (Stage::Sample | Stage::Ab, Some(center)) => {
                self.window.steps() as f64 * excess(center, start_log)
            }
            _ => 0.0,
        };
        self.cost_before + self.settled_cost(start_log) + running
    }

    /// Budget that is left for samples.
    pub(super) fn left(&self) -> f64 {
        (1.0 - GUARD_SHARE) * self.config.budget_steps - self.cost()
    }

    /// Whether the comparison has spent what is left of the budget.
    pub(super) fn guard_is_spent(&self) -> bool {
        self.cost() > self.config.budget_steps && !self.is_defended()
    }

    /// Whether a search that began at another setting than the default compares a setting that is
    /// faster than the default so far. Its cost is that of the default's visits, so an end without
    /// a decision would put the slower setting in force.
    pub(super) fn is_defended(&self) -> bool {
        let is_faster = |contest: &Contest| {
            let [default, candidate] = ARMS.map(|arm| contest.guard.mean(arm));
            candidate < default
        };
        self.tuner.start() != self.default && self.contest.as_ref().is_some_and(is_faster)
    }

    /// The predicted log step time above the start's up to which a sample fits into what is left.
    pub(super) fn excess_affordable(&self) -> f64 {
        let left = self.left();
        // In hundredths up to a factor of 3, beyond which nothing is proposed anyway.
        let mut excesses = (0..=110).rev().map(|percent| f64::from(percent) / 100.0);
        excesses
            .find(|&excess| self.sample_cost(excess) <= left)
            .unwrap_or(0.0)
    }

    /// Cost of all closed windows and discarded steps.
    pub(super) fn settled_cost(&self, start_log: f64) -> f64 {
        let measured = self.tuner.samples().iter();
        let measured: f64 = measured
            .map(|s| s.log_times.len() as f64 * excess(huber_center(&s.log_times), start_log))
            .sum();
        // The search does not cause stalls, so the part of a discarded step that is a stall is not
        // charged to it.
        let capped = |(point, log_time): &(Point, f64)| {
            let known = self.known(point);
            log_time.min(known.map_or(f64::INFINITY, |known| known + STALL_FACTOR.ln()))
        };
        let discarded = self
            .discarded
            .iter()
            .map(|step| excess(capped(step), start_log));
        measured + discarded.sum::<f64>()
    }

    /// Expected cost of a sample whose predicted log step time is `excess_log` above the start's:
    /// what adaptive steps would make of it.
    pub(super) fn sample_cost(&self, excess_log: f64) -> f64 {
        let full = f64::from(self.config.steps_per_sample);
        let early = EARLY.iter().find(|(_, gap)| excess_log > *gap);
        let early = early.filter(|_| self.config.adaptive);
        let steps = early.map_or(full, |(steps, _)| full.min(*steps as f64));
        let slower = excess_log.exp_m1().clamp(0.0, EXCESS_MAX);
        // A step is discarded after each change.
        steps * slower + slower + CHANGE_COST * (1.0 + slower)
    }

    /// Whether the sample under way exceeds what is left while it is slower than the start.
    pub(super) fn exceeds_budget(&self) -> bool {
        self.is_slower(self.window.center(), WORSE) && self.left() < 0.0
    }

    /// Whether this log step time is above the start's by more than `gap`.
    pub(super) fn is_slower(&self, log_time: Option<f64>, gap: f64) -> bool {
        let both = log_time.zip(self.start_log());
        both.is_some_and(|(log_time, start)| log_time - start > gap)
    }

    /// Centre of the start's log step times, once it is measured.
    pub(super) fn start_log(&self) -> Option<f64> {
        self.known(&self.tuner.start())
    }
}

/// Excess of a step over another, in steps of the other.
pub(super) fn excess(log_time: f64, than: f64) -> f64 {
    (log_time - than).exp_m1().min(EXCESS_MAX)
}
