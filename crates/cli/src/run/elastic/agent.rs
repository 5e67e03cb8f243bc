//! Agent: starts and ends the processes of an elastic job on one host, for the launcher on another.
//!
//! The launcher starts it through `ssh` as this program's hidden subcommand. It gets its task on
//! standard input, then orders, and reports on standard output (`wire`). It kills its processes
//! when its input ends, or nothing was heard from the launcher for [`SILENCE`]. If it is killed
//! itself, the guard process kills them, and removes the folder with the secret.

use super::super::output::{Queue, Target};
use super::super::signals::{self, Signals};
use super::super::sink::Sink;
use super::super::ssh::server::{self, InterfaceError};
use super::super::ssh::wire::{HELLO, Orders};
use super::super::wait::Waiting;
use super::super::{LaunchError, LaunchSpec, Output, threads};
use super::processes::{self, Facts, News, Processes};
use super::wire::{ALIVE_INTERVAL, Listening, Order, Report, Task};
use crate::program;
use ronde_elastic::MemberId;
use rustix::process::Signal;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Name of the hidden subcommand that runs the agent.
pub const ELASTIC_AGENT: &str = "__elastic_agent";

/// Time without a line of the launcher after which it has ended, or the network has failed. It is
/// longer than the launcher's own limit, so that a short pause of the launcher costs nothing.
const SILENCE: Duration = Duration::from_secs(10);

/// Time for the last reports.
const FLUSH: Duration = Duration::from_secs(1);

/// Reason why this host cannot be used.
#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error("the launcher's task cannot be read: {0}; install the same version on all hosts")]
    Task(#[from] serde_json::Error),
    #[error("the launcher has sent an invalid order; install the same version on all hosts")]
    Order,
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// Runs the agent.
pub fn elastic_agent_main() -> ExitCode {
    say(&format!("{HELLO}{}", env!("CARGO_PKG_VERSION")));
    let input = io::stdin();
    let mut orders = Orders::new(input.as_fd());
    let Some(task) = orders.line() else {
        return ExitCode::FAILURE; // the launcher has ended
    };
    let task = serde_json::from_slice(&task).map_err(AgentError::from);
    match task.and_then(|task| work(&task, orders)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&Report::Failed(error.to_string()).to_string());
            ExitCode::FAILURE
        }
    }
}

/// Carries out the launcher's orders until it ends.
fn work(task: &Task, orders: Orders<'_>) -> Result<(), AgentError> {
    let mut messages = Vec::new();
    if let Err(error) = std::env::set_current_dir(&task.folder) {
        let here = std::env::current_dir().unwrap_or_default();
        messages.push(format!(
            "the folder {} cannot be used here ({error}); the ranks start in {}",
            task.folder.display(),
            here.display()
        ));
    }
    let interface = task.interface.as_deref();
    let interface = interface.map(|name| server::of_interface(name, false));
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let address = interface
        .transpose()?
        .or_else(|| server::of_connection(&connection));
    let spec = LaunchSpec {
        label: "ronde run".into(),
        command: task.command.clone(),
        num_proc: 1,
        environment: task.environment.clone(),
        output: Output::Plain,
        output_dir: None,
        verbose: task.verbose,
        guard: program::again(),
    };
    let facts = Facts {
        job_id: &task.job_id,
        secret: &task.secret,
        limit_threads: task.limit_threads && std::env::var_os(threads::VARIABLE).is_none(),
    };
    let signals = Signals::register()?;
    let processes = Processes::new(&spec, &facts)?;
    let ports = processes.ports();
    let now = Instant::now();
    let mut agent = Agent {
        host: &task.host,
        orders,
        processes,
        queue: Queue::default(),
        heard: now,
        alive_at: now + ALIVE_INTERVAL,
        ends: false,
    };
    for message in messages {
        agent.report(&Report::Message(message));
    }
    agent.report(&Report::Ready(Listening { address, ports }));
    let outcome = loop {
        let events = agent.wait(&signals)?;
        let now = Instant::now(); // as in the launcher's loop
        if let Err(error) = agent.react(events, &signals) {
            break Err(error);
        }
        agent.advance(now);
        if agent.ends {
            break Ok(());
        }
    };
    agent.flush();
    outcome
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Order,
    Process(processes::Event),
    Writable,
}

