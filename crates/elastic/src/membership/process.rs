//! Processes: they are started on free slots, and end when they fail, are late or not needed.

use super::Membership;
use crate::health::State;
use crate::{Action, MemberId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for a process that was told to leave.
const LEAVE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Starting,
    /// It waits for its place.
    Ready,
    /// It is a rank of the present generation.
    Running,
    Leaving,
    Killed,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) host: String,
    pub(super) stage: Stage,
    /// Time at which the stage began.
    pub(super) since: Duration,
    /// Rank in the last generation of which it was a member.
    pub(super) rank: Option<usize>,
    /// Its number there among the ranks of its host.
    pub(super) local_rank: Option<usize>,
    /// Whether it has the state of the training. Unknown while it runs.
    pub(super) has_state: bool,
}

impl Process {
    /// Rank whose state the training can continue from; `None` for a process without state, once
    /// the training `has_begun`.
    pub(super) fn rank_with_state(&self, has_begun: bool) -> Option<usize> {
        let may_have = self.has_state || self.stage == Stage::Running || !has_begun;
        self.rank.filter(|_| may_have)
    }

    /// Whether it is, or can become, a rank.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Starting | Stage::Ready | Stage::Running)
    }
}

impl Membership {
    /// Kills the process that has rank `rank` of the present generation, which `member` has waited
    /// for in vain.
    pub(super) fn kill_rank(&mut self, now: Duration, rank: usize, member: MemberId) {
        let is_meant = |(id, process): &(&MemberId, &Process)| {
            let may_be_killed = match process.stage {
                Stage::Running => true,
                // The first rank that has given up may be the one that cannot reach the others.
                // Those after it have left because the generation was over.
                Stage::Ready => self.given_up_by == Some(**id),
                Stage::Starting | Stage::Leaving | Stage::Killed => false,
            };
            may_be_killed && process.rank == Some(rank)
        };
        let Some((&lost, _)) = self.processes.iter().find(is_meant) else {
            return;
        };
        if lost != member {
            self.kill(now, lost, "has not joined the other ranks in time");
        }
    }

    /// Kills a process, which counts as a failure of its host unless it was told to leave.
    pub(super) fn kill(&mut self, now: Duration, member: MemberId, why: &str) {
        if let Some(process) = self.processes.get_mut(&member) {
            let stage = std::mem::replace(&mut process.stage, Stage::Killed);
            process.since = now;
            let text = format!("{} {why} and is killed", process.name());
            let host = process.host.clone();
            self.actions.push(Action::Kill { member });
            if stage == Stage::Leaving {
                self.actions.push(Action::Say(text));
                return;
            }
            if stage == Stage::Running {
                self.failed_rank.get_or_insert_with(|| text.clone());
            }
            self.fail(now, &host, text);
        }
    }

    pub(super) fn fail(&mut self, now: Duration, host: &str, text: String) {
        let cooldown = self.limits.cooldown;
        let health = self.health.entry(host.to_owned()).or_default();
        health.fail(now, cooldown);
        self.actions.push(Action::Say(text.clone()));
        self.cause.get_or_insert(text);
    }

    /// Kills processes whose time is up.
    pub(super) fn end_overdue(&mut self, now: Duration) {
        let timeout = self.limits.timeout;
        let to_init = timeout / 2;
        let has_passed = |since: Option<Duration>| since.is_some_and(|at| now >= at + timeout);
        let must_have_left = has_passed(self.over_since) || has_passed(self.stopping_since);
        let not_started = format!(
            "has not called hvd.init() within {} s (half of --elastic-timeout)",
            to_init.as_secs_f64()
        );
        let overdue = |process: &Process| match process.stage {
            Stage::Starting => (now >= process.since + to_init).then_some(not_started.as_str()),
            Stage::Running => must_have_left.then_some("has not left its generation in time"),
            Stage::Leaving => {
                (now >= process.since + LEAVE).then_some("was told to leave, has not ended,")
            }
            Stage::Ready | Stage::Killed => None,
        };
        let found = self.processes.iter();
        let found: Vec<_> = found
            .filter_map(|(member, process)| Some((*member, overdue(process)?)))
            .collect();
        for (member, why) in found {
            self.kill(now, member, why);
        }
    }

    /// Dismisses processes for which their hosts have no slots any more: new ones first, then the
    /// highest ranks. Those that run are dismissed when they have left their generation.
    pub(super) fn dismiss(&mut self, now: Duration) {
        let mut of_host: BTreeMap<&str, Vec<MemberId>> = BTreeMap::new();
        for (member, process) in &self.processes {
            if process.is_live() {
                of_host.entry(&process.host).or_default().push(*member);
            }
        }
        let mut surplus = Vec::new();
        for (host, mut members) in of_host {
            let order =
                |member: &MemberId| (self.processes[member].rank.unwrap_or(usize::MAX), *member);
            members.sort_by_key(order);
            surplus.extend(members.into_iter().skip(self.hosts.slots(host)));
        }
        for member in surplus {
            let Some(process) = self.processes.get_mut(&member) else {
                continue;
            };
            match process.stage {
                Stage::Ready => {
                    process.stage = Stage::Leaving;
                    process.since = now;
                    self.actions.push(Action::Leave { member });
                }
                Stage::Running if self.over_since.is_none() => {}
                // It cannot be told before it is ready, and on a vanished host it never will be.
                Stage::Starting | Stage::Running => {
                    process.stage = Stage::Killed;
                    self.actions.push(Action::Kill { member });
                }
                Stage::Leaving | Stage::Killed => {}
            }
        }
    }

    /// Starts processes on free slots.
    pub(super) fn start_missing(&mut self, now: Duration) {
        if self.has_succeeded
            || (self.generation == 0 && self.usable_slots(now) < self.limits.start)
        {
            return;
        }
        let mut live = self
            .processes
            .values()
            .filter(|process| process.is_live())
            .count();
        for (host, slots) in self.hosts.iter() {
            if self.health(host).state(now) != State::Usable {
                continue;
            }
            // A process that is being killed still has its slot.
            let taken = self
                .processes
                .values()
                .filter(|process| process.host == host)
                .count();
            for _ in taken..slots {
                if live == self.limits.most {
                    return;
                }
                live += 1;
                self.started += 1;
                let (member, host) = (MemberId(self.started), host.to_owned());
                let process = Process {
                    host: host.clone(),
                    stage: Stage::Starting,
                    since: now,
                    rank: None,
                    local_rank: None,
                    has_state: false,
                };
                self.processes.insert(member, process);
                self.actions.push(Action::Start { member, host });
            }
        }
    }

    /// Slots on which processes run or can be started.
    pub(super) fn usable_slots(&self, now: Duration) -> usize {
        self.slots(|host| self.health(host).state(now) == State::Usable)
    }

    /// Slots that can be used once all cool-downs have ended.
    pub(super) fn slots_in_time(&self, now: Duration) -> usize {
        self.slots(|host| self.health(host).state(now) != State::Barred)
    }

    /// Slots of the hosts that get new processes, and those with processes on the others.
    fn slots(&self, gets_new: impl Fn(&str) -> bool) -> usize {
        let slots = |(host, slots): (&str, usize)| match gets_new(host) {
            true => slots,
            false => self.live_on(host).min(slots),
        };
        self.hosts.iter().map(slots).sum()
    }

    pub(super) fn live_on(&self, host: &str) -> usize {
        let processes = self.processes.values();
        processes
            .filter(|process| process.is_live() && process.host == host)
            .count()
    }
}
