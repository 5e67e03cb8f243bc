//! State machine of the membership.

mod generation;
mod process;
mod report;
#[cfg(test)]
mod tests;

use crate::health::Health;
use crate::hosts::Hosts;
use crate::{Action, Exit, Limits, MemberId, Outcome, Ready};
use process::{Process, Stage};
use std::collections::BTreeMap;
use std::time::Duration;

/// A job ends if this many processes, and as many as it starts with, fail before it has begun: the
/// program is likely to be at fault, not a host.
const FAILED_STARTS: usize = 3;

/// Changes of the hosts of which the running ranks are to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    added: bool,
    removed: bool,
}

/// State of the membership. Times are durations since the start of the job.
#[derive(Clone, Debug)]
pub struct Membership {
    limits: Limits,
    hosts: Hosts,
    health: BTreeMap<String, Health>,
    processes: BTreeMap<MemberId, Process>,
    started: u64,
    generation: u64,
    /// Time since which the present generation is known to be over.
    over_since: Option<Duration>,
    /// The rank that has given it up, if no rank had ended before.
    given_up_by: Option<MemberId>,
    /// Its ranks were told that it is over.
    is_over_told: bool,
    /// Time since which its ranks leave it because the hosts have changed, as they have agreed.
    stopping_since: Option<Duration>,
    /// Time since which no generation can be formed.
    waiting_since: Option<Duration>,
    /// Changes of which the present generation has been told.
    told: Changes,
    /// Hosts or slots were removed since the present generation was formed.
    has_shrunk: bool,
    /// A process has had the state of the training.
    has_begun: bool,
    has_succeeded: bool,
    /// A rank of the present generation has failed: the first one.
    failed_rank: Option<String>,
    /// Number of processes that failed before the first generation.
    failed_starts: usize,
    /// First failure since the last generation was formed.
    cause: Option<String>,
    has_ended: bool,
    actions: Vec<Action>,
}

