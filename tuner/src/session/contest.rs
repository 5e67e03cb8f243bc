//! The end of a search: its candidate is compared with the default, and what follows from that.

use super::{Session, Stage, budget::CLIFF};
use crate::guard::promise::Promise;
use crate::guard::{Arm, Decision, Guard};
use crate::session::verdict::{Phase, percent_text};
use crate::tuner::proposal::Proposal;
use crate::{Action, Point, Warning};

/// Comparisons of one search: further ones would have little error left, and the second costs
/// workload C of the bench `tuner` 0.15 %.
const CONTESTS_MAX: usize = 2;

/// A comparison under way, or the last one.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    pub(super) guard: Guard,
    pub(super) winner: Point,
    /// The candidate is an earlier run's.
    pub(super) recorded: bool,
}

impl Contest {
    /// Reason for keeping the candidate, in one sentence.
    pub(super) fn reason(&self) -> String {
        let (rounds, steps) = (self.guard.rounds(), self.guard.candidate_steps());
        let how = match self.guard.difference {
            _ if self.recorded => "confirmed after a restart",
            Some(difference) if difference.gain_pct()[0] <= 0.0 => {
                "in force before, and faster so far, which was not proved"
            }
            _ => "faster than the default",
        };
        // A stall of rate 3/n stays unseen in n steps with probability 5 %.
        let rarest = 300.0 / steps as f64;
        format!(
            "kept: {how} in {rounds} interleaved pairs; stalls in fewer than {rarest:.1} % of the steps are not covered"
        )
    }
}

impl Session {
    /// Ends the search: the incumbent is compared with the default, if it promises a gain; if it
    /// does not, `otherwise` is why.
    pub(super) fn conclude(&mut self, proposal: &Proposal, otherwise: &str) -> Action {
        let (winner, gain) = (proposal.incumbent, proposal.gain.0);
        if let Some(finalist) = self.next_entry() {
            return self.enter(finalist);
        }
        let start = self.tuner.start();
        if winner == start || winner == self.default || self.rejected.contains(&winner) {
            return self.keep_start(otherwise);
        }
        if gain < self.tuner.config.improvement_min {
            let percent = 100.0 * (1.0 - (-gain).exp());
            return self.keep_start(&format!(
                "default kept, nothing to gain: the best other setting promises only {percent:.1} %"
            ));
        }
        self.compare(winner)
    }

    /// No candidate is left: the end without an adoption, because the last one lost or because of
    /// `otherwise`. A search that began at another setting than the default compares that one first:
    /// what it had shown was shown before the job changed.
    pub(super) fn keep_start(&mut self, otherwise: &str) -> Action {
        let start = self.tuner.start();
        if start == self.default || self.rejected.contains(&start) {
            let reason = self.lost().unwrap_or_else(|| otherwise.to_owned());
            return self.finish(reason);
        }
        self.compare(start)
    }

    /// Begins a comparison of `winner` with the default, on fresh steps.
    fn compare(&mut self, winner: Point) -> Action {
        self.contests = self.contests.saturating_add(1);
        self.open_contest(winner, false);
        self.predicted = None;
        self.stage = Stage::Ab;
        self.go_to(self.next_visit())
    }

    /// Comparison number `contests` of the job.
    pub(super) fn open_contest(&mut self, winner: Point, recorded: bool) {
        self.contest = Some(Contest {
            guard: Guard::new(self.config.seed, self.contests),
            winner,
            recorded,
        });
    }

    /// The setting of an arm of the latest comparison.
    pub(super) fn point_of(&self, arm: Arm) -> Point {
        match (&self.contest, arm) {
            (Some(contest), Arm::Candidate) => contest.winner,
            _ => self.default,
        }
    }

    /// The setting of the next step of the latest comparison.
    pub(super) fn next_visit(&self) -> Point {
        let arm = (self.contest.as_ref()).map_or(Arm::Default, |contest| contest.guard.arm());
        self.point_of(arm)
    }

    /// Takes a step of the comparison, stalls included.
    pub(super) fn on_contest_step(&mut self, step_ms: f64) -> Action {
        let Some(contest) = &mut self.contest else {
            return Action::Keep;
        };
        self.window.log_times.push(step_ms.ln());
        let round = contest.guard.rounds();
        match contest.guard.push(step_ms) {
            None | Some(Decision::Undecided) if self.is_futile() => {
                self.close_window(Phase::Ab, round);
                self.keep_start(
                    "default kept: the best other setting was far slower when tried again",
                )
            }
            Some(decision) => self.close_visit(round, decision),
            None => Action::Keep,
        }
    }

    /// Whether the candidate turns out to be far slower, and the budget is spent. One slow step may
    /// be a stall, so all of its visit's steps are, at least two. The setting with which the search
    /// began, and one that is faster so far, stay.
    fn is_futile(&self) -> bool {
        let steps = &self.window.log_times;
        let least = steps.iter().copied().fold(f64::INFINITY, f64::min);
        let is_winner = (self.contest.as_ref()).is_some_and(|it| it.winner == self.setting);
        let is_far_slower = steps.len() >= 2 && self.is_slower(Some(least), CLIFF);
        is_winner && is_far_slower && self.setting != self.tuner.start() && self.guard_is_spent()
    }

