//! State machine of an elastic job on this machine: one loop waits for events and carries out what
//! the membership decides.

use super::super::guard::Guard;
use super::super::output::{EXIT_PIPE, Queue, Target};
use super::super::process::Exit;
use super::super::rank::Rank;
use super::super::signals::{self, Signals};
use super::super::sink::Sink;
use super::super::wait::Waiting;
use super::super::{LaunchError, LaunchSpec};
use super::discovery::{Discovery, Found};
use super::link::Links;
use super::{Elastic, check_hosts};
use ronde::internal::identity::random_job_key;
use ronde_elastic::wire::{Reply, Request};
use ronde_elastic::{Action, MemberId, Membership, Outcome};
use ronde_job::units::counted;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL at the end of the job.
const GRACE: Duration = Duration::from_secs(4);

/// Time for the last output of processes that a rank left behind.
const DRAIN: Duration = Duration::from_millis(500);

/// Longest time between two looks at the clock of the membership.
const TICK: Duration = Duration::from_millis(500);

/// Exit code after a failure that is not a rank's.
const EXIT_FAILURE: u8 = 1;

/// Runs the job to its end, and returns its exit code.
pub(super) fn run(spec: &LaunchSpec, elastic: Elastic) -> Result<u8, LaunchError> {
    let signals = Signals::register()?;
    let mut job = Job::new(spec, elastic)?;
    while job.phase != Phase::Over {
        let events = job.wait(&signals)?;
        job.react(events, &signals)?;
        job.advance(Instant::now())?;
    }
    Ok(job.code)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ending { kill_at: Instant },
    Flushing,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Hosts,
    Message,
    Exit(MemberId),
    Output(MemberId, usize),
    Writable,
}

/// Process of the job.
struct Member {
    rank: Rank,
    /// Time until which the output of what it left behind is awaited, after its own end.
    ended: Option<Instant>,
}

struct Job<'a> {
    spec: &'a LaunchSpec,
    membership: Membership,
    began: Instant,
    discovery: Discovery,
    /// Last problem of the discovery, which is reported once.
    problem: Option<String>,
    links: Links,
    job_id: String,
    members: BTreeMap<MemberId, Member>,
    guard: Option<Guard>,
    queue: Queue,
    phase: Phase,
    code: u8,
    /// Exit code of the last process that failed.
    failed: Option<u8>,
}

impl<'a> Job<'a> {
    fn new(spec: &'a LaunchSpec, elastic: Elastic) -> Result<Self, LaunchError> {
        let links = Links::new()?;
        let mut job = Self {
            spec,
            membership: Membership::new(elastic.limits),
            began: Instant::now(),
            discovery: Discovery::start(elastic.source)?,
            problem: None,
            links,
            job_id: random_job_key().map_err(LaunchError::system("draw a name for the job"))?,
            members: BTreeMap::new(),
            guard: Guard::of_job(spec)?,
            queue: Queue::default(),
            phase: Phase::Running,
            code: 0,
            failed: None,
        };
        if let Some(guard) = &mut job.guard {
            guard
                .remove_later(job.links.folder())
                .map_err(LaunchError::guard)?;
        }
        Ok(job)
    }

    fn wait(&self, signals: &Signals) -> Result<Vec<Event>, LaunchError> {
        let outputs = (std::io::stdout(), std::io::stderr());
        let mut waiting = Waiting::new();
        for descriptor in signals.descriptors() {
            waiting.readable(descriptor, Event::Signal);
        }
        if self.phase == Phase::Running {
            waiting.readable(self.discovery.descriptor(), Event::Hosts);
            for descriptor in self.links.descriptors() {
                waiting.readable(descriptor, Event::Message);
            }
        }
        for (&member, state) in &self.members {
            if state.rank.process.exit.is_none() {
                waiting.readable(state.rank.process.descriptor(), Event::Exit(member));
            }
            for (stream, state) in state.rank.streams.iter().enumerate() {
                if let Some(pipe) = state.pipe().filter(|_| !self.queue.is_full()) {
                    waiting.readable(pipe, Event::Output(member, stream));
                }
            }
        }
        self.queue.wait(&mut waiting, &outputs, Event::Writable);
        let ended = self.members.values().filter_map(|member| member.ended);
        let tick = match self.phase {
            Phase::Running => Some(Instant::now() + TICK),
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Flushing | Phase::Over => None,
        };
        waiting.wait(ended.chain(tick).min())
    }