impl Membership {
    /// Membership of a job that has no processes yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            hosts: Hosts::default(),
            health: BTreeMap::new(),
            processes: BTreeMap::new(),
            started: 0,
            generation: 0,
            over_since: None,
            given_up_by: None,
            is_over_told: false,
            stopping_since: None,
            waiting_since: Some(Duration::ZERO),
            told: Changes::default(),
            has_shrunk: false,
            has_begun: false,
            has_succeeded: false,
            failed_rank: None,
            failed_starts: 0,
            cause: None,
            has_ended: false,
            actions: Vec::new(),
        }
    }

    /// The discovery has found these hosts.
    pub fn hosts(&mut self, now: Duration, hosts: Hosts) -> Vec<Action> {
        self.hosts = hosts;
        // Slots that no rank uses are none that a rank has to leave.
        let mut ranks = BTreeMap::<&str, usize>::new();
        for process in self.processes.values() {
            *ranks.entry(&process.host).or_default() +=
                usize::from(process.stage == Stage::Running);
        }
        let is_surplus = |(host, count): (&&str, &usize)| *count > self.hosts.slots(host);
        self.has_shrunk |= ranks.iter().any(is_surplus);
        self.advance(now)
    }

    /// A process asks for its place.
    pub fn ready(&mut self, now: Duration, member: MemberId, why: Ready) -> Vec<Action> {
        let Some(process) = self
            .processes
            .get_mut(&member)
            .filter(|process| process.is_live())
        else {
            return Vec::new(); // it was told to leave, or killed
        };
        let stage = std::mem::replace(&mut process.stage, Stage::Ready);
        if stage == Stage::Running && why == Ready::Interrupted {
            self.stopping_since.get_or_insert(now);
        }
        process.since = now;
        process.has_state = match why {
            Ready::Started => false,
            Ready::Interrupted => true,
            Ready::Failed { has_state, .. } => has_state,
        };
        self.has_begun |= process.has_state;
        if let Ready::Failed {
            generation, lost, ..
        } = why
            && generation == self.generation
        {
            if self.over_since.is_none() {
                (self.over_since, self.given_up_by) = (Some(now), Some(member));
            }
            for rank in lost {
                self.kill_rank(now, rank, member);
            }
        }
        self.advance(now)
    }

    /// A process has ended.
    pub fn exited(&mut self, now: Duration, member: MemberId, exit: Exit) -> Vec<Action> {
        let Some(process) = self.processes.remove(&member) else {
            return Vec::new();
        };
        let name = process.name();
        match (exit, process.stage) {
            (_, Stage::Leaving | Stage::Killed) => {}
            // Before the first generation, it is a program that never becomes a rank.
            (Exit::Success, stage)
                if stage == Stage::Running || self.generation == 0 || self.has_succeeded =>
            {
                self.has_succeeded = true;
            }
            (Exit::Success, _) => {
                let text = format!("{name} has ended before it became a rank");
                self.fail(now, &process.host, text);
            }
            (Exit::Failure(status), stage) => {
                let text = format!("{name} {status}");
                self.fail(now, &process.host, text.clone());
                self.failed_starts += usize::from(self.generation == 0);
                if stage == Stage::Running {
                    self.over_since.get_or_insert(now);
                    self.failed_rank.get_or_insert(text);
                }
            }
        }
        self.advance(now)
    }

    /// A process has given no sign of life for too long: its connection's heartbeat has stopped.
    pub fn silent(&mut self, now: Duration, member: MemberId) -> Vec<Action> {
        let process = self.processes.get(&member);
        if let Some(process) = process.filter(|process| process.is_live()) {
            if process.stage == Stage::Running {
                self.over_since.get_or_insert(now);
            }
            self.kill(now, member, "does not answer");
        }
        self.advance(now)
    }

    /// A host is lost with all its processes, or cannot be reached, as `text` says for the user.
    ///
    /// The failure is that of the host alone: it does not count as processes that fail before the
    /// first generation.
    pub fn host_lost(&mut self, now: Duration, host: &str, text: &str) -> Vec<Action> {
        let mut ranks = Vec::new();
        self.processes.retain(|_, process| {
            let is_lost = process.host == host;
            if is_lost && process.stage == Stage::Running {
                ranks.extend(process.rank);
            }
            !is_lost
        });
        ranks.sort_unstable();
        let text = format!("{text}{}", report::lost_ranks(&ranks));
        if !ranks.is_empty() {
            self.over_since.get_or_insert(now);
            self.failed_rank.get_or_insert_with(|| text.clone());
        }
        self.fail(now, host, text);
        self.advance(now)
    }

    /// Time has passed. Call it at least once a second.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        self.advance(now)
    }

    /// Whether a process is, or can become, a rank: it was not told to leave, and not killed.
    pub fn is_live(&self, member: MemberId) -> bool {
        let process = self.processes.get(&member);
        process.is_some_and(Process::is_live)
    }

    /// Number of the last generation that was formed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn advance(&mut self, now: Duration) -> Vec<Action> {
        if !self.has_ended {
            self.end_overdue(now);
            self.dismiss(now);
            self.start_missing(now);
            self.announce_end();
            self.form(now);
            self.announce_changes(now);
            self.check_end(now);
        }
        std::mem::take(&mut self.actions)
    }

    fn health(&self, host: &str) -> Health {
        self.health.get(host).copied().unwrap_or_default()
    }

    fn of_stage(&self, stage: Stage) -> Vec<MemberId> {
        let is_meant = |(_, process): &(&MemberId, &Process)| process.stage == stage;
        self.processes
            .iter()
            .filter(is_meant)
            .map(|(member, _)| *member)
            .collect()
    }

    /// Whether no process will become a rank: at the start, so many have failed that the program is
    /// likely to be at fault, or all have and no host gets new ones.
    fn cannot_begin(&self, now: Duration) -> bool {
        let has_failed = |least| self.failed_starts >= self.limits.start.max(least);
        let are_all_gone = || self.processes.is_empty() && self.slots_in_time(now) == 0;
        self.generation == 0 && (has_failed(FAILED_STARTS) || (has_failed(0) && are_all_gone()))
    }

    fn check_end(&mut self, now: Duration) {
        if self.has_ended {
            return;
        }
        let live = self.processes.values().filter(|process| process.is_live());
        let can_continue = |process: &Process| process.rank_with_state(self.has_begun).is_some();
        let has_state = live.clone().any(can_continue);
        if self.has_succeeded {
            if live.count() == 0 {
                let failed = self.failed_rank.take();
                self.end(failed.map_or(Outcome::Success, Outcome::Failure));
            }
        } else if self.cannot_begin(now) {
            self.end(Outcome::Failure(self.none_starts()));
        } else if self.generation > 0 && !has_state {
            self.end(Outcome::Failure(self.all_lost()));
        } else if let Some(since) = self.waiting_since {
            let is_up = now >= since + self.limits.timeout;
            let is_fixed = self.limits.are_hosts_fixed && !self.hosts.is_empty();
            let is_vain = is_fixed && self.slots_in_time(now) < self.needed();
            if is_up || is_vain {
                self.end(Outcome::Failure(self.too_few(now, is_up)));
            }
        }
    }

    /// Number of processes that the next generation needs.
    fn needed(&self) -> usize {
        match self.generation {
            0 => self.limits.start,
            _ => self.limits.least,
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.has_ended = true;
        self.actions.push(Action::End(outcome));
    }
}
