//! Another host of an elastic job, as the launcher sees it: its agent, and the processes there.

use super::super::output::{Queue, Target};
use super::super::process::Exit;
use super::super::sink::Sink;
use super::super::ssh::command::{SshOptions, agent_line};
use super::super::ssh::failure;
use super::super::ssh::host::{Host, Source, State};
use super::super::ssh::plan::HostPlan;
use super::super::ssh::server;
use super::super::wait::Waiting;
use super::super::{LaunchError, LaunchSpec};
use super::processes::News;
use super::wire::{Listening, Order, Report, Task};
use ronde_elastic::MemberId;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time without a line of an agent after which its host is lost. It sends one each second.
const SILENCE: Duration = Duration::from_secs(6);

/// How agents are started.
pub(super) struct Reach {
    pub(super) ssh: SshOptions,
    /// Task of all agents, but for the name of the host.
    pub(super) task: Task,
}

/// Event of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Exit,
    Line(Source),
    Input,
}

/// Host with an agent.
pub(super) struct Remote {
    agent: Host,
    timeout: Duration,
    /// Time by which it must be ready.
    ready_by: Instant,
    /// Time of its last line.
    heard: Instant,
    listening: Option<Listening>,
    /// Address of this machine from which the host can be reached. A thread sets it, as a resolver
    /// may take seconds.
    here: Arc<OnceLock<IpAddr>>,
    members: BTreeMap<MemberId, Member>,
    is_closed: bool,
}

struct Member {
    /// Destinations of standard output and error.
    sinks: [Sink; 2],
    has_ended: bool,
}

impl Remote {
    /// Starts the agent of `host`; returns the command line too.
    ///
    /// # Errors
    /// `ssh` or a thread cannot be started.
    pub(super) fn start(host: &str, reach: &Reach) -> Result<(Self, Vec<OsString>), LaunchError> {
        let mut task = reach.task.clone();
        host.clone_into(&mut task.host);
        let mut line = serde_json::to_vec(&task).map_err(|error| LaunchError::System {
            action: "describe the job to a host",
            source: error.into(),
        })?;
        line.push(b'\n');
        let plan = HostPlan::without_ranks(host);
        let command = agent_line(&plan, &reach.ssh);
        let here = Arc::<OnceLock<IpAddr>>::default();
        let (address, found) = (plan.address().to_owned(), Arc::clone(&here));
        let look_up = move || {
            if let Some(address) = server::towards(&address) {
                found.get_or_init(|| address);
            }
        };
        let thread = std::thread::Builder::new().name("ronde-resolver".into());
        let started = thread.spawn(look_up);
        started.map_err(|source| LaunchError::System {
            action: "look up the address of a host",
            source,
        })?;
        let now = Instant::now();
        let remote = Self {
            agent: Host::start(plan, &command, line)?,
            timeout: reach.ssh.timeout,
            ready_by: now + reach.ssh.timeout,
            heard: now,
            listening: None,
            here,
            members: BTreeMap::new(),
            is_closed: false,
        };
        Ok((remote, command))
    }

    pub(super) fn name(&self) -> &str {
        &self.agent.plan.name
    }

    /// Address of this machine from which the host can be reached, if it is known.
    pub(super) fn here(&self) -> Option<IpAddr> {
        self.here.get().copied()
    }

    /// Address and port at which the rank 0 of a generation listens there, once the host is ready.
    pub(super) fn server(&self, generation: u64) -> Option<(Option<IpAddr>, &str, u16)> {
        let listening = self.listening.as_ref()?;
        let port = listening.port(generation);
        Some((listening.address, self.agent.plan.address(), port))
    }

    /// Starts a process; the host has `slots` slots.
    ///
    /// # Errors
    /// An output file cannot be created.
    pub(super) fn start_process(
        &mut self,
        spec: &LaunchSpec,
        member: MemberId,
        slots: usize,
    ) -> Result<(), LaunchError> {
        let number = member.0 as usize - 1; // from 1
        let sink = |target| Sink::new(spec, number + 1, number, target);
        let member_state = Member {
            sinks: [sink(Target::Stdout)?, sink(Target::Stderr)?],
            has_ended: false,
        };
        self.members.insert(member, member_state);
        self.order(&Order::Start(member, slots));
        Ok(())
    }

    pub(super) fn renumber(&mut self, member: MemberId, rank: usize) {
        if let Some(state) = self.members.get_mut(&member) {
            state.sinks.iter_mut().for_each(|sink| sink.renumber(rank));
        }
    }

    pub(super) fn order(&mut self, order: &Order) {
        self.agent.send(&order.to_string());
    }

    pub(super) fn has(&self, member: MemberId) -> bool {
        self.members.contains_key(&member)
    }

    /// Whether no process, and no output of one, is left.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a process has not ended.
    pub(super) fn has_running(&self) -> bool {
        self.members.values().any(|member| !member.has_ended)
    }