    fn react(&mut self, events: Vec<Event>, signals: &Signals) -> Result<(), LaunchError> {
        let now = self.now();
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
                Event::Message => {
                    for (member, request) in self.links.read(Instant::now()) {
                        if let Request::Ready(why) = request {
                            let actions = self.membership.ready(now, member, why);
                            self.carry_out(actions)?;
                        }
                    }
                }
                Event::Exit(member) => self.on_exit(member)?,
                Event::Output(member, stream) => {
                    if let Some(state) = self.members.get_mut(&member) {
                        state.rank.streams[stream].read(&mut self.queue);
                    }
                }
                Event::Writable => {
                    if self.queue.write() == Some(Target::Stdout) {
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
            Phase::Flushing | Phase::Over => {
                self.code = code;
                self.phase = Phase::Over;
            }
        }
    }

    fn on_hosts(&mut self, found: Found) -> Result<(), LaunchError> {
        let found = found.and_then(|hosts| {
            let checked = check_hosts(hosts.iter().map(|(host, _)| host));
            checked.map(|()| hosts).map_err(|error| error.to_string())
        });
        match found {
            Ok(hosts) => {
                self.problem = None;
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

    fn on_exit(&mut self, member: MemberId) -> Result<(), LaunchError> {
        let Some(state) = self.members.get_mut(&member) else {
            return Ok(());
        };
        let Some(exit) = state.rank.process.check() else {
            return Ok(());
        };
        state.rank.drain(&mut self.queue); // before our messages
        state.ended = Some(Instant::now() + DRAIN);
        self.links.close(member);
        if self.phase != Phase::Running {
            return Ok(());
        }
        let exit = match exit.code() {
            0 => ronde_elastic::Exit::Success,
            code => {
                self.failed = Some(code);
                ronde_elastic::Exit::Failure(exit.to_string())
            }
        };
        let actions = self.membership.exited(self.now(), member, exit);
        self.carry_out(actions)
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), LaunchError> {
        for action in actions {
            match action {
                Action::Start { member, host } => self.start(member, &host)?,
                Action::Seat { member, seat } => {
                    if seat.rank == 0 && seat.generation > 1 {
                        let (ranks, hosts) = (
                            seat.ranks_per_host.iter().sum::<usize>(),
                            seat.ranks_per_host.len(),
                        );
                        let reset = seat.generation - 1;
                        self.say(&format!(
                            "reset {reset}: {} on {}",
                            counted(ranks as u64, "rank"),
                            counted(hosts as u64, "host")
                        ));
                    }
                    if let Some(state) = self.members.get_mut(&member) {
                        state.rank.renumber(seat.rank);
                    }
                    self.links.send(member, &Reply::Seat(seat));
                }
                Action::Updated {
                    member,
                    added,
                    removed,
                } => {
                    self.links.send(member, &Reply::Updated { added, removed });
                }
                Action::Over { member, generation } => {
                    self.links.send(member, &Reply::Over(generation));
                }
                Action::Leave { member } => self.links.send(member, &Reply::Leave),
                Action::Kill { member } => {
                    if let Some(state) = self.members.get(&member) {
                        state.rank.process.signal(Signal::KILL);
                    }
                }
                Action::Say(text) => self.say(&text),
                Action::End(Outcome::Success) => self.end(0, Signal::TERM),
                Action::End(Outcome::Failure(text)) => {
                    self.say(&text);
                    self.end(self.failed.unwrap_or(EXIT_FAILURE), Signal::TERM);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, member: MemberId, host: &str) -> Result<(), LaunchError> {
        let number = member.0 as usize - 1; // from 1
        let variables = [
            (
                "RONDE_ELASTIC_SOCKET",
                self.links.path().display().to_string(),
            ),
            ("RONDE_ELASTIC_MEMBER", member.0.to_string()),
            ("RONDE_JOB_ID", self.job_id.clone()),
            ("HOROVOD_ELASTIC", "1".to_owned()),
            ("HOROVOD_HOSTNAME", host.to_owned()),
        ];
        let sink = |target| Sink::new(self.spec, number + 1, number, target);
        let rank = Rank::with_variables(self.spec, number, variables, number == 0, sink)?;
        let group = rank.process.group();
        self.members.insert(member, Member { rank, ended: None });
        if let Some(guard) = &mut self.guard {
            guard.watch(group).map_err(LaunchError::guard)?;
        }
        if self.spec.verbose {
            self.say(&format!("started process {} on host {host}", member.0));
        }
        Ok(())
    }

    /// Ends the job, once.
    fn end(&mut self, code: u8, signal: Signal) {
        if self.phase == Phase::Running {
            self.code = code;
            self.phase = Phase::Ending {
                kill_at: Instant::now() + GRACE,
            };
            for member in self.members.values() {
                member.rank.process.signal(signal);
            }
        }
    }

    fn kill_all(&mut self) {
        for member in self.members.values() {
            member.rank.process.signal(Signal::KILL);
        }
    }

    fn advance(&mut self, now: Instant) -> Result<(), LaunchError> {
        if self.phase == Phase::Running {
            for member in self.links.silent(now) {
                let actions = self.membership.silent(self.now(), member);
                self.carry_out(actions)?;
            }
            let actions = self.membership.tick(self.now());
            self.carry_out(actions)?;
        }
        self.clear_ended(now);
        match self.phase {
            Phase::Ending { .. } if self.members.is_empty() => self.phase = Phase::Flushing,
            Phase::Ending { kill_at } if now >= kill_at => {
                self.say("some ranks have not ended; killing them");
                self.kill_all();
                self.phase = Phase::Ending {
                    kill_at: now + GRACE,
                };
            }
            _ => {}
        }
        if self.phase == Phase::Flushing && self.queue.target().is_none() {
            self.phase = Phase::Over;
        }
        Ok(())
    }

    /// Removes processes that have ended, with what they left behind.
    fn clear_ended(&mut self, now: Instant) {
        let queue = &mut self.queue;
        self.members.retain(|_, member| {
            let is_silent = member
                .rank
                .streams
                .iter()
                .all(|stream| stream.pipe().is_none());
            let is_over = member.ended.is_some_and(|until| is_silent || now >= until);
            if is_over {
                member.rank.process.signal(Signal::KILL);
                member.rank.drain(queue);
                member
                    .rank
                    .streams
                    .iter_mut()
                    .for_each(|stream| stream.finish(queue));
                member.rank.process.reap();
            }
            !is_over
        });
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

impl Drop for Job<'_> {
    /// Kills all processes that are left, whatever the reason of the end.
    fn drop(&mut self) {
        self.kill_all();
        for member in self.members.values_mut() {
            member.rank.process.reap();
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}
