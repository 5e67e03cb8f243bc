//! State machine of a job on this machine: one loop waits for events of the ranks and acts on them.
//!
//! ```text
//!          a rank fails, a signal,                all ranks        no output,
//!          standard output closes                 have ended       or time is up
//! Running ─────────────────────────► Ending ─────────────────► Draining ────────► Flushing ─► over
//!    └───────────────── all ranks have ended ─────────────────────┘   groups killed,
//!                                                                     ranks reaped
//! ```
//!
//! The phase Ending begins with SIGTERM (or the received signal) to every rank's process group.
//! SIGKILL follows when the time is up or a second signal is received. Processes that a rank
//! started and left behind are killed with its group, so they cannot delay the end by keeping a
//! pipe open.

use super::guard::Guard;
use super::output::{EXIT_PIPE, Queue, Target};
use super::process::{Exit, lack_of_memory};
use super::rank::Rank;
use super::signals::{self, Signals};
use super::sink::Sink;
use super::ssh::wire::{Order, Orders, Report};
use super::wait::Waiting;
use super::{LaunchError, LaunchSpec};
use ronde::internal::identity::{MAX_RANKS, random_job_key};
use ronde_elastic::Place;
use rustix::process::Signal;
use std::cell::RefCell;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between SIGTERM, or a forwarded signal, and SIGKILL; the same as horovodrun's.
const GRACE: Duration = Duration::from_secs(5);

/// Time for the last output of processes that a rank left behind, such as a `| tee` of a shell.
const DRAIN: Duration = Duration::from_millis(500);

/// Time after a rank's exit with an error in which a rank that was killed by a signal replaces it
/// as the cause: peers see its connections close before the kernel reports its end to this process.
const CAUSE_PATIENCE: Duration = Duration::from_millis(100);

/// Interval of reports to the launcher that this process lives. If the network has failed, the
/// operating system does not get them acknowledged, and ends the connection.
const ALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Exit code after the job was ended through `stop`: that of a program killed by SIGKILL.
const EXIT_KILLED: u8 = 128 + 9;

/// Exit code after the connection to the launcher has ended: that of a program killed by SIGTERM.
const EXIT_ORPHAN: u8 = 128 + 15;

/// Starts a job's ranks, forwards their output and signals, and waits for their end.
///
/// Returns 0 if all ranks exited with 0, else the code of the first rank that failed (128 + n for
/// signal n), or 128 + n after signal n to this process. When this returns, no process of the
/// ranks' groups is left.
///
/// # Errors
/// [`LaunchError`] if the job cannot be started; ranks that were started have then been killed.
pub fn launch(spec: &LaunchSpec) -> Result<u8, LaunchError> {
    run(spec, &Part::whole(spec, Link::None)?).map(|ended| ended.code)
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Exit code, as [`launch`] returns it.
    pub(crate) code: u8,
    /// First rank that failed, with its exit status: `rank 1 was killed by signal 9 (SIGKILL)`.
    pub(crate) cause: Option<String>,
}

/// Like `launch`, but kills the ranks as soon as `stop` is readable or its other end is closed;
/// also returns the cause of a failure.
pub(crate) fn launch_until(spec: &LaunchSpec, stop: BorrowedFd<'_>) -> Result<Ended, LaunchError> {
    run(spec, &Part::whole(spec, Link::Stop(stop))?)
}

/// Part of a job that this process starts: the ranks of one host.
pub(super) struct Part<'a> {
    /// Number of ranks of each host of the job, and the number of this host.
    pub(super) ranks_per_host: Vec<usize>,
    pub(super) host: usize,
    pub(super) job_id: String,
    pub(super) link: Link<'a>,
    pub(super) secret: Option<SecretFile<'a>>,
}

/// File with the job's secret, which is written before the ranks start, and after the guard process
/// knows the folder that it removes at the end.
pub(super) struct SecretFile<'a> {
    pub(super) folder: &'a Path,
    /// In the folder.
    pub(super) path: &'a Path,
    pub(super) content: &'a str,
}

impl SecretFile<'_> {
    /// Writes the file, which only this user can read.
    pub(super) fn write(&self) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        file.open(self.path)?.write_all(self.content.as_bytes())
    }
}

