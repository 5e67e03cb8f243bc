//! Simulated hosts, processes and network of one job, and the rules that it must obey.
//!
//! A generation trains in lockstep once all its members have come together: rank 0's state is
//! copied to all, then each step needs every member. A member that ends or stops is noticed by the
//! others after a while, unless the launcher tells them first. A member that waits for the others in
//! vain gives up, and rank 0 then names those that have not come to it.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use ronde_elastic::{
    Action, Cooldown, Exit, Hosts, Limits, MemberId, Membership, Outcome, Ready, Seat,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Steps of a training, and of the interval between commits.
const STEPS: u32 = 100;
const COMMIT: u32 = 5;

/// Time for which a member waits for the others, in which it goes on after the launcher has told it
/// that the generation is over, and by which those that have come to rank 0 wait longer than it, in
/// milliseconds.
const MEET_MS: u64 = 10_000;
const LAST_WAIT_MS: u64 = 1000;
const PATIENCE_MS: u64 = 3000;

/// Longest job.
const END: Duration = Duration::from_secs(4000);

/// How a job ended.
pub(crate) enum Ending {
    /// All steps were done.
    Trained,
    /// With a message that says why.
    Explained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Importing,
    AsksSeat,
    /// Waits for the other members of a generation.
    Meets(u64),
    Trains(u64),
    /// Does not react to anything but its end.
    Hung,
    Ended,
}

struct Process {
    host: String,
    life: Life,
    rank: usize,
    /// Step of its state, and that of its last commit; `None` before it received a state.
    step: Option<u32>,
    committed: Option<u32>,
    is_told: bool,
}

struct Generation {
    /// Members by rank.
    members: BTreeMap<usize, MemberId>,
    size: usize,
}

#[derive(Clone, Debug)]
enum Event {
    Discovery,
    /// The process has called init.
    Imported(MemberId),
    /// A message of the launcher arrives.
    Told(MemberId, Action),
    /// A message of a process arrives at the launcher.
    Asks(MemberId, Ready),
    /// The launcher sees the end of a process.
    Seen(MemberId, Exit),
    /// The launcher has had no heartbeat of a process for some time.
    Silent(MemberId),
    /// The launcher notices that a host is lost, or cannot be reached.
    HostLost(String),
    Step(u64),
    /// A member notices that the generation has lost a rank.
    Notices(MemberId, u64),
    /// A member has waited too long for the others of the generation.
    GivesUp(MemberId, u64),
    /// A host reaches the others again.
    Healed(String),
    Fault,
}

