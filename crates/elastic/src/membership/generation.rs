//! Generations: when the next one is formed, and what its ranks are told of its end and of changes.

use super::process::Stage;
use super::{Changes, Membership};
use crate::seats::{Candidate, seats};
use crate::{Action, MemberId, Outcome};
use std::time::Duration;

/// Time after the first new process is ready in which further ones may become ready, before the
/// running ranks are interrupted for them.
const GATHER: Duration = Duration::from_secs(5);

/// Time in which the processes of the first generation become ready after the first one. It is
/// longer, as a process that is late costs a reset.
const GATHER_FIRST: Duration = Duration::from_secs(30);

impl Membership {
    /// Tells the ranks of a generation in which one has ended that it is over.
    pub(super) fn announce_end(&mut self) {
        if self.over_since.is_none() || self.is_over_told {
            return;
        }
        self.is_over_told = true;
        let generation = self.generation;
        let over = |member| Action::Over { member, generation };
        let running = self.of_stage(Stage::Running);
        self.actions.extend(running.into_iter().map(over));
    }

    /// Forms the next generation if all ranks of the present one have left it, and enough processes
    /// are ready.
    pub(super) fn form(&mut self, now: Duration) {
        let ready = self.of_stage(Stage::Ready);
        if self.has_succeeded {
            // Another rank has finished the training.
            for member in ready {
                if let Some(process) = self.processes.get_mut(&member) {
                    process.stage = Stage::Leaving;
                    process.since = now;
                }
                self.actions.push(Action::Leave { member });
            }
            if self.generation > 0 {
                self.kill_starting(now);
            }
            return;
        }
        let is_waiting = self.of_stage(Stage::Running).is_empty();
        self.waiting_since = is_waiting.then(|| self.waiting_since.unwrap_or(now));
        let has_enough = match self.generation {
            0 => self.can_begin(now, &ready),
            _ => {
                let is_old = |member: &MemberId| {
                    let process = &self.processes[member];
                    process.rank_with_state(self.has_begun).is_some()
                };
                ready.len() >= self.limits.least && ready.iter().any(is_old)
            }
        };
        if !is_waiting || !has_enough {
            return;
        }
        if self
            .limits
            .resets
            .is_some_and(|most| self.generation > most)
        {
            self.end(Outcome::Failure(self.resets_exceeded()));
            return;
        }
        self.generation += 1;
        let candidates: Vec<Candidate<'_>> = ready
            .iter()
            .map(|member| {
                let process = &self.processes[member];
                Candidate {
                    member: *member,
                    host: &process.host,
                    rank: process.rank_with_state(self.has_begun),
                    local_rank: process.local_rank,
                }
            })
            .collect();
        for (member, seat) in seats(self.generation, &candidates) {
            if let Some(process) = self.processes.get_mut(&member) {
                process.stage = Stage::Running;
                process.since = now;
                process.rank = Some(seat.rank);
                process.local_rank = Some(seat.local_rank);
            }
            self.actions.push(Action::Seat { member, seat });
        }
        self.over_since = None;
        self.given_up_by = None;
        self.is_over_told = false;
        self.stopping_since = None;
        self.waiting_since = None;
        self.told = Changes::default();
        self.has_shrunk = false;
        self.failed_rank = None;
        self.cause = None;
    }

    /// Kills the processes that would become ranks later.
    fn kill_starting(&mut self, now: Duration) {
        for (&member, process) in &mut self.processes {
            if process.stage == Stage::Starting {
                process.stage = Stage::Killed;
                process.since = now;
                self.actions.push(Action::Kill { member });
            }
        }
    }

    /// Whether the first generation can be formed of the processes `ready`: all have called init,
    /// or enough have and the others are late.
    pub(super) fn can_begin(&self, now: Duration, ready: &[MemberId]) -> bool {
        let since = ready
            .iter()
            .map(|member| self.processes[member].since)
            .min();
        let are_starting = !self.of_stage(Stage::Starting).is_empty();
        let has_waited = |time| since.is_some_and(|since| now >= since + time);
        let is_up = self
            .waiting_since
            .is_some_and(|since| now >= since + self.limits.timeout);
        (ready.len() >= self.limits.start && (!are_starting || has_waited(GATHER_FIRST)))
            || (ready.len() >= self.limits.least && is_up)
    }

    /// Tells the running ranks of hosts that were removed, and of new processes that are ready.
    pub(super) fn announce_changes(&mut self, now: Duration) {
        let running = self.of_stage(Stage::Running);
        if running.is_empty() || self.over_since.is_some() || self.has_succeeded {
            return;
        }
        let mut ready = self
            .processes
            .values()
            .filter(|process| process.stage == Stage::Ready);
        let has_old = ready.clone().any(|process| process.rank.is_some()); // they are stopping
        let first = ready.clone().map(|process| process.since).min();
        let are_starting = !self.of_stage(Stage::Starting).is_empty();
        let is_time = first.is_some_and(|first| !are_starting || now >= first + GATHER);
        let changes = Changes {
            added: self.told.added || (is_time && ready.any(|process| process.rank.is_none())),
            removed: self.told.removed || self.has_shrunk,
        };
        if changes == self.told || has_old {
            return;
        }
        self.told = changes;
        let Changes { added, removed } = changes;
        let updated = |member| Action::Updated {
            member,
            added,
            removed,
        };
        self.actions.extend(running.into_iter().map(updated));
    }
}
