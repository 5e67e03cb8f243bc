//! Rendezvous server: rank 0 accepts the connections of the other ranks and keeps them until all
//! have arrived.
//!
//! A connection is unauthenticated until its `Hello` has been checked. Unauthenticated connections
//! of other users, with other protocols or without a message in time are closed, and the rendezvous
//! continues. A rank of this job with a `Hello` that contradicts rank 0 ends the rendezvous.

use crate::rendezvous::{JobContract, RendezvousConfig};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use ronde_net::not_come;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::RendezvousError;
use super::layout::Layout;
use super::rendezvous::{ALARM_INTERVAL, INTRODUCTION_TIMEOUT, silent, system};
use super::socket::{self, Connection, Credentials, ReceiveError};
use super::wire::{Body, FrameError, Hello, Origin, shorten};

/// Most unauthenticated connections at once; beyond that the oldest is closed.
const UNAUTHENTICATED_MAX: usize = 128;
/// Time after a failed rendezvous in which rank 0 still sends the error to late ranks; they would
/// wait in vain otherwise.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// A rank whose `Hello` has been accepted.
pub(super) struct Client {
    pub(super) connection: Connection,
    pub(super) pid: u32,
    /// Whether it has mapped the region.
    is_ready: bool,
}

/// A connection without an accepted `Hello`.
struct UnauthenticatedConnection {
    connection: Connection,
    pid: u32,
    deadline: Instant,
}

/// Result of reading from an unauthenticated connection.
enum Reading {
    Unfinished,
    Hello(Hello),
    Foreign(Origin),
    Nobody(String),
}

/// Connections of rank 0 during a rendezvous.
pub(super) struct Server<'a> {
    pub(super) config: &'a RendezvousConfig,
    pub(super) layout: &'a Layout,
    /// Time at which the start timeout of the first rank has passed.
    pub(super) deadline: Instant,
    /// Set ranks 1, 2, ….
    clients: Vec<Option<Client>>,
    unauthenticated: Vec<UnauthenticatedConnection>,
}

impl<'a> Server<'a> {
    /// Makes a server without connections; rank 0 waits until `deadline`, and no longer than any
    /// client.
    pub(super) fn new(config: &'a RendezvousConfig, layout: &'a Layout, deadline: Instant) -> Self {
        Self {
            config,
            layout,
            deadline,
            clients: (1..config.size()).map(|_| None).collect(),
            unauthenticated: Vec::new(),
        }
    }

    /// Waits until every rank has connected.
    pub(super) fn fill(&mut self, listener: &UnixListener) -> Result<(), RendezvousError> {
        let late = self.config.late_warnings();
        loop {
            self.accept(listener)?;
            self.read_unauthenticated()?;
            self.read_clients(false)?;
            let missing: Vec<usize> = (1..self.config.size())
                .filter(|rank| self.clients[rank - 1].is_none())
                .map(|rank| self.config.job_rank(rank))
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            self.config.check_alarm()?;
            let now = Instant::now();
            if now >= self.deadline {
                return Err(RendezvousError::Missing {
                    missing,
                    size: self.config.size(),
                    waited_seconds: self.config.start_timeout.as_secs(),
                });
            }
            late.warn(|| not_come(&missing));
            let next = self
                .unauthenticated
                .iter()
                .map(|unauthenticated| unauthenticated.deadline)
                .min();
            let until = next.map_or(self.deadline, |next| next.min(self.deadline));
            let pause = until.saturating_duration_since(now);
            let warning = late.due_in();
            self.sleep(Some(listener), pause.min(warning))?;
        }
    }

