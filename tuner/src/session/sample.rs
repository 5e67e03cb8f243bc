//! Length of a sample: it is cut short where it is clearly worse, and closed early where it is
//! clearly better or where more steps would hardly change what follows from it.

use super::{Session, budget::CLIFF};
use crate::Action;
use crate::acquisition::expected_improvement;
use crate::center::{center_variance, huber_center};

/// Steps after which a sample is closed if it is slower than the best by more than this, in log
/// step time.
pub(super) const EARLY: [(usize, f64); 3] = [(1, CLIFF), (2, 0.10), (5, 0.03)];
/// A sample is undecided while mistaking it for the best, or the best for it, would cost more than
/// this on average, in log step time: the gap is then below some 1.3 standard errors.
const MISTAKE: f64 = 0.003;

impl Session {
    /// Takes a step of the sample under way, and closes it if it is to end.
    pub(super) fn on_sample(&mut self) -> Action {
        let (steps, full) = (self.window.steps(), self.config.steps_per_sample as usize);
        let is_early = self.config.adaptive && steps < full;
        if self.exceeds_budget() || is_early && self.clearly_worse() {
            return self.close_sample(true);
        }
        let is_decided = || steps >= EARLY[2].0 && !self.is_undecided();
        if steps >= full || is_early && is_decided() {
            return self.close_sample(false);
        }
        Action::Keep
    }

    /// Whether the steps so far exclude that this setting is the best: a gap of 100 % after 1 step
    /// if the discarded one had it too, of 10 % after 2 steps, of 3 % after 5, and noise excluded.
    fn clearly_worse(&self) -> bool {
        let log_times = &self.window.log_times;
        let is_due = |(steps, _): &&(usize, f64)| *steps == log_times.len();
        let Some((_, gap)) = EARLY.iter().find(is_due) else {
            return false;
        };
        let noise = self.tuner.noise();
        let Some((center, variance)) = self.best_other() else {
            return false;
        };
        // The minimum of two and the centre of five: one spike changes neither of them much.
        let (value, sds, share) = match *log_times.as_slice() {
            [first] => match self.discarded.last() {
                Some((point, step)) if *point == self.setting => (first.min(*step), 4.0, 1.0),
                _ => return false,
            },
            [first, second] => (first.min(second), 4.0, 0.75),
            _ => (huber_center(log_times), 3.0, 0.3),
        };
        value - center > gap.max(sds * (share * noise * noise + variance).sqrt())
    }

    /// Whether mistaking this setting for the best other one, or that for this, would cost more
    /// than [`MISTAKE`] on average.
    fn is_undecided(&self) -> bool {
        let mut all = self.window.log_times.clone();
        if let Some(sample) = self.tuner.sample(&self.setting) {
            all.extend(&sample.log_times);
        }
        let Some((best, variance)) = self.best_other() else {
            return false;
        };
        let noise = self.tuner.noise();
        // More steps of this visit say nothing about the variance between visits.
        if center_variance(noise, self.window.steps()) < self.tuner.visit_variance(noise) {
            return false;
        }
        let own = center_variance(noise, all.len());
        let gap = (huber_center(&all) - best).abs();
        expected_improvement(-gap, own + variance) > MISTAKE
    }

    /// Centre and variance of the lowest sample of another setting.
    fn best_other(&self) -> Option<(f64, f64)> {
        let all = self.tuner.estimates().into_iter();
        let others = all.filter(|(sample, _)| sample.point != self.setting);
        let estimates = others.map(|(_, seen)| (seen.log_time, seen.variance));
        estimates.min_by(|a, b| a.0.total_cmp(&b.0))
    }
}
