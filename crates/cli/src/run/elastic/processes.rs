//! Processes of an elastic job on one host: started, watched and ended, by the launcher on its own
//! host and by an agent on another one.

use super::super::guard::Guard;
use super::super::job::SecretFile;
use super::super::output::{Queue, Target};
use super::super::process::Exit;
use super::super::rank::Rank;
use super::super::sink::Sink;
use super::super::ssh::agent::SECRET;
use super::super::wait::Waiting;
use super::super::{LaunchError, LaunchSpec, threads};
use super::link::Links;
use ronde_elastic::wire::Reply;
use ronde_elastic::{MemberId, Ready};
use ronde_net::Reservation;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time for the last output of processes that a rank left behind.
const DRAIN: Duration = Duration::from_millis(500);

/// Number of ports that are reserved for rank 0. A generation has another one than those before it:
/// a process that is leaving, or being killed, may still listen on its own.
const PORTS: usize = 16;

/// Longest value of `RONDE_HOST_ID`.
const HOST_ID_CHARS_MAX: usize = 128;

/// Event of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Message,
    Exit(MemberId),
    Output(MemberId, usize),
}

/// News of a process or its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It asks for its place.
    Asks(MemberId, Ready),
    /// It has given no sign of life for too long.
    Silent(MemberId),
    Ended(MemberId, Exit),
    /// It could not be started, for this reason.
    NotStarted(MemberId, String),
    /// It has ended, and no output follows.
    Cleared(MemberId),
    /// Message for the user.
    Say(String),
}

impl News {
    /// News of a process that `error` keeps from starting.
    pub(super) fn not_started(member: MemberId, error: &LaunchError) -> Self {
        Self::NotStarted(member, format!("was not started: {error}"))
    }
}

/// Name and secret of the job, and settings, for the processes of a host.
pub(super) struct Facts<'a> {
    pub(super) job_id: &'a str,
    /// The secret, as a file has it.
    pub(super) secret: &'a str,
    /// Whether the processes share the host's cores by `OMP_NUM_THREADS`.
    pub(super) limit_threads: bool,
}

/// Processes of one host.
pub(super) struct Processes<'a> {
    spec: &'a LaunchSpec,
    job_id: String,
    secret: PathBuf,
    limit_threads: bool,
    /// Whether the limit of threads was reported.
    is_limit_told: bool,
    links: Links,
    members: BTreeMap<MemberId, Member>,
    guard: Option<Guard>,
    reserved: Vec<Reservation>,
}

struct Member {
    rank: Rank,
    /// Time until which the output of what it left behind is awaited, after its own end.
    ended: Option<Instant>,
}

impl<'a> Processes<'a> {
    /// Creates the socket and the file with the secret.
    ///
    /// # Errors
    /// No temporary folder, no guard process, no port.
    pub(super) fn new(spec: &'a LaunchSpec, facts: &Facts<'_>) -> Result<Self, LaunchError> {
        let links = Links::new()?;
        let mut guard = Guard::of_job(spec)?;
        if let Some(guard) = &mut guard {
            let folder = links.folder();
            guard.remove_later(folder).map_err(LaunchError::guard)?;
        }
        let path = links.folder().join(SECRET);
        let secret = SecretFile {
            folder: links.folder(),
            path: &path,
            content: facts.secret,
        };
        secret.write().map_err(|source| LaunchError::System {
            action: "write the job's secret to a temporary folder (TMPDIR)",
            source,
        })?;
        let reserved = (0..PORTS).map(|_| Reservation::new(0));
        let reserved = reserved.collect::<Result<_, _>>();
        Ok(Self {
            spec,
            job_id: facts.job_id.to_owned(),
            secret: path,
            limit_threads: facts.limit_threads,
            is_limit_told: false,
            links,
            members: BTreeMap::new(),
            guard,
            reserved: reserved.map_err(|source| LaunchError::System {
                action: "reserve ports for rank 0",
                source,
            })?,
        })
    }

