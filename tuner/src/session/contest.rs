//! The end of a search: its winner in the A/B windows, and what follows from them.

use super::{Session, Stage, budget::CLIFF};
use crate::center::center_variance;
use crate::guard::{Arm, Decision, Guard};
use crate::proposal::Proposal;
use crate::verdict::{Phase, percent_text};
use crate::window::{STARTUP_EXCESS_MIN, Window};
use crate::{Action, Difference, Point, Warning};

/// A gain below this, in log step time, is not worth the A/B windows.
const GAIN_MIN: f64 = 0.003;
/// The same where the default is beaten already: windows of two settings as good as equal cost little else than time.
const GAIN_MIN_CHAMPION: f64 = 0.003;
/// The same where the search began at a setting that was chosen before: most of those are still good, and the next change comes too.
const GAIN_MIN_RETUNED: f64 = 0.015;
/// What must be left of the budget for a setting that was never measured to go to the A/B windows, in steps.
const UNTRIED: f64 = 3.0;
/// Settings that may lose in the A/B windows before the search ends.
const CONTESTS_MAX: usize = 3;
/// Standard errors by which the default's sample must lie above its first window for it to have been start-up, beside what start-up is
/// at least.
const STARTUP_SD: f64 = 4.0;

/// A setting in the A/B windows, or the last one that was.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    pub(super) guard: Guard,
    pub(super) winner: Point,
    /// The winner is an earlier run's.
    pub(super) recorded: bool,
    /// What the search had cost before.
    pub(super) spent_before: f64,
}

/// What a setting has shown that has beaten the default, or what had before. The search goes on from there: the next winner is
/// compared with this one.
#[derive(Clone, Debug)]
pub(super) struct Champion {
    /// Its log step time minus that of the default.
    pub(super) ahead: Difference,
    /// Log step time of the default in the windows.
    pub(super) default_log: f64,
    /// How it got there, in one sentence.
    pub(super) reason: String,
}

impl Session {
    /// Ends the search: what is expected to be best goes to the A/B windows, measured before or not, if there is anything to gain by it;
    /// if there is none, `otherwise` is why.
    pub(super) fn conclude(&mut self, proposal: &Proposal, otherwise: &str) -> Action {
        // What was never measured may cost more than what is left; what was, is known.
        let is_affordable = self.known(&proposal.contender).is_some() || self.left() > UNTRIED;
        let (winner, gain) = if is_affordable {
            (proposal.contender, proposal.contender_gain)
        } else {
            (proposal.incumbent, proposal.gain.0)
        };
        let beaten = [self.tuner.start(), self.tuner.to_beat];
        if beaten.contains(&winner) || self.rejected.contains(&winner) {
            return self.settle(otherwise);
        }
        let least = match (&self.champion, &self.retuned) {
            (Some(_), _) => GAIN_MIN_CHAMPION,
            (None, Some(_)) => GAIN_MIN_RETUNED,
            (None, None) => GAIN_MIN,
        };
        if gain < least {
            let percent = 100.0 * (1.0 - (-gain).exp());
            return self.settle(&format!(
                "default kept, nothing to gain: the best other setting promises only {percent:.1} %"
            ));
        }
        let log_times = |point| self.tuner.sample(point).map_or(&[][..], |s| &s.log_times);
        let settings = self.tuner.samples().len() - 1;
        let mut guard = self.guard(self.measured_steps()).with_search(
            log_times(&self.tuner.to_beat),
            log_times(&winner),
            settings,
        );
        if let Some(champion) = &self.champion {
            guard = guard.against_champion(champion.ahead);
        }
        self.contest = Some(Contest {
            guard,
            winner,
            recorded: false,
            spent_before: self.spent(),
        });
        self.predicted = None;
        self.stage = Stage::Ab;
        self.go_to(self.tuner.to_beat)
    }

    /// The end: what has beaten the default stays; if nothing has, the default does, and what the last winner lost by is why, or
    /// `otherwise`.
    fn settle(&mut self, otherwise: &str) -> Action {
        if let Some(champion) = &self.champion {
            let reason = champion.reason.clone();
            return self.finish(Some(self.tuner.to_beat), reason);
        }
        let reason = self.lost().unwrap_or_else(|| otherwise.to_owned());
        self.finish(None, reason)
    }

    /// A comparison of this search's next winner with the default, the noise known from so many steps.
    fn guard(&self, noise_steps: usize) -> Guard {
        Guard::new(self.tuner.noise(), noise_steps)
            .after_losers(self.rejected.len())
            .with_remaining_steps(self.remaining_steps())
    }

    /// Leaves the A/B windows when the winner turns out to be what no guard needs five steps for.
    pub(super) fn left_contest(&mut self) -> Action {
        let far_slower = self
            .default_log()
            .zip(self.window.center())
            .is_some_and(|(default, center)| center - default > CLIFF);
        let at_winner = self
            .contest
            .as_ref()
            .is_some_and(|contest| contest.winner == self.setting);
        if !(at_winner && far_slower && self.spent() > self.config.budget_steps) {
            return Action::Keep;
        }
        self.tuner.observe(self.setting, &self.window.log_times);
        self.record(
            Phase::Ab,
            self.contest.as_ref().map_or(0, |c| c.guard.rounds()),
            true,
        );
        self.settle("default kept: the best other setting was far slower when it was tried again")
    }

