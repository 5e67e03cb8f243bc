//! State machine of a job on several hosts: one loop waits for events of the hosts' agents and acts
//! on them.
//!
//! ```text
//!           all agents        an agent reports a failure, or ends;        all agents
//!           are ready         a signal; standard output closes            have ended
//! Starting ───────────► Running ───────────────────────────────► Ending ─────────────► Flushing ─► over
//! ```
//!
//! No rank is started unless all hosts can start theirs. At the end each agent ends its own ranks
//! (`super::super::job`); this process ends the connections that are left after that.

use super::super::output::{EXIT_PIPE, Queue, Target};
use super::super::process::Exit;
use super::super::signals::{self, Signals};
use super::super::sink::Sink;
use super::super::wait::Waiting;
use super::super::{LaunchError, LaunchSpec};
use super::failure;
use super::host::{Host, Source, State};
use super::wire::{Order, Report};
use rustix::process::Signal;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Time between a signal to the agents and the end of their connections: an agent needs 5 s for
/// ranks that do not end, and a little more.
const GRACE: Duration = Duration::from_secs(8);

/// Time for the agents after they were told to kill their ranks, or have reported their end.
const GRACE_KILLED: Duration = Duration::from_secs(2);

/// Time after a rank's exit with an error in which a rank that was killed by a signal, on another
/// host, replaces it as the cause.
const CAUSE_PATIENCE: Duration = Duration::from_millis(250);

/// Exit code after a failure that is not a rank's.
const EXIT_FAILURE: u8 = 1;

/// Exit codes of signals. A program's own may be above, such as 255 for `exit(-1)`.
const EXIT_SIGNALS: RangeInclusive<u8> = 129..=192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting { until: Instant },
    Running,
    Ending { kill_at: Instant },
    Flushing,
    Over,
}

/// Event that the loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Exit { host: usize },
    Line { host: usize, source: Source },
    Input { host: usize },
    Writable,
}

/// Job whose agents have been started.
pub(super) struct Job<'a> {
    spec: &'a LaunchSpec,
    hosts: Vec<Host>,
    /// Destinations of each rank's standard output and error.
    sinks: Vec<[Sink; 2]>,
    queue: Queue,
    phase: Phase,
    timeout: Duration,
    server: String,
    code: u8,
    /// First failure, and the time until which another cause is considered.
    failed: Option<(u8, String, Instant)>,
}

impl<'a> Job<'a> {
    /// Job of `hosts`, which must be ready within `timeout`.
    ///
    /// # Errors
    /// A file for the ranks' output cannot be created.
    pub(super) fn new(
        spec: &'a LaunchSpec,
        hosts: Vec<Host>,
        timeout: Duration,
    ) -> Result<Self, LaunchError> {
        let sink = |rank, target| Sink::new(spec, spec.num_proc, rank, target);
        let sinks = (0..spec.num_proc)
            .map(|rank| Ok([sink(rank, Target::Stdout)?, sink(rank, Target::Stderr)?]));
        Ok(Self {
            spec,
            sinks: sinks.collect::<Result<_, LaunchError>>()?,
            hosts,
            queue: Queue::default(),
            phase: Phase::Starting {
                until: Instant::now() + timeout,
            },
            timeout,
            server: String::new(),
            code: 0,
            failed: None,
        })
    }

    /// Supervises the job to its end, and returns its exit code.
    pub(super) fn run(mut self) -> Result<u8, LaunchError> {
        let signals = Signals::register()?;
        while self.phase != Phase::Over {
            for event in self.wait(&signals)? {
                self.react(event, &signals);
            }
            self.advance(Instant::now());
        }
        Ok(self.code)
    }

    fn wait(&self, signals: &Signals) -> Result<Vec<Event>, LaunchError> {
        let outputs = (std::io::stdout(), std::io::stderr());
        let mut waiting = Waiting::new();
        for descriptor in signals.descriptors() {
            waiting.readable(descriptor, Event::Signal);
        }
        for (host, state) in self.hosts.iter().enumerate() {
            if state.agent.exit.is_none() {
                waiting.readable(state.agent.descriptor(), Event::Exit { host });
            }
            let pipes = [
                (Source::Output, &state.output),
                (Source::Errors, &state.errors),
            ];
            for (source, pipe) in pipes {
                if let Some(pipe) = pipe.pipe().filter(|_| !self.queue.is_full()) {
                    waiting.readable(pipe, Event::Line { host, source });
                }
            }
            if let Some(input) = state.writable() {
                waiting.writable(input, Event::Input { host });
            }
        }
        self.queue.wait(&mut waiting, &outputs, Event::Writable);
        waiting.wait(self.deadline())
    }

