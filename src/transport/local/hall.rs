//! Where connections wait until all ranks have come.
//!
//! Whoever connects is a stranger until it has introduced itself. Strangers of other users, with other manners or
//! with nothing to say are shown out and the meeting goes on; a rank of this job that does not fit ends it.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::getuid;

use super::error::RendezvousError;
use super::layout::Layout;
use super::rendezvous::{ALARM_INTERVAL, INTRODUCTION_TIMEOUT, Meeting, Terms, silent, system};
use super::socket::{self, Connection, Credentials, ReceiveError};
use super::wire::{Body, FrameError, Hello, Origin, shorten};

/// How many may be about to; beyond that the one that has waited longest goes.
const STRANGERS_MAX: usize = 128;
/// How long, after a meeting has failed, those who still come are told why; they would wait in vain otherwise.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A rank that has introduced itself.
pub(super) struct Guest {
    pub(super) connection: Connection,
    pub(super) pid: u32,
    /// Whether it has mapped the region.
    is_ready: bool,
}

/// A connection that has not.
struct Stranger {
    connection: Connection,
    pid: u32,
    deadline: Instant,
}

/// What a stranger turns out to be.
enum Reading {
    Unfinished,
    Hello(Hello),
    Foreign(Origin),
    Nobody(String),
}

/// The hall.
pub(super) struct Hall<'a> {
    pub(super) meeting: &'a Meeting,
    pub(super) layout: &'a Layout,
    /// When the start timeout of the first rank is over.
    pub(super) deadline: Instant,
    /// Set ranks 1, 2, ….
    guests: Vec<Option<Guest>>,
    strangers: Vec<Stranger>,
}

impl<'a> Hall<'a> {
    /// An empty hall; rank 0 waits until `deadline`, and no longer than any guest.
    pub(super) fn new(meeting: &'a Meeting, layout: &'a Layout, deadline: Instant) -> Self {
        Self {
            meeting,
            layout,
            deadline,
            guests: (1..meeting.size()).map(|_| None).collect(),
            strangers: Vec::new(),
        }
    }

    /// Waits until every rank has come.
    pub(super) fn fill(&mut self, listener: &UnixListener) -> Result<(), RendezvousError> {
        loop {
            self.accept(listener)?;
            self.listen_to_strangers()?;
            self.listen_to_guests(false)?;
            let missing: Vec<usize> = (1..self.meeting.size())
                .filter(|rank| self.guests[rank - 1].is_none())
                .map(|rank| self.meeting.job_rank(rank))
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            self.meeting.check_alarm()?;
            let now = Instant::now();
            if now >= self.deadline {
                return Err(RendezvousError::Missing {
                    missing,
                    size: self.meeting.size(),
                    waited_seconds: self.meeting.start_timeout.as_secs(),
                });
            }
            let next = self.strangers.iter().map(|stranger| stranger.deadline).min();
            let until = next.map_or(self.deadline, |next| next.min(self.deadline));
            self.sleep(Some(listener), until.saturating_duration_since(now))?;
        }
    }