/// Connection to the process that controls this one.
pub(super) enum Link<'a> {
    None,
    /// The ranks are killed when it becomes readable or its other end is closed.
    Stop(BorrowedFd<'a>),
    /// The launcher on another host, or in another process: it gets reports instead of prefixed
    /// output, and gives orders.
    Launcher(RefCell<Orders<'a>>),
}

impl<'a> Part<'a> {
    /// All ranks of `spec`'s job.
    fn whole(spec: &LaunchSpec, link: Link<'a>) -> Result<Self, LaunchError> {
        Ok(Self {
            ranks_per_host: vec![spec.num_proc],
            host: 0,
            job_id: random_job_key().map_err(LaunchError::system("draw a name for the job"))?,
            link,
            secret: None,
        })
    }

    /// Whether a launcher in another process gets reports and gives orders.
    pub(super) fn is_of_launcher(&self) -> bool {
        matches!(self.link, Link::Launcher(_))
    }

    /// Destination of a stream of `rank`.
    pub(super) fn sink(
        &self,
        spec: &LaunchSpec,
        rank: usize,
        target: Target,
    ) -> Result<Sink, LaunchError> {
        if self.is_of_launcher() {
            return Ok(Sink::report(rank, target));
        }
        Sink::new(spec, self.ranks_per_host.iter().sum(), rank, target)
    }
}

/// Starts the ranks of this host and supervises them until their end.
pub(super) fn run(spec: &LaunchSpec, part: &Part<'_>) -> Result<Ended, LaunchError> {
    if !(1..=MAX_RANKS).contains(&spec.num_proc) {
        return Err(LaunchError::Ranks {
            num_proc: spec.num_proc,
            max: MAX_RANKS,
        });
    }
    let signals = Signals::register()?;
    let mut job = Job::start(spec, part)?;
    job.on_orders(Orders::rest); // no event reports them
    while job.phase != Phase::Over {
        let events = job.wait(&signals)?;
        job.react(events, &signals);
        job.advance(Instant::now());
    }
    Ok(Ended {
        code: job.code,
        cause: job.cause.take(),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ending { kill_at: Instant },
    Draining { until: Instant },
    Flushing,
    Over,
}

/// Event that the loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Signal,
    Stop,
    Order,
    Exit { rank: usize },
    Output { rank: usize, stream: usize },
    Writable,
}

struct Job<'a, 'p> {
    spec: &'a LaunchSpec,
    ranks: Vec<Rank>,
    guard: Option<Guard>,
    queue: Queue,
    phase: Phase,
    code: u8,
    cause: Option<String>,
    /// First rank that exited with an error, and the time until which another cause is considered.
    failed: Option<(usize, Exit, Instant)>,
    part: &'a Part<'p>,
    /// Whether the launcher's connection has ended.
    is_orphan: bool,
    /// Time of the next report to the launcher that this process lives.
    alive_at: Option<Instant>,
}

impl<'a, 'p> Job<'a, 'p> {
    fn start(spec: &'a LaunchSpec, part: &'a Part<'p>) -> Result<Job<'a, 'p>, LaunchError> {
        let mut job = Job {
            spec,
            ranks: Vec::new(),
            guard: Guard::of_job(spec)?,
            queue: Queue::default(),
            phase: Phase::Running,
            code: 0,
            cause: None,
            failed: None,
            part,
            is_orphan: false,
            alive_at: part.is_of_launcher().then(Instant::now),
        };
        if let Some(secret) = &part.secret {
            if let Some(guard) = &mut job.guard {
                guard
                    .remove_later(secret.folder)
                    .map_err(LaunchError::guard)?;
            }
            secret.write().map_err(|source| LaunchError::System {
                action: "write the job's secret to a temporary folder (TMPDIR)",
                source,
            })?;
        }
        for place in Place::of_host(&part.ranks_per_host, part.host) {
            // On an error the job is dropped, which kills the ranks that were started.
            let rank = Rank::start(spec, part, &place)?;
            let group = rank.process.group();
            job.ranks.push(rank);
            if let Some(guard) = &mut job.guard {
                guard.watch(group).map_err(LaunchError::guard)?;
            }
        }
        if spec.verbose {
            let command: Vec<_> = spec
                .command
                .iter()
                .map(|part| part.to_string_lossy())
                .collect();
            job.say(&format!(
                "started {} ranks of: {}",
                spec.num_proc,
                command.join(" ")
            ));
        }
        Ok(job)
    }

    /// Waits for events, or until the phase's time is up.
    fn wait(&self, signals: &Signals) -> Result<Vec<Event>, LaunchError> {
        let outputs = (std::io::stdout(), std::io::stderr());
        let mut waiting = Waiting::new();
        for descriptor in signals.descriptors() {
            waiting.readable(descriptor, Event::Signal);
        }
        match &self.part.link {
            Link::Stop(stop) if self.phase == Phase::Running => {
                waiting.readable(*stop, Event::Stop);
            }
            Link::Launcher(orders) if !self.is_orphan => {
                waiting.readable(orders.borrow().descriptor(), Event::Order);
            }
            Link::None | Link::Stop(_) | Link::Launcher(_) => {}
        }
        for (rank, state) in self.ranks.iter().enumerate() {
            if state.process.exit.is_none() {
                waiting.readable(state.process.descriptor(), Event::Exit { rank });
            }
            for (stream, state) in state.streams.iter().enumerate() {
                if let Some(pipe) = state.pipe().filter(|_| !self.queue.is_full()) {
                    waiting.readable(pipe, Event::Output { rank, stream });
                }
            }
        }
        self.queue.wait(&mut waiting, &outputs, Event::Writable);
        waiting.wait(self.deadline())
    }

    fn deadline(&self) -> Option<Instant> {
        let of_phase = match self.phase {
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Draining { until } => Some(until),
            Phase::Running => self.failed.map(|(_, _, until)| until),
            Phase::Flushing | Phase::Over => None,
        };
        of_phase.into_iter().chain(self.alive_at).min()
    }

    fn react(&mut self, events: Vec<Event>, signals: &Signals) {
        let mut exits = Vec::new();
        for event in events {
            match event {
                Event::Signal => signals
                    .take()
                    .into_iter()
                    .for_each(|signal| self.on_signal(signal)),
                Event::Stop => self.end(EXIT_KILLED, Signal::KILL),
                Event::Order => self.on_orders(Orders::read),
                Event::Exit { rank } => {
                    if let Some(exit) = self.ranks[rank].process.check() {
                        self.ranks[rank].drain(&mut self.queue); // before our message
                        exits.push((rank, exit));
                    }
                }
                Event::Output { rank, stream } => {
                    self.ranks[rank].streams[stream].read(&mut self.queue);
                }
                Event::Writable => {
                    if self.queue.write_or_drop(&self.spec.label) {
                        self.end(EXIT_PIPE, Signal::TERM);
                    }
                }
            }
        }
        self.on_exits(exits);
    }

    fn on_orders(&mut self, read: impl FnOnce(&mut Orders<'p>) -> Vec<Order>) {
        let Link::Launcher(orders) = &self.part.link else {
            return;
        };
        let found = read(&mut orders.borrow_mut());
        for order in found {
            match order {
                Order::Signal(signal) if signal == Signal::KILL.as_raw() => {
                    self.end(EXIT_KILLED, Signal::KILL);
                    self.kill();
                }
                Order::Signal(signal) if self.phase == Phase::Running => self.on_signal(signal),
                // The ranks have their signal, and the launcher still wants the output. For the
                // user's second signal it orders to kill.
                Order::Signal(_) => {}
                // Another order, or none any more: the launcher has ended, or is not one.
                Order::Start(_) | Order::Invalid | Order::End => {
                    self.is_orphan = true;
                    self.end(EXIT_ORPHAN, Signal::TERM);
                }
            }
        }
    }

    fn on_signal(&mut self, signal: i32) {
        let code = Exit::Signal(signal).code();
        match self.phase {
            Phase::Running => {
                if !self.part.is_of_launcher() {
                    self.say(&signals::passed_on(signal));
                }
                self.end(code, signals::named(signal));
            }
            Phase::Ending { .. } => self.kill(),
            // The ranks have ended; a signal now means that the user does not want to wait for
            // output.
            Phase::Draining { .. } | Phase::Flushing | Phase::Over => {
                self.code = code;
                self.phase = Phase::Over;
            }
        }
    }

    fn on_exits(&mut self, mut exits: Vec<(usize, Exit)>) {
        if self.spec.verbose {
            for (rank, exit) in &exits {
                self.say(&format!("rank {} {exit}", self.ranks[*rank].number));
            }
        }
        if self.phase != Phase::Running {
            return; // the ranks end because we signalled them
        }
        exits.retain(|(_, exit)| exit.code() != 0);
        // Ranks that lose a peer fail soon after it. If several exits are found at once, a rank
        // that was killed is the cause, not a consequence.
        exits.sort_by_key(|(rank, exit)| (!matches!(exit, Exit::Signal(_)), *rank));
        match exits.first() {
            Some(&(rank, exit @ Exit::Signal(_))) => self.fail(rank, exit),
            Some(&(rank, exit)) if self.failed.is_none() => {
                self.failed = Some((rank, exit, Instant::now() + CAUSE_PATIENCE));
            }
            _ => {}
        }
    }

    /// Ends the job because `rank` failed.
    fn fail(&mut self, rank: usize, exit: Exit) {
        let is_left = |rank: &&Rank| rank.process.exit.is_none();
        let rest = match self.ranks.iter().filter(is_left).count() {
            0 => String::new(),
            1 => "; ending the other rank".to_owned(),
            others => format!("; ending the other {others} ranks"),
        };
        let name = format!("rank {}", self.ranks[rank].number);
        let cause = format!("{name} {exit}");
        if self.part.is_of_launcher() {
            let code = exit.code();
            self.report(&Report::Failed(code, cause.clone()));
        } else {
            self.say(&format!("{cause}{rest}"));
        }
        if let Some(hint) = lack_of_memory(exit, &name) {
            self.say(&hint);
        }
        self.cause = Some(cause);
        self.end(exit.code(), Signal::TERM);
    }

    /// Starts the phase Ending, once. Every group is signalled, also those of ranks that have
    /// ended, because other processes may be left in them.
    fn end(&mut self, code: u8, signal: Signal) {
        if self.phase == Phase::Running {
            self.code = code;
            self.phase = Phase::Ending {
                kill_at: Instant::now() + GRACE,
            };
            for rank in &self.ranks {
                rank.process.signal(signal);
            }
        } else if self.code == 0 {
            self.code = code;
        }
    }

    fn kill(&mut self) {
        for rank in &self.ranks {
            rank.process.signal(Signal::KILL);
        }
    }

    /// Enters the next phase if its condition holds.
    fn advance(&mut self, now: Instant) {
        if self.alive_at.is_some_and(|at| now >= at) {
            self.report(&Report::Alive);
            self.alive_at = Some(now + ALIVE_INTERVAL);
        }
        let all_ended = self.ranks.iter().all(|rank| rank.process.exit.is_some());
        if let (Phase::Running, Some((rank, exit, until))) = (self.phase, self.failed)
            && (all_ended || now >= until)
        {
            self.fail(rank, exit);
        }
        match self.phase {
            Phase::Running | Phase::Ending { .. } if all_ended => {
                self.phase = Phase::Draining { until: now + DRAIN };
                self.advance(now);
            }
            Phase::Ending { kill_at } if now >= kill_at => {
                self.say("some ranks have not ended; killing them");
                self.kill();
                self.phase = Phase::Ending {
                    kill_at: now + GRACE,
                };
            }
            Phase::Draining { until } if now >= until || self.silent() => {
                self.kill();
                for rank in &mut self.ranks {
                    rank.drain(&mut self.queue);
                    rank.streams
                        .iter_mut()
                        .for_each(|stream| stream.finish(&mut self.queue));
                }
                self.phase = Phase::Flushing;
                self.advance(now);
            }
            Phase::Flushing if self.queue.target().is_none() => self.phase = Phase::Over,
            Phase::Running
            | Phase::Ending { .. }
            | Phase::Draining { .. }
            | Phase::Flushing
            | Phase::Over => {}
        }
    }

    /// Whether all output has ended.
    fn silent(&self) -> bool {
        self.ranks
            .iter()
            .flat_map(|rank| &rank.streams)
            .all(|stream| stream.pipe().is_none())
    }

    fn say(&mut self, message: &str) {
        if self.part.is_of_launcher() {
            return self.report(&Report::Message(message.to_owned()));
        }
        self.queue.push(
            Target::Stderr,
            format!("{}: {message}", self.spec.label).as_bytes(),
        );
    }

    /// Sends a report to the launcher.
    fn report(&mut self, report: &Report) {
        self.queue
            .push(Target::Stdout, report.to_string().as_bytes());
    }
}

impl Drop for Job<'_, '_> {
    /// Kills all processes that are left, whatever the reason of the end.
    fn drop(&mut self) {
        self.kill();
        for rank in &mut self.ranks {
            rank.process.reap();
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}