    fn deadline(&self) -> Option<Instant> {
        let failed = self.failed.as_ref().map(|(_, _, until)| *until);
        match self.phase {
            Phase::Starting { until } => Some(failed.map_or(until, |failed| failed.min(until))),
            Phase::Running => failed,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Flushing | Phase::Over => None,
        }
    }

    fn react(&mut self, event: Event, signals: &Signals) {
        match event {
            Event::Signal => signals
                .take()
                .into_iter()
                .for_each(|signal| self.on_signal(signal)),
            Event::Line { host, source } => {
                let lines = self.hosts[host].read(source);
                self.on_lines(host, source, &lines);
            }
            Event::Exit { host } => {
                if let Some(exit) = self.hosts[host].agent.check() {
                    for source in [Source::Errors, Source::Output] {
                        let lines = self.hosts[host].rest(source);
                        self.on_lines(host, source, &lines);
                    }
                    self.on_exit(host, exit);
                }
            }
            Event::Input { host } => self.hosts[host].write(),
            Event::Writable => {
                if self.queue.write_or_drop(&self.spec.label) {
                    self.end(EXIT_PIPE, Signal::TERM);
                }
            }
        }
    }

    fn on_signal(&mut self, signal: i32) {
        let code = Exit::Signal(signal).code();
        match self.phase {
            Phase::Starting { .. } | Phase::Running => {
                self.say(&signals::passed_on(signal));
                self.end(code, signals::named(signal));
            }
            Phase::Ending { .. } => {
                for host in &mut self.hosts {
                    host.send(&Order::Signal(Signal::KILL.as_raw()).to_string());
                }
                self.phase = Phase::Ending {
                    kill_at: Instant::now() + GRACE_KILLED,
                };
            }
            // The ranks have ended; a signal now means that the user does not want to wait for
            // output.
            Phase::Flushing | Phase::Over => {
                self.code = code;
                self.phase = Phase::Over;
            }
        }
    }

    fn on_lines(&mut self, host: usize, source: Source, lines: &[Vec<u8>]) {
        for line in lines {
            let is_connected = self.hosts[host].state != State::Connecting;
            match source {
                Source::Output if is_connected => self.on_report(host, line),
                Source::Output => self.on_greeting(host, line),
                Source::Errors if is_connected => {
                    let line = String::from_utf8_lossy(line);
                    self.say(&format!("{}: {line}", self.hosts[host].plan.name));
                }
                Source::Errors => self.hosts[host].note(line),
            }
        }
    }

    fn on_greeting(&mut self, index: usize, line: &[u8]) {
        let host = &mut self.hosts[index];
        let Some(version) = host.greeting(line) else {
            return;
        };
        if version != env!("CARGO_PKG_VERSION") {
            let text = failure::other_version(&host.plan, &version);
            return self.fail(EXIT_FAILURE, &text);
        }
        host.state = State::Connected;
        let name = host.plan.name.clone();
        for line in std::mem::take(&mut host.said) {
            self.say(&format!("{name}: {line}"));
        }
    }

    fn on_report(&mut self, index: usize, line: &[u8]) {
        let host = &mut self.hosts[index];
        let report = Report::parse(line, &host.plan.ranks);
        let is_first = index == 0;
        match (report, &host.state) {
            (Some(Report::Output(rank, target, line)), _) => {
                let sink = match target {
                    Target::Stdout => &mut self.sinks[rank][0],
                    Target::Stderr => &mut self.sinks[rank][1],
                };
                sink.emit(&line, &mut self.queue);
            }
            (Some(Report::Alive), _) => {}
            (Some(Report::Message(text)), _) => {
                let text = format!("{}: {text}", host.plan.name);
                self.say(&text);
            }
            // The server is on the first host.
            (Some(Report::Ready(server)), State::Connected) if is_first != server.is_empty() => {
                host.state = State::Ready;
                if is_first {
                    self.server = server;
                }
            }
            (Some(Report::Failed(code, cause)), _) if code != 0 => {
                let text = format!("{}: {cause}", host.plan.name);
                self.on_failure(code, text);
            }
            (Some(Report::Ended(code)), State::Connected | State::Ready) => {
                host.state = State::Ended(code);
                if code != 0 && self.failed.is_none() {
                    let text = format!("{}: ended with code {code}", host.plan.name);
                    self.on_failure(code, text);
                }
            }
            _ => {
                let text = failure::invalid(&host.plan, line);
                host.agent.signal(Signal::KILL); // it may not understand an order either
                self.fail(EXIT_FAILURE, &text);
            }
        }
    }