    fn close_visit(&mut self, round: u32, mut decision: Decision) -> Action {
        self.close_window(Phase::Ab, round);
        let spent = self.guard_is_spent();
        let Some(contest) = &self.contest else {
            return Action::Keep;
        };
        let (winner, recorded) = (contest.winner, contest.recorded);
        let winsorized = contest.guard.winsorized;
        let complete = contest.guard.rounds() > round;
        let is_over = contest.guard.is_over();
        if decision == Decision::Undecided && complete && spent {
            decision = Decision::KeepDefault;
        }
        if decision != Decision::Undecided && winsorized > 0 {
            self.warn(Warning::Winsorized { steps: winsorized });
        }
        let is_stalled = complete && self.ledger.is_exceeded();
        // After a rest the comparison goes on, but no look is left that could end it.
        if is_stalled && is_over {
            decision = Decision::KeepDefault;
        }
        // After drift the setting in force needs no new proof where all looks leave it faster.
        let is_proved = self.start_is_proved && winner == self.tuner.start();
        let stays = is_over && !is_stalled && is_proved && self.is_defended();
        match decision {
            Decision::KeepDefault if stays => self.adopt(),
            Decision::KeepDefault => self.dropped(winner, recorded),
            _ if is_stalled => {
                self.stage = Stage::Rest { is_contest: true };
                self.go_to(self.tuner.start())
            }
            Decision::Undecided => self.go_to(self.next_visit()),
            Decision::KeepCandidate => self.adopt(),
        }
    }

    /// The candidate has beaten the default.
    fn adopt(&mut self) -> Action {
        let Some(contest) = &self.contest else {
            return Action::Keep;
        };
        let promise = (self.config.recheck)
            .then(|| Promise::new(&contest.guard, self.config.seed, self.contests));
        let verdict = self.verdict(Some(contest.winner), contest.reason());
        self.end_with(verdict, promise)
    }

    /// The candidate is not adopted: the search goes on if others may be better, and if it may cost
    /// something still.
    fn dropped(&mut self, winner: Point, recorded: bool) -> Action {
        self.rejected.push(winner);
        if !recorded && (self.rejected.len() >= CONTESTS_MAX || self.left() <= 0.0) {
            return self.keep_start("");
        }
        self.ask_from(self.default)
    }

    /// Why the last candidate lost.
    fn lost(&self) -> Option<String> {
        let rejected = self
            .contest
            .as_ref()
            .filter(|contest| self.rejected.contains(&contest.winner))?;
        let Some(difference) = rejected.guard.difference else {
            return Some("default kept: the comparison with it cost more than the budget".into());
        };
        let gain = difference.gain_pct();
        let what = match gain {
            [_, high] if high < 0.0 => "the best other setting was slower in the comparison",
            [low, _] if low > 0.0 => "the best other setting is faster by too little",
            _ => "the comparison left in doubt whether the best other setting is faster",
        };
        let [low, high] = gain.map(percent_text);
        Some(format!(
            "default kept, nothing to gain: {what} ({low} to {high} %)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, SessionConfig, Space};

    /// A session that compares a candidate with the default; both have been entered once.
    fn comparison() -> (Session, Point) {
        let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap();
        let [default, winner] = [0.0, 1.0].map(|x| space.point(&[x]).unwrap());
        let mut session = Session::new(space, SessionConfig::default(), default).unwrap();
        for step in 0..20 {
            session.on_step([100.0, 101.0][step % 2]);
        }
        let _ = session.compare(winner);
        (session, winner)
    }

    #[test]
    fn a_stall_does_not_end_a_comparison_and_a_far_slower_candidate_does() {
        for stalled in [1, usize::MAX] {
            let (mut session, winner) = comparison();
            // The first steps of the candidate that count take 40 times as long.
            let (mut counted, mut action) = (0, Action::Keep);
            while counted < 4 && session.rejected.is_empty() {
                let counts = session.setting == winner && !session.window.discards;
                counted += usize::from(counts);
                let is_slow = counts && counted <= stalled;
                action = session.on_step(if is_slow { 4000.0 } else { 100.0 });
                if let Action::Finished(_) = action {
                    break;
                }
            }
            let is_over = matches!(action, Action::Finished(_));
            assert_eq!(is_over, stalled > 1, "{counted}");
            if is_over {
                assert_eq!(counted, 2);
            }
        }
    }

    #[test]
    fn a_comparison_without_looks_does_not_rest() {
        let (mut session, winner) = comparison();
        // Too noisy for a decision, until the last look.
        let contest = session.contest.as_mut().unwrap();
        let mut step = 0;
        while !contest.guard.is_over() {
            step += 1;
            let noise = [0.5, 1.5, 0.9, 1.1][step % 4];
            let step_ms = match contest.guard.arm() {
                Arm::Default => 100.0,
                Arm::Candidate => 97.0,
            };
            contest.guard.push(step_ms * noise);
        }
        let round = contest.guard.rounds() - 1;
        session.ledger.push(Arm::Candidate, 30.0);
        let _ = session.close_visit(round, Decision::KeepCandidate);
        assert!(!matches!(session.stage, Stage::Rest { is_contest: true }));
        assert_eq!(session.rejected, [winner]);
    }
}