    /// Ports that are reserved for rank 0.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.reserved.iter().map(Reservation::port).collect()
    }

    /// Adds the descriptors to poll: for messages, and for output with `reads_output`.
    pub(super) fn wait<'w, E>(
        &'w self,
        waiting: &mut Waiting<'w, E>,
        reads_output: bool,
        event: impl Fn(Event) -> E,
    ) {
        for descriptor in self.links.descriptors() {
            waiting.readable(descriptor, event(Event::Message));
        }
        for (&member, state) in &self.members {
            if state.rank.process.exit.is_none() {
                let descriptor = state.rank.process.descriptor();
                waiting.readable(descriptor, event(Event::Exit(member)));
            }
            for (stream, state) in state.rank.streams.iter().enumerate() {
                if let Some(pipe) = state.pipe().filter(|_| reads_output) {
                    waiting.readable(pipe, event(Event::Output(member, stream)));
                }
            }
        }
    }

    /// Time until which a process that has ended may have output.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.members
            .values()
            .filter_map(|member| member.ended)
            .min()
    }

    /// Acts on an event that has occurred; output goes to `queue`.
    pub(super) fn react(&mut self, event: Event, queue: &mut Queue) -> Vec<News> {
        match event {
            Event::Message => {
                let members = &self.members;
                let runs = |member| {
                    let member: Option<&Member> = members.get(&member);
                    member.is_some_and(|member| member.ended.is_none())
                };
                let asked = self.links.read(Instant::now(), runs);
                let news = asked.into_iter();
                news.map(|(member, why)| News::Asks(member, why)).collect()
            }
            Event::Exit(member) => {
                let state = self.members.get_mut(&member);
                let Some((state, exit)) =
                    state.and_then(|state| state.rank.process.check().map(|exit| (state, exit)))
                else {
                    return Vec::new();
                };
                state.rank.drain(queue); // before messages about its end
                state.ended = Some(Instant::now() + DRAIN);
                self.links.close(member);
                vec![News::Ended(member, exit)]
            }
            Event::Output(member, stream) => {
                if let Some(state) = self.members.get_mut(&member) {
                    state.rank.streams[stream].read(queue);
                }
                Vec::new()
            }
        }
    }

    /// Acts on the time: reports silent processes, and removes those that have ended, with what
    /// they left behind.
    pub(super) fn advance(&mut self, now: Instant, queue: &mut Queue) -> Vec<News> {
        let silent = self.links.silent(now).into_iter().map(News::Silent);
        let mut news: Vec<News> = silent.collect();
        let guard = &mut self.guard;
        self.members.retain(|&id, member| {
            let mut streams = member.rank.streams.iter();
            let is_quiet = streams.all(|stream| stream.pipe().is_none());
            let is_over = member.ended.is_some_and(|until| is_quiet || now >= until);
            if is_over {
                member.rank.process.signal(Signal::KILL);
                member.rank.drain(queue);
                let streams = member.rank.streams.iter_mut();
                streams.for_each(|stream| stream.finish(queue));
                member.rank.process.reap();
                if let Some(guard) = guard {
                    // An error means that the guard has ended: the next start reports it.
                    let _ = guard.forget(member.rank.process.group());
                }
                news.push(News::Cleared(id));
            }
            !is_over
        });
        news
    }

    /// Starts a process on `host`, which has `slots` slots. The first process of the job
    /// `inherits` standard input.
    ///
    /// # Errors
    /// The program cannot be started, or an output file cannot be created.
    pub(super) fn start(
        &mut self,
        member: MemberId,
        host: &str,
        slots: usize,
        inherits: bool,
        sink: impl Fn(Target) -> Result<Sink, LaunchError>,
    ) -> Result<Option<News>, LaunchError> {
        let number = member.0 as usize - 1; // from 1
        // Several names of a machine are several hosts.
        let host_id: String = host.chars().take(HOST_ID_CHARS_MAX).collect();
        let mut variables: Vec<(&str, OsString)> = vec![
            ("RONDE_ELASTIC_SOCKET", self.links.path().into()),
            ("RONDE_ELASTIC_MEMBER", member.0.to_string().into()),
            ("RONDE_JOB_ID", self.job_id.clone().into()),
            ("RONDE_SECRET_FILE", self.secret.clone().into()),
            ("HOROVOD_ELASTIC", "1".into()),
            ("HOROVOD_HOSTNAME", host.into()),
            ("RONDE_HOST_ID", host_id.into()),
        ];
        let mut note = None;
        if self.limit_threads {
            let (threads, text) = threads::limit(true, slots, threads::cores());
            variables.extend(threads.map(|n| (threads::VARIABLE, n.to_string().into())));
            note = text.filter(|_| !std::mem::replace(&mut self.is_limit_told, true));
        }
        let mut rank = Rank::with_variables(self.spec, number, variables, inherits, sink)?;
        if let Some(guard) = &mut self.guard
            && let Err(error) = guard.watch(rank.process.group())
        {
            // The guard has ended, and nobody would end the process with the job.
            rank.process.signal(Signal::KILL);
            rank.process.reap();
            return Err(LaunchError::guard(error));
        }
        self.members.insert(member, Member { rank, ended: None });
        Ok(note.map(News::Say))
    }

    /// Gives a process another rank: its output has that prefix from now on.
    pub(super) fn renumber(&mut self, member: MemberId, rank: usize) {
        if let Some(state) = self.members.get_mut(&member) {
            state.rank.renumber(rank);
        }
    }

    /// Sends a message to a process.
    pub(super) fn tell(&mut self, member: MemberId, reply: &Reply) {
        self.links.send(member, reply);
    }

    /// Kills a process, with those that it has started.
    pub(super) fn kill(&self, member: MemberId) {
        if let Some(state) = self.members.get(&member) {
            state.rank.process.signal(Signal::KILL);
        }
    }

    /// Signals all processes.
    pub(super) fn signal(&self, signal: Signal) {
        for member in self.members.values() {
            member.rank.process.signal(signal);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl Drop for Processes<'_> {
    /// Kills all processes that are left, whatever the reason of the end.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for member in self.members.values_mut() {
            member.rank.process.reap();
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}