    /// Considers a failure as the cause of the job's end: one by a signal, or else the first.
    fn on_failure(&mut self, code: u8, text: String) {
        if !self.is_going() {
            return; // the ranks end because we signalled them
        }
        if EXIT_SIGNALS.contains(&code) {
            self.fail(code, &text);
        } else if self.failed.is_none() {
            self.failed = Some((code, text, Instant::now() + CAUSE_PATIENCE));
        }
    }

    fn on_exit(&mut self, index: usize, exit: Exit) {
        let host = &self.hosts[index];
        if !self.is_going() || matches!(host.state, State::Ended(_)) {
            return;
        }
        let text = match host.state {
            State::Connecting => failure::not_started(&host.plan, exit, &host.said),
            _ => failure::lost(&host.plan, exit),
        };
        self.fail(EXIT_FAILURE, &text);
    }

    /// Whether the job has neither failed nor ended.
    fn is_going(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. } | Phase::Running)
    }

    /// Ends the job because of a failure.
    fn fail(&mut self, code: u8, text: &str) {
        if self.is_going() {
            let rest = match self.phase {
                Phase::Running if self.spec.num_proc > 1 => "; ending the other ranks",
                _ => "",
            };
            self.say(&format!("{text}{rest}"));
            self.end(code, Signal::TERM);
        }
    }

    /// Has the agents signal their ranks, and start none; once.
    fn end(&mut self, code: u8, signal: Signal) {
        if !self.is_going() {
            if self.code == 0 {
                self.code = code;
            }
            return;
        }
        self.code = code;
        self.phase = Phase::Ending {
            kill_at: Instant::now() + GRACE,
        };
        for host in &mut self.hosts {
            match host.state {
                State::Connecting => host.agent.signal(Signal::KILL),
                _ => host.send(&Order::Signal(signal.as_raw()).to_string()),
            }
        }
    }

    /// Enters the next phase if its condition holds.
    fn advance(&mut self, now: Instant) {
        let is_ended = |host: &Host| matches!(host.state, State::Ended(_));
        if let Some((code, text, until)) = &self.failed
            && self.is_going()
            && (now >= *until || self.hosts.iter().all(is_ended))
        {
            let (code, text) = (*code, text.clone());
            self.fail(code, &text);
        }
        match self.phase {
            Phase::Starting { .. } if self.all(|host| host.state == State::Ready) => {
                let start = Order::Start(self.server.clone()).to_string();
                for host in &mut self.hosts {
                    host.send(&start);
                }
                self.phase = Phase::Running;
            }
            Phase::Starting { until } if now >= until => {
                let is_late = |host: &&Host| host.state != State::Ready;
                let late = self.hosts.iter().filter(is_late);
                let late: Vec<_> = late.map(|host| (&host.plan, &host.said[..])).collect();
                let text = failure::late(&late, self.timeout.as_secs());
                self.fail(EXIT_FAILURE, &text);
            }
            Phase::Running if self.all(is_ended) => {
                self.phase = Phase::Ending {
                    kill_at: now + GRACE_KILLED,
                };
                self.advance(now);
            }
            Phase::Ending { .. } if self.all(|host| host.agent.exit.is_some()) => {
                self.phase = Phase::Flushing;
                self.advance(now);
            }
            Phase::Ending { kill_at } if now >= kill_at => {
                for host in &self.hosts {
                    host.agent.signal(Signal::KILL);
                }
                self.phase = Phase::Ending {
                    kill_at: now + GRACE,
                };
            }
            Phase::Flushing if self.queue.target().is_none() => self.phase = Phase::Over,
            Phase::Starting { .. }
            | Phase::Running
            | Phase::Ending { .. }
            | Phase::Flushing
            | Phase::Over => {}
        }
    }

    fn all(&self, holds: impl Fn(&Host) -> bool) -> bool {
        self.hosts.iter().all(holds)
    }

    fn say(&mut self, message: &str) {
        let line = format!("{}: {message}", self.spec.label);
        self.queue.push(Target::Stderr, line.as_bytes());
    }
}