struct Agent<'a> {
    host: &'a str,
    orders: Orders<'a>,
    processes: Processes<'a>,
    queue: Queue,
    /// Time of the launcher's last line.
    heard: Instant,
    /// Time of the next sign of life.
    alive_at: Instant,
    ends: bool,
}

impl Agent<'_> {
    fn wait(&self, signals: &Signals) -> Result<Vec<Event>, LaunchError> {
        let outputs = (io::stdout(), io::stderr());
        let mut waiting = Waiting::new();
        for descriptor in signals.descriptors() {
            waiting.readable(descriptor, Event::Signal);
        }
        waiting.readable(self.orders.descriptor(), Event::Order);
        let reads_output = !self.queue.is_full();
        self.processes
            .wait(&mut waiting, reads_output, Event::Process);
        self.queue.wait(&mut waiting, &outputs, Event::Writable);
        let deadlines = [Some(self.alive_at), self.processes.deadline()];
        waiting.wait(deadlines.into_iter().flatten().min())
    }

    fn react(&mut self, events: Vec<Event>, signals: &Signals) -> Result<(), AgentError> {
        for event in events {
            match event {
                Event::Signal => self.ends |= !signals.take().is_empty(),
                Event::Order => {
                    let (lines, is_open) = self.orders.lines();
                    self.heard = Instant::now();
                    self.ends |= !is_open;
                    for line in lines {
                        let order = Order::parse(&line).ok_or(AgentError::Order)?;
                        self.carry_out(order)?;
                    }
                }
                Event::Process(event) => {
                    let news = self.processes.react(event, &mut self.queue);
                    self.report_all(news);
                }
                // Standard output is closed: the launcher has ended.
                Event::Writable => {
                    let failed = self.queue.write();
                    self.ends |= failed.is_some_and(|(target, _)| target == Target::Stdout);
                }
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order) -> Result<(), AgentError> {
        match order {
            Order::Alive => {}
            Order::Start(MemberId(0), _) => return Err(AgentError::Order),
            Order::Start(member, slots) => {
                let sink = |target| Ok(Sink::report(member.0 as usize, target));
                let started = self.processes.start(member, self.host, slots, false, sink);
                let news = started.unwrap_or_else(|error| Some(News::not_started(member, &error)));
                self.report_all(news);
            }
            Order::Tell(member, reply) => self.processes.tell(member, &reply),
            Order::Kill(member) => self.processes.kill(member),
            Order::Signal(number) => self.processes.signal(signals::named(number)),
        }
        Ok(())
    }

    fn advance(&mut self, now: Instant) {
        let news = self.processes.advance(now, &mut self.queue);
        self.report_all(news);
        if now >= self.alive_at {
            self.alive_at = now + ALIVE_INTERVAL;
            // Reports that wait are signs of life, too.
            if self.queue.target().is_none() {
                self.report(&Report::Alive);
            }
        }
        self.ends |= now >= self.heard + SILENCE;
    }

    fn report_all(&mut self, news: impl IntoIterator<Item = News>) {
        for news in news {
            self.report(&match news {
                News::Asks(member, why) => Report::Asks(member, why),
                News::Silent(member) => Report::Silent(member),
                News::Ended(member, exit) => Report::Ended(member, exit),
                News::NotStarted(member, reason) => Report::NotStarted(member, reason),
                News::Cleared(member) => Report::Cleared(member),
                News::Say(text) => Report::Message(text),
            });
        }
    }

    fn report(&mut self, report: &Report) {
        let line = report.to_string();
        self.queue.push(Target::Stdout, line.as_bytes());
    }

    /// Kills the processes, and writes reports that are left, if the launcher reads them.
    fn flush(&mut self) {
        self.processes.signal(Signal::KILL);
        let until = Instant::now() + FLUSH;
        while self.queue.target().is_some() && Instant::now() < until {
            let outputs = (io::stdout(), io::stderr());
            let mut waiting = Waiting::new();
            self.queue.wait(&mut waiting, &outputs, ());
            match waiting.wait(Some(until)) {
                Ok(events) if !events.is_empty() => _ = self.queue.write(),
                _ => return,
            }
        }
    }
}

/// Writes a line to the launcher. An error means that it has ended, which the end of standard input
/// reports too.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
