//! The rendezvous as the ranks other than 0 see it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::getuid;

use crate::shm::{Area, Region};

use super::error::RendezvousError;
use super::layout::Layout;
use super::memory;
use super::peers::{Lifeline, Peer};
use super::rendezvous::{MAPPING_TIMEOUT, Meeting, Met, address, deadline, system};
use super::socket::{self, ReceiveError};
use super::wire::{Body, FrameError, Hello, Origin, Welcome, shorten};

/// Pauses between two knocks: from the first to the longest, doubling.
const KNOCK_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Rank 0 counts its patience from an earlier moment than a rank that has come; so if the meeting fails, it is
/// rank 0 that says so and names who is missing, and this much later that the others stop waiting for its word.
const GRACE: Duration = Duration::from_secs(2);

/// Meets rank 0 and through it the others.
///
/// # Errors
/// Any [`RendezvousError`].
pub(super) fn meet(meeting: &Meeting, layout: &Layout) -> Result<Met, RendezvousError> {
    let stream = knock(meeting)?;
    check_host(meeting, &stream)?;
    let come_by = deadline(meeting.start_timeout.saturating_add(GRACE));
    introduce(meeting, layout, &stream, come_by)?;
    let (body, descriptors) = answer(meeting, &stream, come_by)?;
    let Body::Welcome(welcome) = body else {
        return Err(unexpected(meeting, &body));
    };
    let mapped_by = deadline(MAPPING_TIMEOUT + GRACE);
    let mapped = map(meeting, layout, &welcome, descriptors);
    let report = match &mapped {
        Ok(_) => Body::Ready,
        Err(error) => Body::Refused(error.clone()),
    };
    send(meeting, &stream, report, mapped_by)?;
    let (region, pidfds) = mapped?;
    match answer(meeting, &stream, mapped_by)? {
        (Body::Go, _) => {}
        (body, _) => return Err(unexpected(meeting, &body)),
    }
    let peers = lifelines(meeting.rank, &welcome, &pidfds, stream);
    Ok(Met { region, peers })
}

/// Connects to rank 0 as soon as it listens.
fn knock(meeting: &Meeting) -> Result<UnixStream, RendezvousError> {
    let address = address(meeting)?;
    let deadline = deadline(meeting.start_timeout);
    let mut pause = KNOCK_PAUSES.0;
    loop {
        match UnixStream::connect_addr(&address) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let code = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
                return Err(system(
                    meeting,
                    &format!("connect to rank {}", meeting.job_rank(0)),
                    Errno::from_raw_os_error(code),
                ));
            }
        }
        meeting.check_alarm()?;
        if Instant::now() >= deadline {
            return Err(rank_0_is_missing(meeting));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(KNOCK_PAUSES.1);
    }
}

/// Anyone may take a name; only this user's processes are ranks.
fn check_host(meeting: &Meeting, stream: &UnixStream) -> Result<(), RendezvousError> {
    let found = socket::credentials(stream)
        .map_err(|error| system(meeting, "see who listens for this job", error))?;
    let expected = getuid().as_raw();
    match found.uid == expected {
        true => Ok(()),
        false => Err(RendezvousError::ForeignUser {
            found: found.uid,
            expected,
        }),
    }
}

/// Says who this rank is.
pub(super) fn introduce(
    meeting: &Meeting,
    layout: &Layout,
    stream: &UnixStream,
    deadline: Instant,
) -> Result<(), RendezvousError> {
    let hello = Hello {
        rank: meeting.rank,
        members: meeting.members.to_vec(),
        pid: std::process::id(),
        cache_words: layout.cache_words,
        region_bytes: layout.bytes(),
        host_key: shorten(&meeting.host_key),
        agreement: meeting
            .agreement
            .iter()
            .map(|(what, value)| (what.clone(), shorten(value)))
            .collect(),
    };
    send(meeting, stream, Body::Hello(hello), deadline)
}

fn send(
    meeting: &Meeting,
    stream: &UnixStream,
    body: Body,
    deadline: Instant,
) -> Result<(), RendezvousError> {
    match socket::send(stream, body, &[], deadline) {
        // Rank 0 has hung up; what it said before is still to be read, and better than this.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(system(
            meeting,
            &format!("write to rank {}", meeting.job_rank(0)),
            error,
        )),
    }
}