    /// Whether it gets no orders any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends the agent, which has no processes.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.agent.close();
    }

    /// Adds the descriptors to poll; lines are read with `reads_output`.
    pub(super) fn wait<'w, E>(
        &'w self,
        waiting: &mut Waiting<'w, E>,
        reads_output: bool,
        event: impl Fn(Event) -> E,
    ) {
        if self.agent.agent.exit.is_none() {
            waiting.readable(self.agent.agent.descriptor(), event(Event::Exit));
        }
        let pipes = [
            (Source::Output, &self.agent.output),
            (Source::Errors, &self.agent.errors),
        ];
        for (source, pipe) in pipes {
            if let Some(pipe) = pipe.pipe().filter(|_| reads_output) {
                waiting.readable(pipe, event(Event::Line(source)));
            }
        }
        if let Some(input) = self.agent.writable() {
            waiting.writable(input, event(Event::Input));
        }
    }

    /// Acts on an event that has occurred; output of the processes goes to `queue`.
    ///
    /// # Errors
    /// The host is lost, for this reason.
    pub(super) fn react(
        &mut self,
        event: Event,
        queue: &mut Queue,
    ) -> (Vec<News>, Result<(), String>) {
        let mut news = Vec::new();
        let outcome = match event {
            Event::Input => {
                self.agent.write();
                Ok(())
            }
            Event::Line(source) => {
                let lines = self.agent.read(source);
                self.on_lines(source, &lines, queue, &mut news)
            }
            Event::Exit => match self.agent.agent.check() {
                None => Ok(()),
                Some(exit) => self.on_exit(exit, queue, &mut news),
            },
        };
        (news, outcome)
    }

    fn on_exit(
        &mut self,
        exit: Exit,
        queue: &mut Queue,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        for source in [Source::Errors, Source::Output] {
            let lines = self.agent.rest(source);
            self.on_lines(source, &lines, queue, news)?;
        }
        Err(match self.agent.state {
            State::Connecting => failure::not_started(&self.agent.plan, exit, &self.agent.said),
            _ => failure::lost(&self.agent.plan, exit),
        })
    }

    fn on_lines(
        &mut self,
        source: Source,
        lines: &[Vec<u8>],
        queue: &mut Queue,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        self.heard = Instant::now();
        for line in lines {
            let is_connected = self.agent.state != State::Connecting;
            match source {
                Source::Output if is_connected => self.on_report(line, queue, news)?,
                Source::Output => self.on_greeting(line, news)?,
                Source::Errors if is_connected => {
                    let line = String::from_utf8_lossy(line);
                    news.push(News::Say(format!("{}: {line}", self.name())));
                }
                Source::Errors => self.agent.note(line),
            }
        }
        Ok(())
    }

    fn on_greeting(&mut self, line: &[u8], news: &mut Vec<News>) -> Result<(), String> {
        let Some(version) = self.agent.greeting(line) else {
            return Ok(());
        };
        if version != env!("CARGO_PKG_VERSION") {
            return Err(failure::other_version(&self.agent.plan, &version));
        }
        self.agent.state = State::Connected;
        for line in std::mem::take(&mut self.agent.said) {
            news.push(News::Say(format!("{}: {line}", self.name())));
        }
        Ok(())
    }

    fn on_report(
        &mut self,
        line: &[u8],
        queue: &mut Queue,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let invalid = || failure::invalid(&self.agent.plan, line);
        let report = Report::parse(line).ok_or_else(invalid)?;
        let member = match &report {
            Report::NotStarted(member, _)
            | Report::Asks(member, _)
            | Report::Silent(member)
            | Report::Ended(member, _)
            | Report::Cleared(member)
            | Report::Output(member, ..) => *member,
            Report::Alive => return Ok(()),
            Report::Message(text) => {
                news.push(News::Say(format!("{}: {text}", self.name())));
                return Ok(());
            }
            Report::Failed(text) => return Err(format!("{}: {text}", self.name())),
            Report::Ready(listening) if self.agent.state == State::Connected => {
                self.agent.state = State::Ready;
                self.listening = Some(listening.clone());
                return Ok(());
            }
            Report::Ready(_) => return Err(invalid()),
        };
        let Some(state) = self.members.get_mut(&member) else {
            return Err(invalid());
        };
        match report {
            Report::Output(_, target, line) => {
                let sink = match target {
                    Target::Stdout => &mut state.sinks[0],
                    Target::Stderr => &mut state.sinks[1],
                };
                sink.emit(&line, queue);
            }
            Report::Cleared(_) if state.has_ended => drop(self.members.remove(&member)),
            _ if state.has_ended => return Err(invalid()),
            Report::Asks(_, why) => news.push(News::Asks(member, why)),
            Report::Silent(_) => news.push(News::Silent(member)),
            Report::Ended(_, exit) => {
                state.has_ended = true;
                news.push(News::Ended(member, exit));
            }
            Report::NotStarted(_, reason) => {
                self.members.remove(&member);
                news.push(News::NotStarted(member, reason));
            }
            _ => return Err(invalid()),
        }
        Ok(())
    }

    /// Why the host is lost by now, if it is. `reads_output`: whether its lines were read.
    pub(super) fn late(&mut self, now: Instant, reads_output: bool) -> Option<String> {
        if !reads_output {
            self.heard = now;
        }
        if !matches!(self.agent.state, State::Ready) {
            let seconds = self.timeout.as_secs();
            let is_late = now >= self.ready_by;
            let host = (&self.agent.plan, &self.agent.said[..]);
            return is_late.then(|| failure::late(&[host], seconds));
        }
        let is_silent = now >= self.heard + SILENCE;
        is_silent.then(|| {
            let (name, seconds) = (self.name(), SILENCE.as_secs());
            format!("{name} has not answered for {seconds} s; check the network to it")
        })
    }

    /// Signals all its processes.
    pub(super) fn signal(&mut self, signal: Signal) {
        self.order(&Order::Signal(signal.as_raw()));
    }
}