pub(crate) struct World {
    seed: u64,
    random: SmallRng,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    events_made: u64,
    membership: Membership,
    limits: Limits,
    /// Hosts that exist, with their slots.
    hosts: BTreeMap<String, usize>,
    /// Hosts that are lost, which the launcher has not noticed yet.
    lost: BTreeSet<String>,
    /// Hosts that reach the launcher, and no other host.
    apart: BTreeSet<String>,
    /// Hosts as the discovery prints them.
    printed: Vec<(String, usize)>,
    processes: BTreeMap<MemberId, Process>,
    generations: BTreeMap<u64, Generation>,
    /// Step that all members of some generation have committed.
    safe: u32,
    faults_left: u32,
    faults_made: u64,
    ending: Option<Ending>,
    /// Whether events are printed.
    is_traced: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let hosts: BTreeMap<String, usize> = (0..random.random_range(1..=4))
            .map(|host| (format!("host{host}"), random.random_range(1..=4)))
            .collect();
        let slots: usize = hosts.values().sum();
        let start = random.random_range(1..=slots);
        let least = random.random_range(1..=start);
        let limits = Limits {
            least,
            most: random.random_range(start..=start + 4),
            start,
            timeout: Duration::from_secs(60),
            are_hosts_fixed: false,
            resets: random.random_bool(0.1).then(|| random.random_range(0..6)),
            cooldown: random
                .random_bool(0.8)
                .then(|| Cooldown::new(1, 20).unwrap()),
        };
        let faults_left = random.random_range(0..12);
        let printed = hosts
            .iter()
            .map(|(host, slots)| (host.clone(), *slots))
            .collect();
        let mut world = Self {
            seed,
            random,
            now: Duration::ZERO,
            events: BTreeMap::new(),
            events_made: 0,
            membership: Membership::new(limits),
            limits,
            hosts,
            lost: BTreeSet::new(),
            apart: BTreeSet::new(),
            printed,
            processes: BTreeMap::new(),
            generations: BTreeMap::new(),
            safe: 0,
            faults_left,
            faults_made: 0,
            ending: None,
            is_traced: std::env::var_os("TEST_RONDE_SCHEDULE_TRACE").is_some(),
        };
        world.after(0, Event::Discovery);
        world.after(500, Event::Fault);
        world
    }

    pub(crate) fn resets(&self) -> u64 {
        self.membership.generation().saturating_sub(1)
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults_made
    }

    pub(crate) fn run(&mut self) -> Ending {
        loop {
            if let Some(ending) = self.ending.take() {
                return ending;
            }
            let ((time, _), event) = self.events.pop_first().expect("the discovery goes on");
            assert!(time < END, "seed {}: the job does not end", self.seed);
            self.now = time;
            self.happen(event);
        }
    }

    /// Schedules an event in up to twice `ms`.
    fn after(&mut self, ms: u64, event: Event) {
        let ms = self.random.random_range(ms / 2..=ms * 2);
        self.at(self.now + Duration::from_millis(ms), event);
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.events_made += 1;
        self.events.insert((time, self.events_made), event);
    }

    /// A message between the launcher and one process; messages keep their order.
    fn message(&mut self, member: MemberId, event: Event) {
        let is_of = |event: &Event| matches!(event, Event::Told(of, _) | Event::Asks(of, _) if *of == member);
        let last = self
            .events
            .iter()
            .filter(|(_, event)| is_of(event))
            .map(|((time, _), _)| *time)
            .max();
        let soon = self.now + Duration::from_millis(self.random.random_range(1..40));
        self.at(last.map_or(soon, |last| soon.max(last)), event);
    }

    fn happen(&mut self, event: Event) {
        if self.is_traced && !matches!(event, Event::Discovery) {
            println!("{:9.3} {event:?}", self.now.as_secs_f64());
        }
        match event {
            Event::Discovery => {
                self.at(self.now + Duration::from_secs(1), Event::Discovery);
                let lines: Vec<String> = self
                    .printed
                    .iter()
                    .map(|(host, slots)| format!("{host}:{slots}"))
                    .collect();
                let hosts = Hosts::parse(&lines.join("\n"), None).expect("a list of hosts");
                let actions = self.membership.hosts(self.now, hosts);
                self.carry_out(actions);
            }
            Event::Imported(member) => {
                if self.processes[&member].life == Life::Importing {
                    self.asks(member, Ready::Started);
                }
            }
            Event::Asks(member, why) => {
                let actions = self.membership.ready(self.now, member, why);
                self.carry_out(actions);
            }
            Event::Seen(member, exit) => {
                let actions = self.membership.exited(self.now, member, exit);
                self.carry_out(actions);
            }
            Event::Silent(member) => {
                let actions = self.membership.silent(self.now, member);
                self.carry_out(actions);
            }
            Event::HostLost(host) => {
                self.lost.remove(&host);
                let actions = self
                    .membership
                    .host_lost(self.now, &host, "does not answer");
                self.carry_out(actions);
            }
            Event::Told(member, action) => self.told(member, action),
            Event::Step(generation) => self.step(generation),
            Event::Notices(member, generation) => {
                let life = self.processes[&member].life;
                if life == Life::Trains(generation) || life == Life::Meets(generation) {
                    self.fails(member, generation, Vec::new());
                }
            }
            Event::GivesUp(member, generation) => {
                let process = &self.processes[&member];
                if process.life == Life::Meets(generation) {
                    let lost = match process.rank {
                        0 => self.missing(generation),
                        _ => Vec::new(),
                    };
                    self.fails(member, generation, lost);
                }
            }
            Event::Healed(host) => {
                self.apart.remove(&host);
            }
            Event::Fault => self.fault(),
        }
    }

    /// Ranks that have not come to rank 0 of a generation.
    fn missing(&self, generation: u64) -> Vec<usize> {
        let of = &self.generations[&generation];
        let meets = |rank: &usize| {
            let members = (of.members.get(&0), of.members.get(rank));
            matches!(members, (Some(&first), Some(&member))
                if self.processes[&member].life == Life::Meets(generation)
                    && self.are_connected(&[first, member]))
        };
        (0..of.size).filter(|rank| !meets(rank)).collect()
    }

    /// Whether the hosts of these processes reach each other.
    fn are_connected(&self, members: &[MemberId]) -> bool {
        let hosts = members.iter().map(|member| &self.processes[member].host);
        let hosts: BTreeSet<&String> = hosts.collect();
        hosts.len() == 1 || !hosts.into_iter().any(|host| self.apart.contains(host))
    }

    fn asks(&mut self, member: MemberId, why: Ready) {
        let process = self.processes.get_mut(&member).expect("it exists");
        process.life = Life::AsksSeat;
        process.is_told = false;
        self.message(member, Event::Asks(member, why));
    }

    /// An operation has failed on `member`: it restores its last commit.
    fn fails(&mut self, member: MemberId, generation: u64, lost: Vec<usize>) {
        let process = self.processes.get_mut(&member).expect("it exists");
        process.step = process.committed;
        let has_state = process.step.is_some();
        self.asks(
            member,
            Ready::Failed {
                generation,
                has_state,
                lost,
            },
        );
    }

    fn told(&mut self, member: MemberId, action: Action) {
        let process = self.processes.get_mut(&member).expect("it exists");
        match (action, process.life) {
            (Action::Kill { .. }, life) if life != Life::Ended => self.dies(member, "was killed"),
            (_, Life::Hung | Life::Ended) => {}
            (Action::Seat { seat, .. }, Life::AsksSeat) => self.sits(member, seat),
            (Action::Over { generation, .. }, Life::Trains(of)) if of == generation => {
                self.fails(member, generation, Vec::new());
            }
            (Action::Over { generation, .. }, Life::Meets(of)) if of == generation => {
                let time = self.now + Duration::from_millis(LAST_WAIT_MS);
                self.at(time, Event::Notices(member, generation));
            }
            (Action::Updated { .. }, _) => process.is_told = true,
            (Action::Leave { .. }, Life::AsksSeat) => self.exits(member, Exit::Success),
            (Action::Over { .. } | Action::Kill { .. }, _) => {}
            (action, life) => panic!("seed {}: {action:?} for a process that {life:?}", self.seed),
        }
    }

    fn sits(&mut self, member: MemberId, seat: Seat) {
        let size = seat.ranks_per_host.iter().sum();
        assert!(
            (self.limits.least..=self.limits.most).contains(&size),
            "seed {}",
            self.seed
        );
        let first: usize = seat.ranks_per_host[..seat.host].iter().sum();
        assert_eq!(first + seat.local_rank, seat.rank, "seed {}", self.seed);
        let process = self.processes.get_mut(&member).expect("it exists");
        process.life = Life::Meets(seat.generation);
        process.rank = seat.rank;
        let empty = Generation {
            members: BTreeMap::new(),
            size,
        };
        let generation = self.generations.entry(seat.generation).or_insert(empty);
        assert_eq!(generation.size, size, "seed {}: sizes differ", self.seed);
        let before = generation.members.insert(seat.rank, member);
        assert_eq!(
            before, None,
            "seed {}: two processes with rank {}",
            self.seed, seat.rank
        );
        let members: Vec<MemberId> = generation.members.values().copied().collect();
        if members.len() < size || !self.missing(seat.generation).is_empty() {
            // Some are missing, have ended, or cannot come.
            let late = self.random.random_range(0..PATIENCE_MS / 2);
            let has_come = seat.rank > 0 && self.are_connected(&[members[0], member]);
            let patience = if has_come { PATIENCE_MS } else { 0 };
            let time = self.now + Duration::from_millis(MEET_MS + late + patience);
            self.at(time, Event::GivesUp(member, seat.generation));
            return;
        }
        // All have come: rank 0's state is copied.
        let step = self.processes[&members[0]].step.unwrap_or(0);
        assert!(
            step >= self.safe,
            "seed {}: generation {} begins at step {step}, after all had committed {}",
            self.seed,
            seat.generation,
            self.safe
        );
        for member in members {
            let process = self.processes.get_mut(&member).expect("it exists");
            process.life = Life::Trains(seat.generation);
            (process.step, process.committed) = (Some(step), Some(step));
        }
        self.after(200, Event::Step(seat.generation));
    }

    /// All members of a generation do a step, unless one is missing.
    fn step(&mut self, generation: u64) {
        let members: Vec<MemberId> = self.generations[&generation]
            .members
            .values()
            .copied()
            .collect();
        let trains = |member: &MemberId| self.processes[member].life == Life::Trains(generation);
        if !members.iter().all(trains) || !self.are_connected(&members) {
            return; // those that are left notice it
        }
        let steps: BTreeSet<_> = members
            .iter()
            .map(|member| self.processes[member].step)
            .collect();
        assert_eq!(
            steps.len(),
            1,
            "seed {}: ranks at different steps: {steps:?}",
            self.seed
        );
        let step = steps.first().copied().flatten().expect("it trains") + 1;
        let is_commit = step % COMMIT == 0 || step == STEPS;
        // A rank may end in the middle of a commit.
        let dying = (is_commit && self.faults_left > 0 && self.random.random_bool(0.05))
            .then(|| members[self.random.random_range(0..members.len())]);
        for member in &members {
            let process = self.processes.get_mut(member).expect("it exists");
            process.step = Some(step);
            let reaches = dying.is_none() || self.random.random_bool(0.5);
            if is_commit && reaches && dying != Some(*member) {
                process.committed = Some(step);
            }
        }
        if let Some(dying) = dying {
            self.faults_left -= 1;
            self.faults_made += 1;
            self.dies(dying, "was killed by signal 9 (SIGKILL)");
            return;
        }
        if is_commit {
            self.safe = self.safe.max(step);
        }
        if step == STEPS {
            members
                .into_iter()
                .for_each(|member| self.exits(member, Exit::Success));
        } else if is_commit && members.iter().any(|member| self.processes[member].is_told) {
            members
                .into_iter()
                .for_each(|member| self.asks(member, Ready::Interrupted));
        } else {
            self.after(200, Event::Step(generation));
        }
    }

    fn exits(&mut self, member: MemberId, exit: Exit) {
        self.processes.get_mut(&member).expect("it exists").life = Life::Ended;
        self.after(100, Event::Seen(member, exit));
    }

    /// A process ends by a fault. The members of its generation notice.
    fn dies(&mut self, member: MemberId, how: &str) {
        let life = self.processes[&member].life;
        self.exits(member, Exit::Failure(how.to_owned()));
        self.is_missed(member, life, 300);
    }

    fn is_missed(&mut self, member: MemberId, life: Life, ms: u64) {
        let (Life::Meets(generation) | Life::Trains(generation)) = life else {
            return;
        };
        let others: Vec<MemberId> = self.generations[&generation]
            .members
            .values()
            .copied()
            .collect();
        for other in others.into_iter().filter(|other| *other != member) {
            self.after(ms, Event::Notices(other, generation));
        }
    }

    fn fault(&mut self) {
        if self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        self.faults_made += 1;
        let living: Vec<MemberId> = self
            .processes
            .iter()
            .filter(|(_, process)| !matches!(process.life, Life::Ended | Life::Hung))
            .map(|(member, _)| *member)
            .collect();
        let member =
            (!living.is_empty()).then(|| living[self.random.random_range(0..living.len())]);
        let hosts: Vec<String> = self.hosts.keys().cloned().collect();
        let host = hosts[self.random.random_range(0..hosts.len())].clone();
        match (self.random.random_range(0..9), member) {
            (0 | 1, Some(member)) => self.dies(member, "was killed by signal 9 (SIGKILL)"),
            (2, Some(member)) => {
                let life = self.processes[&member].life;
                self.processes.get_mut(&member).expect("it exists").life = Life::Hung;
                self.is_missed(member, life, 5000);
                self.after(6000, Event::Silent(member));
            }
            (3, _) if hosts.len() > 1 => self.vanishes(&host),
            // All processes of a host end, and it can be used again.
            (7, _) => self.is_lost(&host, 200),
            (8, _) => self.is_cut_off(host),
            (4, _) => {
                let name = format!("host{}", 3 + self.faults_made);
                let slots = self.random.random_range(1..=4);
                self.hosts.insert(name.clone(), slots);
                self.printed.push((name, slots));
            }
            // The discovery no longer prints a host that works, or prints it again.
            (5, _) => {
                let before = self.printed.len();
                self.printed.retain(|(name, _)| *name != host);
                if self.printed.len() == before {
                    self.printed.push((host.clone(), self.hosts[&host]));
                }
            }
            // The number of slots changes.
            (6, _) => {
                let slots = self.random.random_range(1..=4);
                self.hosts.insert(host.clone(), slots);
                self.printed
                    .iter_mut()
                    .filter(|(name, _)| *name == host)
                    .for_each(|printed| printed.1 = slots);
            }
            _ => {}
        }
        self.after(1500, Event::Fault);
    }

    /// A host is gone with all its processes. The discovery prints it for a while, or for ever.
    fn vanishes(&mut self, host: &str) {
        self.hosts.remove(host);
        self.is_lost(host, 6000);
        if self.random.random_bool(0.7) {
            self.printed.retain(|(name, _)| name != host);
        }
    }

    /// A host reaches no other host for a while, but the launcher.
    fn is_cut_off(&mut self, host: String) {
        self.apart.insert(host.clone());
        let on_host = self.processes.iter().filter(|(_, it)| it.host == host);
        let lives = on_host.map(|(member, process)| (*member, process.life));
        for (member, life) in lives.collect::<Vec<_>>() {
            let Life::Trains(generation) = life else {
                continue;
            };
            let members = self.generations[&generation].members.values();
            if !self.are_connected(&members.copied().collect::<Vec<_>>()) {
                self.is_missed(member, life, 2000);
            }
        }
        self.after(60_000, Event::Healed(host));
    }

    /// All processes of a host end at once, which the launcher notices after about `ms`.
    fn is_lost(&mut self, host: &str, ms: u64) {
        let is_there = |(_, process): &(&MemberId, &Process)| {
            process.host == host && process.life != Life::Ended
        };
        let lost: Vec<MemberId> = self
            .processes
            .iter()
            .filter(is_there)
            .map(|(member, _)| *member)
            .collect();
        for member in lost {
            let process = self.processes.get_mut(&member).expect("it exists");
            let life = std::mem::replace(&mut process.life, Life::Ended);
            self.is_missed(member, life, 2000);
        }
        if self.lost.insert(host.to_owned()) {
            self.after(ms, Event::HostLost(host.to_owned()));
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start { member, host } => {
                    let exists = self.hosts.contains_key(&host);
                    let process = Process {
                        host,
                        life: Life::Importing,
                        rank: 0,
                        step: None,
                        committed: None,
                        is_told: false,
                    };
                    let host = process.host.clone();
                    self.processes.insert(member, process);
                    if exists && !self.lost.contains(&host) {
                        self.after(2000, Event::Imported(member));
                    } else {
                        self.is_lost(&host, 2000); // it cannot be reached
                    }
                }
                Action::Seat { member, .. }
                | Action::Updated { member, .. }
                | Action::Over { member, .. }
                | Action::Leave { member }
                | Action::Kill { member } => self.message(member, Event::Told(member, action)),
                Action::Say(text) => assert!(!text.is_empty()),
                Action::End(Outcome::Success) => {
                    assert_eq!(
                        self.safe, STEPS,
                        "seed {}: success before the last step",
                        self.seed
                    );
                    self.ending = Some(Ending::Trained);
                }
                Action::End(Outcome::Failure(text)) => {
                    let explains = |part: &&&str| text.contains(**part);
                    let parts = [
                        "no rank is left",
                        "slots are available",
                        "have called init",
                        "before the first step",
                        "exceeded limit",
                    ];
                    assert_eq!(parts.iter().filter(explains).count(), 1, "{text}");
                    self.ending = Some(Ending::Explained);
                }
            }
        }
    }
}
