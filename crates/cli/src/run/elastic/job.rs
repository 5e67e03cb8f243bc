//! State machine of an elastic job: one loop waits for events and carries out what the membership
//! decides.

use super::super::output::{EXIT_PIPE, Queue, Target};
use super::super::process::{Exit, lack_of_memory};
use super::super::signals::{self, Signals};
use super::super::sink::Sink;
use super::super::ssh::agent::address;
use super::super::wait::Waiting;
use super::super::{LaunchError, LaunchSpec};
use super::Elastic;
use super::discovery::{Discovery, Found};
use super::processes::{self, Facts, News, Processes};
use super::remote::{self, Reach, Remote};
use super::wire::{ALIVE_INTERVAL, Listening, Order};
use crate::argv::quoted;
use crate::run::hosts::is_this_machine;
use ronde::internal::identity::MAX_RANKS;
use ronde_elastic::wire::Reply;
use ronde_elastic::{Action, Hosts, MemberId, Membership, Outcome, Seat};
use ronde_job::units::counted;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL at the end of the job.
const GRACE: Duration = Duration::from_secs(4);

/// Time for the end of processes that were killed, and of the agents of their hosts.
const GRACE_KILLED: Duration = Duration::from_millis(750);

/// Longest time between two looks at the clock of the membership.
const TICK: Duration = Duration::from_millis(500);

/// Exit code after a failure that is not a rank's.
const EXIT_FAILURE: u8 = 1;

/// Exit code if the command cannot be started, as in a shell.
const EXIT_NOT_STARTED: u8 = 127;

/// Runs the job to its end, and returns its exit code.
pub(super) fn run(spec: &LaunchSpec, elastic: Elastic, reach: Reach) -> Result<u8, LaunchError> {
    let signals = Signals::register()?;
    let mut job = Job::new(spec, elastic, reach)?;
    while job.phase != Phase::Over {
        let events = job.wait(&signals)?;
        // Silence is judged at this time. `react` may block for seconds, on a file system, and what
        // arrives meanwhile is read in the next turn.
        let now = Instant::now();
        job.react(events, &signals)?;
        job.advance(now)?;
    }
    Ok(job.code)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The processes were signalled.
    Ending {
        kill_at: Instant,
    },
    /// They were killed, or have ended: the agents of their hosts end.
    Closing {
        until: Instant,
    },
    Flushing,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Hosts,
    Here(processes::Event),
    Remote(u64, remote::Event),
    Writable,
}

struct Job<'a> {
    spec: &'a LaunchSpec,
    membership: Membership,
    began: Instant,
    discovery: Discovery,
    /// Last problem of the discovery, which is reported once.
    problem: Option<String>,
    hosts: Hosts,
    /// Largest number of ranks.
    most: usize,
    reach: Reach,
    /// Processes on this machine, and where rank 0 can listen on it.
    here: Processes<'a>,
    listening: Listening,
    /// Other hosts, by the order of their agents' starts.
    remotes: BTreeMap<u64, Remote>,
    remotes_started: u64,
    /// Hosts whose agents could not be started, with the reason.
    unreachable: BTreeMap<String, String>,
    /// Time of the next sign of life to the other hosts.
    alive_at: Instant,
    queue: Queue,
    phase: Phase,
    code: u8,
    /// Exit code of the last process that failed.
    failed: Option<u8>,
}

impl<'a> Job<'a> {
    fn new(spec: &'a LaunchSpec, elastic: Elastic, reach: Reach) -> Result<Self, LaunchError> {
        let facts = Facts {
            job_id: &reach.task.job_id,
            secret: &reach.task.secret,
            limit_threads: reach.task.limit_threads,
        };
        let here = Processes::new(spec, &facts)?;
        Ok(Self {
            spec,
            membership: Membership::new(elastic.limits),
            began: Instant::now(),
            discovery: Discovery::start(elastic.source)?,
            problem: None,
            hosts: Hosts::default(),
            most: elastic.limits.most,
            reach,
            listening: Listening {
                address: elastic.address,
                ports: here.ports(),
            },
            here,
            remotes: BTreeMap::new(),
            remotes_started: 0,
            unreachable: BTreeMap::new(),
            alive_at: Instant::now(),
            queue: Queue::default(),
            phase: Phase::Running,
            code: 0,
            failed: None,
        })
    }