    /// Waits until every rank has mapped the region.
    pub(super) fn wait_until_ready(&mut self) -> Result<(), RendezvousError> {
        loop {
            self.listen_to_guests(true)?;
            let guests = self.guests().filter(|(_, guest)| !guest.is_ready);
            let waiting: Vec<(usize, u32)> = guests.map(|(rank, guest)| (rank, guest.pid)).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            self.meeting.check_alarm()?;
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent(self.meeting, &waiting));
            }
            self.sleep(None, left)?;
        }
    }

    /// Sleeps until there is something to accept or to read, or it is time to ask the alarm.
    fn sleep(&self, listener: Option<&UnixListener>, timeout: Duration) -> Result<(), RendezvousError> {
        let timeout = match self.meeting.alarm {
            Some(_) => timeout.min(ALARM_INTERVAL),
            None => timeout,
        };
        let guests = self.guests.iter().flatten().map(|guest| &guest.connection);
        let strangers = self.strangers.iter().map(|stranger| &stranger.connection);
        let connections = guests.chain(strangers);
        let mut fds: Vec<PollFd<'_>> = (listener.into_iter().map(|listener| listener.as_fd()))
            .chain(connections.map(|connection| connection.stream().as_fd()))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&socket::timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system(self.meeting, "wait for the other ranks", error)),
        }
    }

    /// Lets in all who knock, of this user.
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
                        self.meeting,
                        "accept a rank",
                        Errno::from_raw_os_error(code),
                    ));
                }
            };
            let own = getuid().as_raw();
            match socket::credentials(&stream) {
                Ok(Credentials { uid, pid }) if uid == own => {
                    if self.strangers.len() == STRANGERS_MAX {
                        let oldest = self.strangers.remove(0);
                        tracing::warn!(
                            pid = oldest.pid,
                            "too many connections without a word; closing the oldest"
                        );
                    }
                    self.strangers.push(Stranger {
                        connection: Connection::accepted(stream),
                        pid,
                        deadline: Instant::now() + INTRODUCTION_TIMEOUT,
                    });
                }
                Ok(Credentials { uid, pid }) => {
                    tracing::warn!(
                        uid,
                        pid,
                        "another user's process knocked at this job's rendezvous; not let in"
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot see who knocked at this job's rendezvous; not let in")
                }
            }
        }
    }

    /// Hears what strangers have to say.
    fn listen_to_strangers(&mut self) -> Result<(), RendezvousError> {
        let mut index = 0;
        while index < self.strangers.len() {
            let stranger = &mut self.strangers[index];
            match stranger.read() {
                Reading::Unfinished => index += 1,
                Reading::Nobody(reason) => {
                    tracing::warn!(
                        pid = stranger.pid,
                        reason,
                        "not a rank of this job; connection closed"
                    );
                    self.strangers.remove(index);
                }
                Reading::Foreign(origin) => {
                    let own = Origin::own();
                    return Err(RendezvousError::Version {
                        pid: stranger.pid,
                        version: origin.version,
                        layout: origin.layout,
                        first_rank: self.meeting.own_job_rank(),
                        first_version: own.version,
                        first_layout: own.layout,
                    });
                }
                Reading::Hello(hello) => {
                    let pid = stranger.pid;
                    // Still a stranger if it does not fit, so that it is told with the others.
                    self.admit(&hello, pid)?;
                    let Stranger { connection, pid, .. } = self.strangers.remove(index);
                    // One that has gone again is noticed when it is listened to.
                    let _ = connection.send(Body::Admitted, &[], Instant::now());
                    self.guests[hello.rank - 1] = Some(Guest {
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

    /// Whether this rank can be one of us.
    fn admit(&self, hello: &Hello, pid: u32) -> Result<(), RendezvousError> {
        let (meeting, rank, size) = (self.meeting, hello.rank, self.meeting.size());
        let job_rank = hello.members.get(rank).copied().unwrap_or(rank);
        let agree = |what: &str, found: String, expected: String| match (shorten(&found), shorten(&expected))
        {
            (found, expected) if found == expected => Ok(()),
            (found, expected) => Err(RendezvousError::Disagreement {
                what: what.to_owned(),
                first_rank: meeting.own_job_rank(),
                expected,
                rank: job_rank,
                found,
            }),
        };
        // Two sizes of the whole job are easier to read than two lists.
        let whole = |members: &[usize]| members.iter().copied().eq(0..members.len());
        if whole(&hello.members) && whole(&meeting.members) {
            agree("job size", hello.members.len().to_string(), size.to_string())?;
        }
        let list = |members: &[usize]| format!("{members:?}");
        agree(
            "members of the process set",
            list(&hello.members),
            list(&meeting.members),
        )?;
        agree("host key", hello.host_key.clone(), meeting.host_key.clone())?;
        if rank >= size {
            return Err(RendezvousError::InvalidRank { rank, pid, size });
        }
        let first = match rank {
            0 => Some(std::process::id()),
            _ => self.guests[rank - 1].as_ref().map(|guest| guest.pid),
        };
        if let Some(first_pid) = first {
            return Err(RendezvousError::DuplicateRank {
                rank: job_rank,
                first_pid,
                pid,
            });
        }
        let names = |terms: &Terms| terms.iter().map(|(what, _)| what.clone()).collect::<Vec<_>>();
        agree(
            "terms",
            names(&hello.agreement).join(", "),
            names(&meeting.agreement).join(", "),
        )?;
        for ((what, expected), (_, found)) in meeting.agreement.iter().zip(&hello.agreement) {
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

    /// A rank that waits says nothing but that it is ready, if `may_be_ready`, or that it gives up; if it hangs up or
    /// says anything else, something is wrong.
    fn listen_to_guests(&mut self, may_be_ready: bool) -> Result<(), RendezvousError> {
        let meeting = self.meeting;
        for (&rank, guest) in meeting.members[1..].iter().zip(&mut self.guests) {
            let Some(guest) = guest else { continue };
            let malformed = |bytes, problem| RendezvousError::Malformed { rank, bytes, problem };
            match guest.connection.try_receive() {
                Ok(None) => match guest.connection.unread_bytes() {
                    0 => {}
                    bytes if may_be_ready => tracing::trace!(rank, bytes, "the beginning of a message"),
                    bytes => return Err(malformed(bytes, "spoke out of turn".to_owned())),
                },
                Ok(Some(Body::Ready)) if may_be_ready && !guest.is_ready => guest.is_ready = true,
                Ok(Some(Body::Refused(error))) => return Err(error),
                Ok(Some(body)) => {
                    return Err(malformed(0, shorten(&format!("out of turn: {body:?}"))));
                }
                Err(ReceiveError::Gone) => return Err(RendezvousError::Vanished { rank, pid: guest.pid }),
                Err(ReceiveError::Frame(problem, bytes)) => {
                    return Err(malformed(bytes, problem.to_string()));
                }
                Err(ReceiveError::System(error)) => {
                    return Err(guest.failed(meeting, rank, "hear from a rank", error));
                }
            }
        }
        Ok(())
    }

    /// Those who are here, with their job ranks.
    pub(super) fn guests(&self) -> impl Iterator<Item = (usize, &Guest)> {
        let members = self.meeting.members[1..].iter();
        members
            .zip(&self.guests)
            .filter_map(|(&rank, guest)| Some((rank, guest.as_ref()?)))
    }

    /// Hands over all of them, when all are here.
    pub(super) fn take_guests(&mut self) -> Vec<Guest> {
        let guests = self.guests.drain(..);
        guests.map(|guest| guest.expect("all are here")).collect()
    }

    /// Tells everyone why it comes to nothing, strangers too: one of them may be the reason.
    pub(super) fn refuse_all(&self, error: &RendezvousError) {
        let guests = self.guests().map(|(_, guest)| &guest.connection);
        let strangers = self.strangers.iter().map(|stranger| &stranger.connection);
        for connection in guests.chain(strangers) {
            refuse(connection, error);
        }
    }

    /// Tells those who come after the end, until as many have come as there are ranks or the time is over.
    pub(super) fn refuse_latecomers(&mut self, listener: &UnixListener, error: &RendezvousError) {
        let deadline = Instant::now() + FAREWELL_TIMEOUT;
        let told = self.guests().count() + self.strangers.len();
        let mut expected = (self.meeting.size() - 1).saturating_sub(told);
        self.guests.clear();
        self.strangers.clear();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // An error here would only hide the one that there is to tell.
            if expected == 0
                || left.is_zero()
                || self.sleep(Some(listener), left).is_err()
                || self.accept(listener).is_err()
            {
                return;
            }
            for stranger in self.strangers.drain(..) {
                refuse(&stranger.connection, error);
                expected = expected.saturating_sub(1);
            }
        }
    }
}

/// Who has gone need not be told, and for who does not read there is no waiting.
fn refuse(connection: &Connection, error: &RendezvousError) {
    let _ = connection.send(Body::Refused(error.clone()), &[], Instant::now());
}

impl Guest {
    /// A failed call on the connection to this rank, whose job rank is `rank`, as an error.
    pub(super) fn failed(&self, meeting: &Meeting, rank: usize, what: &str, error: Errno) -> RendezvousError {
        match error {
            Errno::PIPE | Errno::CONNRESET => RendezvousError::Vanished { rank, pid: self.pid },
            Errno::TIMEDOUT => silent(meeting, &[(rank, self.pid)]),
            error => system(meeting, &format!("{what} (rank {rank})"), error),
        }
    }
}

impl Stranger {
    fn read(&mut self) -> Reading {
        match self.connection.try_receive() {
            Ok(None) if Instant::now() >= self.deadline => Reading::Nobody(format!(
                "only {} bytes in {} s",
                self.connection.unread_bytes(),
                INTRODUCTION_TIMEOUT.as_secs()
            )),
            Ok(None) => Reading::Unfinished,
            Ok(Some(Body::Hello(_))) if self.connection.unread_bytes() > 0 => {
                Reading::Nobody("more after the introduction".to_owned())
            }
            Ok(Some(Body::Hello(hello))) => Reading::Hello(hello),
            Ok(Some(body)) => Reading::Nobody(shorten(&format!("said {body:?} first"))),
            Err(ReceiveError::Frame(FrameError::Foreign(origin), _)) => Reading::Foreign(origin),
            Err(ReceiveError::Frame(error, _)) => Reading::Nobody(error.to_string()),
            Err(ReceiveError::Gone) => {
                Reading::Nobody(format!("hung up after {} bytes", self.connection.unread_bytes()))
            }
            Err(ReceiveError::System(error)) => Reading::Nobody(error.to_string()),
        }
    }
}
