//! The end of tuning at the user's request.

use super::report::INTERVAL_95;
use super::{Session, Stage};
use crate::session::verdict::Verdict;
use crate::{Action, Point};

impl Session {
    /// Ends tuning for good: the setting in force is kept, whether it is confirmed or not. The
    /// interval of an unconfirmed gain is that of the two samples. If no step was measured at it,
    /// the setting before stays.
    pub fn stop(&mut self) -> Action {
        self.config.watch = false;
        self.postponed = None;
        if let Stage::Finished {
            verdict, promise, ..
        } = &mut self.stage
        {
            *promise = None;
            let chosen = verdict.chosen;
            return self.go_to(chosen); // it may be a visit of a check
        }
        // While a proposal is computed, each step is observed at once.
        if !matches!(self.stage, Stage::Deciding { .. }) {
            self.observe(&self.window.log_times.clone());
        }
        let chosen = match self.known(&self.setting) {
            Some(_) => self.setting,
            None => self.incumbent,
        };
        let reason = match chosen == self.default {
            true => "default kept: tuning was stopped",
            false => "kept, not confirmed: tuning was stopped",
        };
        let Some(verdict) = self.verdict_at(chosen, reason.into()) else {
            self.stage = Stage::Warmup { left: u64::MAX }; // no further step counts
            return Action::Keep;
        };
        self.end_with(Some(verdict), None)
    }

    /// Verdict that keeps `chosen`; `None` before the first measured step. A search that began at
    /// another setting need not have measured the default: the gain is then unknown.
    pub(super) fn verdict_at(&self, chosen: Point, reason: String) -> Option<Verdict> {
        let verdict = self.verdict(None, reason)?;
        if chosen == self.default {
            return Some(verdict);
        }
        let estimate = |point| self.tuner.estimate(point);
        let Some((default, here)) = estimate(&self.default).zip(estimate(&chosen)) else {
            return Some(Verdict {
                kept_default: false,
                chosen,
                ..verdict
            });
        };
        let difference = here.log_time - default.log_time;
        let half = INTERVAL_95 * (default.variance + here.variance).sqrt();
        let gain_pct = |difference: f64| -100.0 * difference.exp_m1();
        let chosen_step_ms = verdict.default_step_ms * difference.exp();
        Some(Verdict {
            kept_default: false,
            chosen,
            chosen_step_ms,
            gain_pct: [difference + half, difference - half].map(gain_pct),
            ..verdict
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, SessionConfig, Space};

    fn session() -> (Session, Point) {
        let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap();
        let start = space.point(&[0.0]).unwrap();
        let session = Session::new(space, SessionConfig::default(), start).unwrap();
        (session, start)
    }

    /// Takes steps until another setting than `start` is measured, `beyond` further ones there.
    fn search(session: &mut Session, start: Point, beyond: usize) -> Point {
        let (mut setting, mut there) = (start, 0);
        for _ in 0..1000 {
            let noise = [0.0, 0.3, -0.2][session.steps as usize % 3];
            let mut action = session.on_step(100.0 - 20.0 * setting.value(0) + noise);
            if action == Action::Ask {
                action = session.propose(session.proposal_job().run());
            }
            if let Action::Switch(point) = action {
                (setting, there) = (point, 0);
            } else if setting != start {
                there += 1;
                if there > beyond {
                    return setting;
                }
            }
        }
        panic!("no other setting was measured");
    }

    #[test]
    fn the_setting_in_force_is_kept_with_the_interval_of_its_sample() {
        let (mut session, start) = session();
        let setting = search(&mut session, start, 4);
        let Action::Finished(verdict) = session.stop() else {
            panic!("no verdict");
        };
        assert_eq!((verdict.chosen, verdict.kept_default), (setting, false));
        assert_eq!(verdict.reason, "kept, not confirmed: tuning was stopped");
        let gain = 20.0 * setting.value(0);
        let [low, high] = verdict.gain_pct;
        assert!(low < gain && gain < high && high - low < 5.0, "{verdict:?}");
        // Nothing changes any more, whatever the steps take.
        for step in 0..2000 {
            let step_ms = if step < 1000 { 90.0 } else { 190.0 };
            assert_eq!(session.on_step(step_ms), Action::Keep);
        }
        assert_eq!(session.setting(), setting);
    }

    #[test]
    fn without_a_measured_step_the_setting_before_is_kept() {
        let (mut session, start) = session();
        assert_eq!(session.stop(), Action::Keep);
        assert_eq!(session.on_step(100.0), Action::Keep);
        assert_eq!(session.setting(), start);

        let (mut session, start) = self::session();
        search(&mut session, start, 0); // only the discarded step
        let Action::Finished(verdict) = session.stop() else {
            panic!("no verdict");
        };
        assert!(verdict.kept_default && verdict.chosen == start);
        assert_eq!(verdict.reason, "default kept: tuning was stopped");
    }

    #[test]
    fn a_search_that_has_not_measured_the_default_keeps_its_start() {
        let (mut session, start) = session();
        let setting = search(&mut session, start, 4);
        session.stop();
        session.retune("a resize");
        let mut action = Action::Keep;
        while !matches!(action, Action::Switch(_)) {
            action = session.on_step(90.0);
            if action == Action::Ask {
                action = session.propose(session.proposal_job().run());
            }
        }
        let Action::Finished(verdict) = session.stop() else {
            panic!("no verdict");
        };
        assert_eq!((verdict.chosen, verdict.kept_default), (setting, false));
        assert_eq!(verdict.gain_pct, [0.0; 2]);
        assert_eq!(session.setting(), setting);
    }
}