    fn wait(&self, signals: &Signals) -> Result<Vec<Event>, LaunchError> {
        let outputs = (std::io::stdout(), std::io::stderr());
        let mut waiting = Waiting::new();
        for descriptor in signals.descriptors() {
            waiting.readable(descriptor, Event::Signal);
        }
        let discovery = self.discovery.descriptor();
        if let Some(discovery) = discovery.filter(|_| self.phase == Phase::Running) {
            waiting.readable(discovery, Event::Hosts);
        }
        let reads_output = !self.queue.is_full();
        self.here.wait(&mut waiting, reads_output, Event::Here);
        for (&id, remote) in &self.remotes {
            let event = |event| Event::Remote(id, event);
            remote.wait(&mut waiting, reads_output, event);
        }
        self.queue.wait(&mut waiting, &outputs, Event::Writable);
        let tick = match self.phase {
            Phase::Running => Some(Instant::now() + TICK),
            Phase::Ending { kill_at } => Some(kill_at.min(Instant::now() + TICK)),
            Phase::Closing { until } => Some(until),
            Phase::Flushing | Phase::Over => None,
        };
        waiting.wait(tick.into_iter().chain(self.here.deadline()).min())
    }

    fn react(&mut self, events: Vec<Event>, signals: &Signals) -> Result<(), LaunchError> {
        for event in events {
            match event {
                Event::Signal => signals
                    .take()
                    .into_iter()
                    .for_each(|signal| self.on_signal(signal)),
                Event::Hosts => {
                    if let Some(found) = self.discovery.take() {
                        self.on_hosts(found)?;
                    }
                }
                Event::Here(event) => {
                    let news = self.here.react(event, &mut self.queue);
                    self.on_news(news)?;
                }
                Event::Remote(id, event) => {
                    // It may have been lost by an event before.
                    if let Some(remote) = self.remotes.get_mut(&id) {
                        let (news, outcome) = remote.react(event, &mut self.queue);
                        self.on_news(news)?;
                        if let Err(reason) = outcome {
                            self.on_lost(id, &reason)?;
                        }
                    }
                }
                Event::Writable => {
                    if self.queue.write_or_drop(&self.spec.label) {
                        self.end(EXIT_PIPE, Signal::TERM);
                    }
                }
            }
        }
        Ok(())
    }

    fn on_signal(&mut self, signal: i32) {
        let code = Exit::Signal(signal).code();
        match self.phase {
            Phase::Running => {
                self.say(&signals::passed_on(signal));
                self.end(code, signals::named(signal));
            }
            Phase::Ending { .. } => self.kill_all(),
            Phase::Closing { .. } | Phase::Flushing | Phase::Over => {
                self.code = code;
                self.phase = Phase::Over;
            }
        }
    }

    fn on_hosts(&mut self, found: Found) -> Result<(), LaunchError> {
        if self.phase != Phase::Running {
            return Ok(()); // an event before has ended the job
        }
        match found {
            Ok(hosts) => {
                let hosts = hosts.with_slots_max(MAX_RANKS);
                self.problem = None;
                self.hosts = hosts.clone();
                let actions = self.membership.hosts(self.now(), hosts);
                self.carry_out(actions)?;
            }
            // The hosts stay as they were.
            Err(problem) => {
                if self.problem.as_ref() != Some(&problem) {
                    self.say(&problem);
                    self.problem = Some(problem);
                }
            }
        }
        Ok(())
    }

    fn on_news(&mut self, news: Vec<News>) -> Result<(), LaunchError> {
        for news in news {
            let now = self.now();
            let mut hint = None;
            let actions = match news {
                News::Say(text) => {
                    self.say(&text);
                    continue;
                }
                News::Cleared(_) => continue,
                _ if self.phase != Phase::Running => continue,
                News::Asks(member, why) => self.membership.ready(now, member, why),
                News::Silent(member) => self.membership.silent(now, member),
                News::NotStarted(member, reason) => {
                    self.note_failure(member, EXIT_NOT_STARTED);
                    let exit = ronde_elastic::Exit::Failure(reason);
                    self.membership.exited(now, member, exit)
                }
                News::Ended(member, exit) => {
                    if self.membership.is_live(member) {
                        hint = lack_of_memory(exit, "it");
                    }
                    let exit = match exit.code() {
                        0 => ronde_elastic::Exit::Success,
                        code => {
                            self.note_failure(member, code);
                            ronde_elastic::Exit::Failure(exit.to_string())
                        }
                    };
                    self.membership.exited(now, member, exit)
                }
            };
            self.carry_out(actions)?;
            if let Some(hint) = hint {
                self.say(&hint);
            }
        }
        Ok(())
    }