/// Rank 0's next message; a refusal becomes the error it carries.
pub(super) fn answer(
    meeting: &Meeting,
    stream: &UnixStream,
    deadline: Instant,
) -> Result<(Body, Vec<OwnedFd>), RendezvousError> {
    match socket::receive(stream, deadline) {
        Ok((Body::Refused(error), _)) => Err(error),
        Ok(message) => Ok(message),
        Err(ReceiveError::Gone) => Err(RendezvousError::Vanished {
            rank: meeting.job_rank(0),
            pid: socket::credentials(stream).map_or(0, |host| host.pid),
        }),
        Err(ReceiveError::Late) => Err(rank_0_is_missing(meeting)),
        Err(ReceiveError::Frame(FrameError::Foreign(rank0), _)) => {
            let own = Origin::own();
            Err(RendezvousError::Version {
                pid: std::process::id(),
                version: own.version,
                layout: own.layout,
                first_rank: meeting.job_rank(0),
                first_version: rank0.version,
                first_layout: rank0.layout,
            })
        }
        Err(ReceiveError::Frame(problem, bytes)) => Err(RendezvousError::Malformed {
            rank: meeting.job_rank(0),
            bytes,
            problem: problem.to_string(),
        }),
        Err(ReceiveError::System(error)) => Err(system(
            meeting,
            &format!(
                "receive shared memory and descriptors from rank {}",
                meeting.job_rank(0)
            ),
            error,
        )),
    }
}

/// Maps what came with the welcome; the first descriptor is the region's.
fn map(
    meeting: &Meeting,
    layout: &Layout,
    welcome: &Welcome,
    descriptors: Vec<OwnedFd>,
) -> Result<(Area, Vec<Arc<OwnedFd>>), RendezvousError> {
    let mut descriptors = descriptors.into_iter();
    let file = descriptors.next();
    let pidfds: Vec<Arc<OwnedFd>> = descriptors.map(Arc::new).collect();
    let named = welcome.pidfds.iter().flatten().all(|&index| index < pidfds.len());
    let complete = [welcome.pids.len(), welcome.pidfds.len()] == [meeting.size(); 2];
    let Some(file) = file.filter(|_| named && complete) else {
        return Err(unexpected(meeting, &Body::Welcome(welcome.clone())));
    };
    let bytes = layout.bytes();
    memory::check_mapping(meeting.own_job_rank(), bytes)?;
    let region = Region::map(&file, bytes)
        .map_err(|error| system(meeting, &format!("map {bytes} bytes of shared memory"), error))?;
    Ok((Area::whole(Arc::new(region)), pidfds))
}

/// How this rank will learn of each rank's death.
fn lifelines(rank: usize, welcome: &Welcome, pidfds: &[Arc<OwnedFd>], stream: UnixStream) -> Vec<Peer> {
    let end = Arc::new(OwnedFd::from(stream));
    let own_pidfd = welcome.pidfds[rank];
    let lifeline = |(peer, pidfd): (usize, &Option<usize>)| match *pidfd {
        None if peer == rank => Lifeline::Held {
            _ends: vec![Arc::clone(&end)],
        },
        None if peer == 0 => Lifeline::Socket(Arc::clone(&end)),
        None => Lifeline::Rank0,
        Some(_) if *pidfd == own_pidfd => Lifeline::Own,
        Some(index) => Lifeline::Pidfd(Arc::clone(&pidfds[index])),
    };
    let lifelines = welcome.pidfds.iter().enumerate().map(lifeline);
    let peers = welcome.pids.iter().zip(lifelines);
    peers.map(|(&pid, lifeline)| Peer { pid, lifeline }).collect()
}

fn rank_0_is_missing(meeting: &Meeting) -> RendezvousError {
    RendezvousError::Missing {
        missing: vec![meeting.job_rank(0)],
        size: meeting.size(),
        waited_seconds: meeting.start_timeout.as_secs(),
    }
}

fn unexpected(meeting: &Meeting, body: &Body) -> RendezvousError {
    RendezvousError::Malformed {
        rank: meeting.job_rank(0),
        bytes: 0,
        problem: format!("out of turn: {body:?}"),
    }
}
