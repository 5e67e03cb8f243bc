//! The rendezvous as rank 0 sees it: take the name, wait in the hall for everyone, hand out the region.

use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::error::RendezvousError;
use super::guest;
use super::hall::Hall;
use super::layout::Layout;
use super::peers::{Lifeline, Peer};
use super::rendezvous::{
    INTRODUCTION_TIMEOUT, Meeting, Met, address, check_holder, create_region, deadline, name, system,
};
use super::socket::{self, Connection};
use super::wire::{Body, Welcome};

/// Pause before another try for the name, when another process holds it and has gone or does not listen.
const NAME_PAUSE: Duration = Duration::from_millis(10);

/// Opens a pidfd of the process at the other end, if it can.
pub(super) type OpenPidfd = fn(&UnixStream) -> Option<OwnedFd>;

/// Meets the other ranks as rank 0.
///
/// # Errors
/// Any [`RendezvousError`]; every rank that has come is told.
pub(super) fn meet(
    meeting: &Meeting,
    layout: &Layout,
    open_pidfd: OpenPidfd,
) -> Result<Met, RendezvousError> {
    let deadline = deadline(meeting.start_timeout);
    let listener = listen(meeting, layout, deadline)?;
    let mut hall = Hall::new(meeting, layout, deadline);
    let outcome = hall.fill(&listener).and_then(|()| hall.conclude(open_pidfd));
    if let Err(error) = &outcome {
        hall.refuse_all(error);
        if Instant::now() < hall.deadline {
            hall.refuse_latecomers(&listener, error);
        }
    }
    outcome
}

/// Takes the job's name. If another process of this user has it, that one may be rank 0 too: it is told, and this one
/// with it. Any other holder is an error at once, or when it has had time to answer.
fn listen(meeting: &Meeting, layout: &Layout, deadline: Instant) -> Result<UnixListener, RendezvousError> {
    let address = address(meeting)?;
    let failed = |error: std::io::Error| {
        let code = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        system(
            meeting,
            "listen for the other ranks",
            Errno::from_raw_os_error(code),
        )
    };
    let answer_by = deadline.min(Instant::now() + INTRODUCTION_TIMEOUT);
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => {
                listener.set_nonblocking(true).map_err(failed)?;
                return Ok(listener);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(failed(error)),
        }
        let mut holder = None;
        if let Ok(stream) = socket::connect(&name(meeting)) {
            holder = Some(check_holder(meeting, &stream)?);
            let mut connection = Connection::connected(stream);
            guest::introduce(meeting, layout, &connection, deadline, answer_by)?;
            match guest::hear(meeting, &mut connection, answer_by) {
                // It has closed in the meantime: its meeting was another one, and the name is free again.
                Err(RendezvousError::Vanished { .. }) => {}
                Err(error) => return Err(error),
                // No rank 0 admits another one.
                Ok(_) => return Err(guest::name_held(meeting, holder)),
            }
        }
        if Instant::now() >= answer_by {
            return Err(guest::name_held(meeting, holder));
        }
        std::thread::sleep(NAME_PAUSE);
    }
}

impl Hall<'_> {
    /// All are here: makes the region, hands it out, and gives the start when everyone has it.
    fn conclude(&mut self, open_pidfd: OpenPidfd) -> Result<Met, RendezvousError> {
        let (region, file) = create_region(self.meeting, self.layout)?;
        let (welcome, pidfds) = self.identify(open_pidfd);
        let descriptors: Vec<_> = std::iter::once(file.as_fd())
            .chain(pidfds.iter().map(|pidfd| pidfd.as_fd()))
            .collect();
        for (rank, guest) in self.guests() {
            guest
                .connection
                .send(Body::Welcome(welcome.clone()), &descriptors, self.deadline)
                .map_err(|error| {
                    guest.failed(
                        self.meeting,
                        rank,
                        "send the job's memory and descriptors to a rank",
                        error,
                    )
                })?;
        }
        self.wait_until_ready()?;
        // From here on there is no way back: some have the start.
        for (rank, guest) in self.guests() {
            match guest.connection.send(Body::Go, &[], self.deadline) {
                Ok(()) => {}
                // It has died since. All ranks have its pidfd, or hear of it from this one, and will say so.
                Err(Errno::PIPE | Errno::CONNRESET) => {}
                Err(error) => tracing::error!(
                    rank,
                    pid = guest.pid,
                    %error,
                    "cannot give a rank the start; it will end with an error, and the others with it"
                ),
            }
        }
        let peers = self.lifelines(&welcome, &pidfds);
        Ok(Met { region, peers })
    }

    /// Process ids and pidfds of all ranks. Ranks of one process share a pidfd.
    fn identify(&self, open_pidfd: OpenPidfd) -> (Welcome, Vec<Arc<OwnedFd>>) {
        let mut welcome = Welcome {
            pids: vec![std::process::id()],
            pidfds: Vec::new(),
        };
        let mut pidfds: Vec<Arc<OwnedFd>> = Vec::new();
        // What the others will see of rank 0: one end of a pair is as good as a connection to it.
        let own = UnixStream::pair().ok().and_then(|(end, _other)| open_pidfd(&end));
        welcome.pidfds.push(own.map(|pidfd| {
            pidfds.push(Arc::new(pidfd));
            0
        }));
        for (job_rank, guest) in self.guests() {
            let known = welcome.pids.iter().position(|&pid| pid == guest.pid && pid != 0);
            let pidfd = match known {
                Some(same) => welcome.pidfds[same],
                None => open_pidfd(guest.connection.stream()).map(|pidfd| {
                    pidfds.push(Arc::new(pidfd));
                    pidfds.len() - 1
                }),
            };
            if pidfd.is_none() {
                tracing::warn!(
                    rank = job_rank,
                    pid = guest.pid,
                    "no pidfd for this rank (another pid namespace, or an old kernel); its connection is watched instead"
                );
            }
            welcome.pids.push(guest.pid);
            welcome.pidfds.push(pidfd);
        }
        (welcome, pidfds)
    }

    /// How rank 0 will learn of each rank's death.
    fn lifelines(&mut self, welcome: &Welcome, pidfds: &[Arc<OwnedFd>]) -> Vec<Peer> {
        let own_pidfd = welcome.pidfds[0];
        let guests = self.take_guests().into_iter();
        let ends: Vec<Arc<OwnedFd>> = guests
            .map(|guest| Arc::new(guest.connection.into_stream().into()))
            .collect();
        let own = Peer {
            pid: welcome.pids[0],
            lifeline: match own_pidfd {
                Some(_) => Lifeline::Own,
                None => Lifeline::Held { _ends: ends.clone() },
            },
        };
        let mut peers = vec![own];
        for (rank, end) in (1..).zip(ends) {
            let lifeline = match welcome.pidfds[rank] {
                None => Lifeline::Socket(end),
                Some(_) if welcome.pidfds[rank] == own_pidfd => Lifeline::Own,
                Some(index) => Lifeline::Pidfd(Arc::clone(&pidfds[index])),
            };
            peers.push(Peer {
                pid: welcome.pids[rank],
                lifeline,
            });
        }
        peers
    }
}