    pub(super) fn close_window(&mut self) -> Action {
        self.forget_startup();
        let log_times = std::mem::take(&mut self.window.log_times);
        self.tuner.observe(self.setting, &log_times);
        let Some(contest) = &mut self.contest else {
            return Action::Keep;
        };
        let round = contest.guard.rounds();
        contest.guard.push(log_times.clone());
        let (rounds, winner, recorded) = (contest.guard.rounds(), contest.winner, contest.recorded);
        let mut decision = contest.guard.decision();
        let arm = contest.guard.next_arm();
        self.window.log_times = log_times;
        self.record(Phase::Ab, round, false);
        self.window = Window::default();
        let complete = rounds > round;
        let costly = complete && self.guard_is_spent();
        if decision == Decision::Undecided && costly {
            decision = Decision::KeepDefault;
        }
        match decision {
            Decision::Undecided => self.go_to(if arm == Arm::Winner {
                winner
            } else {
                self.tuner.to_beat
            }),
            Decision::KeepWinner => self.crowned(winner, recorded),
            Decision::KeepDefault => self.dropped(winner, recorded),
        }
    }

    /// The first window of the default after the search tells whether the sample that the job began with was start-up, and longer than
    /// what is looked for there. If so, that sample never was.
    fn forget_startup(&mut self) {
        let Some((steps, before, after)) = self.measured_startup() else {
            return;
        };
        let guard = self.guard(self.measured_steps() - steps);
        if let Some(contest) = &mut self.contest {
            contest.guard = guard;
        }
        let start = self.tuner.start();
        self.tuner.forget(&start);
        self.warn(Warning::StartupMeasured {
            steps,
            before_ms: before.exp(),
            after_ms: after.exp(),
        });
    }

    /// Steps of that sample if it was, its log step time, and that of the window.
    fn measured_startup(&self) -> Option<(usize, f64, f64)> {
        let guard = match &self.contest {
            Some(contest)
                if !contest.recorded && self.retuned.is_none() && self.champion.is_none() =>
            {
                &contest.guard
            }
            _ => return None,
        };
        if guard.rounds() > 0 || guard.next_arm() != Arm::Default {
            return None;
        }
        let sample = self.tuner.sample(&self.tuner.start())?;
        let (before, variance) = self.tuner.estimate(sample);
        let after = self.window.center()?;
        let sd = (variance + center_variance(self.tuner.noise(), self.window.steps())).sqrt();
        let is_startup = before - after > STARTUP_EXCESS_MIN.max(STARTUP_SD * sd);
        is_startup.then_some((sample.log_times.len(), before, after))
    }

    /// The winner is kept, and the search goes on from there: the windows may have shown that it is not what was expected of it, and
    /// where it is good, another look near it costs little.
    fn crowned(&mut self, winner: Point, recorded: bool) -> Action {
        let Some((guard, difference)) = self
            .contest
            .as_ref()
            .and_then(|contest| Some((&contest.guard, contest.guard.difference()?)))
        else {
            return Action::Keep;
        };
        let rounds = match guard.rounds() {
            1 => "1 interleaved round".to_owned(),
            rounds => format!("{rounds} interleaved rounds"),
        };
        let reason = match (&self.champion, recorded) {
            (Some(_), _) => {
                format!("kept: faster, in {rounds}, than a setting that had beaten the default")
            }
            (None, true) => format!("kept: confirmed after a restart in {rounds}"),
            (None, false) => format!("kept: faster than the default in {rounds}"),
        };
        let (ahead, default_log) = match &self.champion {
            Some(before) => (before.ahead.then(difference), before.default_log),
            None => (difference, guard.center(Arm::Default)),
        };
        self.champion = Some(Champion {
            ahead,
            default_log,
            reason,
        });
        let beaten = std::mem::replace(&mut self.tuner.to_beat, winner);
        if beaten != self.tuner.start() {
            self.rejected.push(beaten);
        }
        self.settle_contest();
        if recorded || self.rejected.len() >= CONTESTS_MAX {
            return self.settle("");
        }
        self.ask_from(winner)
    }

    /// The winner is not kept: the search goes on if others may be better, and if it may cost something still.
    fn dropped(&mut self, winner: Point, recorded: bool) -> Action {
        self.settle_contest();
        if !recorded {
            self.rejected.push(winner);
            if self.rejected.len() >= CONTESTS_MAX || self.left() <= 0.0 {
                return self.settle("");
            }
        }
        self.ask_from(self.tuner.to_beat)
    }

    /// Charges the guard with the windows that were.
    fn settle_contest(&mut self) {
        self.contested = self.contested();
        let spent = self.spent();
        if let Some(contest) = &mut self.contest {
            contest.spent_before = spent;
        }
    }

    /// What is to be said of the last winner that lost.
    fn lost(&self) -> Option<String> {
        let rejected = self
            .contest
            .as_ref()
            .filter(|contest| self.rejected.contains(&contest.winner))?;
        let [low, high] = rejected.guard.difference()?.gain_pct().map(percent_text);
        Some(format!(
            "default kept, nothing to gain: the A/B rounds left in doubt whether the best other setting is faster ({low} to {high} %)"
        ))
    }

    /// The difference between what won the A/B windows and the default; if none has, that between the arms of the last.
    pub(super) fn difference(&self) -> Option<Difference> {
        match &self.champion {
            Some(champion) => Some(champion.ahead),
            None => self.contest.as_ref()?.guard.difference(),
        }
    }
}