    /// Notes the exit code of a process, unless the launcher itself has ended it.
    fn note_failure(&mut self, member: MemberId, code: u8) {
        if self.membership.is_live(member) {
            self.failed = Some(code);
        }
    }

    /// A host is lost, or its agent has ended when it had nothing to do.
    fn on_lost(&mut self, id: u64, reason: &str) -> Result<(), LaunchError> {
        let Some(remote) = self.remotes.remove(&id) else {
            return Ok(());
        };
        if self.phase != Phase::Running || !remote.has_running() {
            return Ok(());
        }
        let host = remote.name().to_owned();
        drop(remote); // ends its connection
        let actions = self.membership.host_lost(self.now(), &host, reason);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), LaunchError> {
        let server = self.server(&actions);
        let mut news = Vec::new();
        for action in actions {
            match action {
                Action::Start { member, host } => news.extend(self.start(member, &host)?),
                Action::Seat { member, seat } => {
                    if seat.rank == 0 && seat.generation > 1 {
                        self.say_reset(&seat);
                    }
                    match self.remote_of(member) {
                        Some(remote) => remote.renumber(member, seat.rank),
                        None => self.here.renumber(member, seat.rank),
                    }
                    let server = server.clone();
                    self.tell(member, Reply::Seat { seat, server });
                }
                Action::Updated {
                    member,
                    added,
                    removed,
                } => self.tell(member, Reply::Updated { added, removed }),
                Action::Over { member, generation } => self.tell(member, Reply::Over(generation)),
                Action::Leave { member } => self.tell(member, Reply::Leave),
                Action::Kill { member } => match self.remote_of(member) {
                    Some(remote) => remote.order(&Order::Kill(member)),
                    None => self.here.kill(member),
                },
                Action::Say(text) => self.say(&text),
                Action::End(Outcome::Success) => self.end(0, Signal::TERM),
                Action::End(Outcome::Failure(text)) => {
                    self.say(&text);
                    self.end(self.failed.unwrap_or(EXIT_FAILURE), Signal::TERM);
                }
            }
        }
        self.on_news(news)?;
        while let Some((host, reason)) = self.unreachable.pop_first() {
            let actions = self.membership.host_lost(self.now(), &host, &reason);
            self.carry_out(actions)?;
        }
        Ok(())
    }

    /// Starts a process, and the agent of its host if there is none.
    ///
    /// # Errors
    /// Before the training has begun: a process of this machine cannot be started, or an output file
    /// cannot be created.
    fn start(&mut self, member: MemberId, host: &str) -> Result<Option<News>, LaunchError> {
        let slots = self.hosts.slots(host).min(self.most);
        if self.spec.verbose {
            self.say(&format!("started process {} on host {host}", member.0));
        }
        let started = match is_this_machine(host) {
            true => {
                let number = member.0 as usize - 1; // from 1
                let sink = |target| Sink::new(self.spec, number + 1, number, target);
                self.here.start(member, host, slots, number == 0, sink)
            }
            false => self.start_remote(member, host, slots),
        };
        // Ranks that train go on without it.
        match started {
            Err(error) if self.membership.generation() > 0 => {
                Ok(Some(News::not_started(member, &error)))
            }
            started => started,
        }
    }

    /// Starts a process on another host.
    ///
    /// # Errors
    /// An output file cannot be created.
    fn start_remote(
        &mut self,
        member: MemberId,
        host: &str,
        slots: usize,
    ) -> Result<Option<News>, LaunchError> {
        let is_meant = |remote: &&mut Remote| remote.name() == host && !remote.is_closed();
        if let Some(remote) = self.remotes.values_mut().find(is_meant) {
            remote.start_process(self.spec, member, slots)?;
            return Ok(None);
        }
        if self.unreachable.contains_key(host) {
            return Ok(None);
        }
        let mut remote = match Remote::start(host, &self.reach) {
            Ok((remote, command)) => {
                if self.spec.verbose {
                    self.say(&format!("{host}: {}", quoted(&command)));
                }
                remote
            }
            Err(error) => {
                let reason = error.to_string();
                self.unreachable.insert(host.to_owned(), reason);
                return Ok(None);
            }
        };
        let started = remote.start_process(self.spec, member, slots);
        self.remotes_started += 1;
        self.remotes.insert(self.remotes_started, remote);
        started.map(|()| None)
    }