    /// Waits until every rank has mapped the region.
    pub(super) fn wait_until_ready(&mut self) -> Result<(), RendezvousError> {
        loop {
            self.read_clients(true)?;
            let clients = self.clients().filter(|(_, client)| !client.is_ready);
            let waiting: Vec<(usize, u32)> =
                clients.map(|(rank, client)| (rank, client.pid)).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            self.config.check_alarm()?;
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent(self.config, &waiting));
            }
            self.sleep(None, left)?;
        }
    }

    /// Sleeps until a connection is pending, data can be read, or it is time to call the alarm.
    fn sleep(
        &self,
        listener: Option<&UnixListener>,
        timeout: Duration,
    ) -> Result<(), RendezvousError> {
        let timeout = match self.config.alarm {
            Some(_) => timeout.min(ALARM_INTERVAL),
            None => timeout,
        };
        let clients = self
            .clients
            .iter()
            .flatten()
            .map(|client| &client.connection);
        let unauthenticated = self
            .unauthenticated
            .iter()
            .map(|unauthenticated| &unauthenticated.connection);
        let connections = clients.chain(unauthenticated);
        let mut fds: Vec<PollFd<'_>> = (listener.into_iter().map(|listener| listener.as_fd()))
            .chain(connections.map(|connection| connection.stream().as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&socket::timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system(self.config, "wait for the other ranks", error)),
        }
    }

    /// Accepts all pending connections of this user's processes.
    fn accept(&mut self, listener: &UnixListener) -> Result<(), RendezvousError> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(error) => {
                    let code = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
                    return Err(system(
                        self.config,
                        "accept a rank",
                        Errno::from_raw_os_error(code),
                    ));
                }
            };
            let own = geteuid().as_raw();
            match socket::credentials(&stream) {
                Ok(Credentials { uid, pid }) if uid == own => {
                    if self.unauthenticated.len() == UNAUTHENTICATED_MAX {
                        let oldest = self.unauthenticated.remove(0);
                        tracing::warn!(
                            pid = oldest.pid,
                            "too many unauthenticated connections; closing the oldest"
                        );
                    }
                    self.unauthenticated.push(UnauthenticatedConnection {
                        connection: Connection::accepted(stream),
                        pid,
                        deadline: Instant::now() + INTRODUCTION_TIMEOUT,
                    });
                }
                Ok(Credentials { uid, pid }) => {
                    tracing::warn!(
                        uid,
                        pid,
                        "connection of another user's process to this job's rendezvous refused"
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the credentials of a connection to this job's rendezvous; refused")
                }
            }
        }
    }

    /// Reads from unauthenticated connections and admits those whose `Hello` is valid.
    fn read_unauthenticated(&mut self) -> Result<(), RendezvousError> {
        let mut index = 0;
        while index < self.unauthenticated.len() {
            let unauthenticated = &mut self.unauthenticated[index];
            match unauthenticated.read() {
                Reading::Unfinished => index += 1,
                Reading::Nobody(reason) => {
                    tracing::warn!(
                        pid = unauthenticated.pid,
                        reason,
                        "not a rank of this job; connection closed"
                    );
                    self.unauthenticated.remove(index);
                }
                Reading::Foreign(origin) => {
                    let own = Origin::own();
                    return Err(RendezvousError::Version {
                        pid: unauthenticated.pid,
                        version: origin.version,
                        layout: origin.layout,
                        first_rank: self.config.own_job_rank(),
                        first_version: own.version,
                        first_layout: own.layout,
                    });
                }
                Reading::Hello(hello) => {
                    let pid = unauthenticated.pid;
                    // On an error the connection stays in the list, so that it receives the error
                    // with the others.
                    self.admit(&hello, pid)?;
                    let UnauthenticatedConnection {
                        connection, pid, ..
                    } = self.unauthenticated.remove(index);
                    // A client that has disconnected is noticed at the next read.
                    let _ = connection.send(Body::Admitted, &[], Instant::now());
                    self.clients[hello.rank - 1] = Some(Client {
                        connection,
                        pid,
                        is_ready: false,
                    });
                    let left = Instant::now().checked_add(Duration::from_millis(hello.left_ms));
                    self.deadline = left.map_or(self.deadline, |left| left.min(self.deadline));
                }
            }
        }
        Ok(())
    }

    /// Checks a client's `Hello` against rank 0's configuration.
    fn admit(&self, hello: &Hello, pid: u32) -> Result<(), RendezvousError> {
        let (config, rank, size) = (self.config, hello.rank, self.config.size());
        let job_rank = hello.members.get(rank).copied().unwrap_or(rank);
        let agree = |what: &str, found: String, expected: String| match (
            shorten(&found),
            shorten(&expected),
        ) {
            (found, expected) if found == expected => Ok(()),
            (found, expected) => Err(RendezvousError::Disagreement {
                what: what.to_owned(),
                first_rank: config.own_job_rank(),
                expected,
                rank: job_rank,
                found,
            }),
        };
        // Two job sizes are easier to read than two lists.
        let whole = |members: &[usize]| members.iter().copied().eq(0..members.len());
        if whole(&hello.members) && whole(&config.members) {
            agree(
                "job size",
                hello.members.len().to_string(),
                size.to_string(),
            )?;
        }
        let list = |members: &[usize]| format!("{members:?}");
        agree(
            "members of the process set",
            list(&hello.members),
            list(&config.members),
        )?;
        agree(
            "host key (RONDE_HOST_ID)",
            hello.host_key.clone(),
            config.host_key.clone(),
        )?;
        if rank >= size {
            return Err(RendezvousError::InvalidRank { rank, pid, size });
        }
        let first = match rank {
            0 => Some(std::process::id()),
            _ => self.clients[rank - 1].as_ref().map(|client| client.pid),
        };
        if let Some(first_pid) = first {
            return Err(RendezvousError::DuplicateRank {
                rank: job_rank,
                first_pid,
                pid,
            });
        }
        let names = |terms: &JobContract| {
            terms
                .iter()
                .map(|(what, _)| what.clone())
                .collect::<Vec<_>>()
        };
        agree(
            "job contract",
            names(&hello.contract).join(", "),
            names(&config.contract).join(", "),
        )?;
        for ((what, expected), (_, found)) in config.contract.iter().zip(&hello.contract) {
            agree(what, found.clone(), expected.clone())?;
        }
        let (words, bytes) = (self.layout.cache_words, self.layout.bytes());
        agree(
            "response cache words",
            hello.cache_words.to_string(),
            words.to_string(),
        )?;
        agree(
            "shared memory bytes",
            hello.region_bytes.to_string(),
            bytes.to_string(),
        )
    }

    /// Reads from clients. A waiting client sends `Ready`, if `may_be_ready`, or `Refused`; a
    /// closed connection or any other message is an error.
    fn read_clients(&mut self, may_be_ready: bool) -> Result<(), RendezvousError> {
        let config = self.config;
        for (&rank, client) in config.members[1..].iter().zip(&mut self.clients) {
            let Some(client) = client else { continue };
            let malformed = |bytes, problem| RendezvousError::Malformed {
                rank,
                bytes,
                problem,
            };
            match client.connection.try_receive() {
                Ok(None) => match client.connection.unread_bytes() {
                    0 => {}
                    bytes if may_be_ready => {
                        tracing::trace!(rank, bytes, "the beginning of a message")
                    }
                    bytes => {
                        return Err(malformed(
                            bytes,
                            "sent a message before its turn".to_owned(),
                        ));
                    }
                },
                Ok(Some(Body::Ready)) if may_be_ready && !client.is_ready => client.is_ready = true,
                Ok(Some(Body::Refused(error))) => return Err(error),
                Ok(Some(body)) => {
                    return Err(malformed(
                        0,
                        shorten(&format!("unexpected message {body:?}")),
                    ));
                }
                Err(ReceiveError::Gone) => {
                    return Err(RendezvousError::Vanished {
                        rank,
                        pid: client.pid,
                    });
                }
                Err(ReceiveError::Frame(problem, bytes)) => {
                    return Err(malformed(bytes, problem.to_string()));
                }
                Err(ReceiveError::System(error)) => {
                    return Err(client.failed(
                        config,
                        rank,
                        "receive a message from a rank",
                        error,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The connected clients, with their job ranks.
    pub(super) fn clients(&self) -> impl Iterator<Item = (usize, &Client)> {
        let members = self.config.members[1..].iter();
        members
            .zip(&self.clients)
            .filter_map(|(&rank, client)| Some((rank, client.as_ref()?)))
    }

    /// Returns all clients, once all are connected.
    pub(super) fn take_clients(&mut self) -> Vec<Client> {
        let clients = self.clients.drain(..);
        clients
            .map(|client| client.expect("all are here"))
            .collect()
    }

    /// Sends the error to every connection, also to unauthenticated ones: one of them may be the
    /// cause.
    pub(super) fn refuse_all(&self, error: &RendezvousError) {
        let clients = self.clients().map(|(_, client)| &client.connection);
        let unauthenticated = self
            .unauthenticated
            .iter()
            .map(|unauthenticated| &unauthenticated.connection);
        for connection in clients.chain(unauthenticated) {
            refuse(connection, error);
        }
    }

    /// Sends the error to late ranks, until all ranks have connected or the time is over.
    pub(super) fn refuse_latecomers(&mut self, listener: &UnixListener, error: &RendezvousError) {
        let deadline = Instant::now() + REFUSAL_TIMEOUT;
        let told = self.clients().count() + self.unauthenticated.len();
        let mut expected = (self.config.size() - 1).saturating_sub(told);
        self.clients.clear();
        self.unauthenticated.clear();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // An error here would only hide the original one.
            if expected == 0
                || left.is_zero()
                || self.sleep(Some(listener), left).is_err()
                || self.accept(listener).is_err()
            {
                return;
            }
            for unauthenticated in self.unauthenticated.drain(..) {
                refuse(&unauthenticated.connection, error);
                expected = expected.saturating_sub(1);
            }
        }
    }
}

/// Errors are ignored: a closed connection needs no message, and rank 0 does not wait for a client
/// that does not read.
fn refuse(connection: &Connection, error: &RendezvousError) {
    let _ = connection.send(Body::Refused(error.clone()), &[], Instant::now());
}

impl Client {
    /// Error for a failed call on the connection to this rank, whose job rank is `rank`.
    pub(super) fn failed(
        &self,
        config: &RendezvousConfig,
        rank: usize,
        what: &str,
        error: Errno,
    ) -> RendezvousError {
        match error {
            Errno::PIPE | Errno::CONNRESET => RendezvousError::Vanished {
                rank,
                pid: self.pid,
            },
            Errno::TIMEDOUT => silent(config, &[(rank, self.pid)]),
            error => system(config, &format!("{what} (rank {rank})"), error),
        }
    }
}

impl UnauthenticatedConnection {
    fn read(&mut self) -> Reading {
        match self.connection.try_receive() {
            Ok(None) if Instant::now() >= self.deadline => Reading::Nobody(format!(
                "only {} bytes in {} s",
                self.connection.unread_bytes(),
                INTRODUCTION_TIMEOUT.as_secs()
            )),
            Ok(None) => Reading::Unfinished,
            Ok(Some(Body::Hello(_))) if self.connection.unread_bytes() > 0 => {
                Reading::Nobody("more data after the Hello".to_owned())
            }
            Ok(Some(Body::Hello(hello))) => Reading::Hello(hello),
            Ok(Some(body)) => Reading::Nobody(shorten(&format!("the first message is {body:?}"))),
            Err(ReceiveError::Frame(FrameError::Foreign(origin), _)) => Reading::Foreign(origin),
            Err(ReceiveError::Frame(error, _)) => Reading::Nobody(error.to_string()),
            Err(ReceiveError::Gone) => Reading::Nobody(format!(
                "closed the connection after {} bytes",
                self.connection.unread_bytes()
            )),
            Err(ReceiveError::System(error)) => Reading::Nobody(error.to_string()),
        }
    }
}