    /// Address at which the rank 0 of a new generation listens, if the actions form one.
    fn server(&self, actions: &[Action]) -> Option<String> {
        let seats = actions.iter().filter_map(|action| match action {
            Action::Seat { member, seat } => Some((*member, seat)),
            _ => None,
        });
        let (first, seat) = seats.clone().find(|(_, seat)| seat.rank == 0)?;
        let remote = |member| self.remotes.values().find(|remote| remote.has(member));
        if let Some(remote) = remote(first) {
            let (ip, name, port) = remote.server(seat.generation)?;
            return Some(address(ip, name, port));
        }
        let port = self.listening.port(seat.generation);
        let others: Vec<&Remote> = seats.filter_map(|(member, _)| remote(member)).collect();
        let towards = || others.iter().find_map(|remote| remote.here());
        let ip = match self.listening.address {
            None if others.is_empty() => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            None => towards(),
            address => address,
        };
        // Names that only ssh knows tell no address.
        let name = rustix::system::uname();
        Some(address(ip, &name.nodename().to_string_lossy(), port))
    }

    fn remote_of(&mut self, member: MemberId) -> Option<&mut Remote> {
        let mut remotes = self.remotes.values_mut();
        remotes.find(|remote| remote.has(member))
    }

    fn tell(&mut self, member: MemberId, reply: Reply) {
        match self.remote_of(member) {
            Some(remote) => remote.order(&Order::Tell(member, reply)),
            None => self.here.tell(member, &reply),
        }
    }

    fn say_reset(&mut self, seat: &Seat) {
        let ranks = seat.ranks_per_host.iter().sum::<usize>();
        let hosts = seat.ranks_per_host.len();
        self.say(&format!(
            "reset {}: {} on {}",
            seat.generation - 1,
            counted(ranks as u64, "rank"),
            counted(hosts as u64, "host")
        ));
    }

    /// Ends the job, once.
    fn end(&mut self, code: u8, signal: Signal) {
        if self.phase == Phase::Running {
            self.code = code;
            self.phase = Phase::Ending {
                kill_at: Instant::now() + GRACE,
            };
            self.signal_all(signal);
        }
    }

    fn signal_all(&mut self, signal: Signal) {
        self.here.signal(signal);
        for remote in self.remotes.values_mut() {
            remote.signal(signal);
        }
    }

    fn kill_all(&mut self) {
        self.signal_all(Signal::KILL);
    }

    fn advance(&mut self, now: Instant) -> Result<(), LaunchError> {
        let news = self.here.advance(now, &mut self.queue);
        self.on_news(news)?;
        self.watch_hosts(now)?;
        if self.phase == Phase::Running {
            let actions = self.membership.tick(self.now());
            self.carry_out(actions)?;
        }
        let is_empty = self.here.is_empty() && self.remotes.values().all(Remote::is_empty);
        match self.phase {
            Phase::Ending { .. } if is_empty => self.close(now),
            Phase::Ending { kill_at } if now >= kill_at => {
                self.say("some ranks have not ended; killing them");
                self.kill_all();
                self.close(now);
            }
            Phase::Closing { until } if (is_empty && self.remotes.is_empty()) || now >= until => {
                self.remotes.clear();
                self.phase = Phase::Flushing;
            }
            _ => {}
        }
        if self.phase == Phase::Flushing && self.queue.target().is_none() {
            self.phase = Phase::Over;
        }
        Ok(())
    }

    /// Waits for the end of the agents.
    fn close(&mut self, now: Instant) {
        self.phase = Phase::Closing {
            until: now + GRACE_KILLED,
        };
        for remote in self.remotes.values_mut() {
            remote.close();
        }
    }

    /// Looks for hosts that are silent, late or not needed any more, and tells the others that this
    /// process lives.
    fn watch_hosts(&mut self, now: Instant) -> Result<(), LaunchError> {
        let reads_output = !self.queue.is_full();
        let mut lost = Vec::new();
        for (&id, remote) in &mut self.remotes {
            if let Some(reason) = remote.late(now, reads_output) {
                lost.push((id, reason));
            } else if remote.is_empty() && self.hosts.slots(remote.name()) == 0 {
                remote.close();
            }
        }
        for (id, reason) in lost {
            self.on_lost(id, &reason)?;
        }
        if now >= self.alive_at {
            self.alive_at = now + ALIVE_INTERVAL;
            for remote in self.remotes.values_mut() {
                remote.order(&Order::Alive);
            }
        }
        Ok(())
    }

    /// Time since the start of the job.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn say(&mut self, message: &str) {
        let line = format!("{}: {message}", self.spec.label);
        self.queue.push(Target::Stderr, line.as_bytes());
    }
}
