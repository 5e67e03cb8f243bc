//! Rendezvous: how the ranks of one host find each other and come to share a region.
//!
//! The ranks that meet are those of the whole job or those of one of its process sets; each meeting has a name and a
//! region of its own, and knows nothing of the others. Here ranks are counted within the meeting, *set ranks*,
//! 0..size; whatever a user reads names the *job rank*. In what follows, rank 0 is the first of those who meet.
//!
//! Rank 0 listens on an abstract Unix socket whose name all ranks can work out, so nothing is left in a file
//! system; the others knock until it is there. All or nothing: rank 0 hands out the region and the ranks' pidfds
//! only when everyone has come and fits, and everyone starts only when all have mapped it. If it comes to nothing,
//! rank 0 tells everyone why, and all return the same error.
//!
//! ```text
//! rank r                         rank 0
//!   connect, uid of rank 0       uid of rank r
//!   Hello ────────────────────►  build, members, rank, sizes, host key, agreement, time left
//!   ◄─────────────── Admitted    … until all are here
//!   ◄─────────── Welcome + fds   region created, pidfds opened
//!   map, Ready ───────────────►  … until all are ready
//!   ◄──────────────────── Go     or Refused(why), at any point before the first Go
//! ```
//!
//! The start has two phases. Until every rank has mapped the region, the death of any of them ends the meeting for
//! all, and rank 0 says which rank it was. From the first `Go` on, rank 0 refuses nobody: every rank then has the
//! others' pidfds and the region, so a rank that dies is found and named by each of them, as at any later time.
//!
//! One deadline covers all of it. Each rank counts the start timeout from its own call; it tells rank 0 how much is left,
//! and rank 0 ends the meeting when the first rank's time is up. So it is rank 0 that says who is missing or silent; a
//! rank that does not hear it gives up [`GRACE`] later. Nothing is sent to a process of another user, and nothing that
//! is received is believed before it is checked.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::getuid;

use crate::error::Error;
use crate::identity::digest;
use crate::shm::{Area, Region};

use super::error::RendezvousError;
use super::layout::Layout;
use super::peers::{Lifeline, Peer, is_stopped};
use super::socket::{self, Credentials};
use super::{SIZE_MAX, client, distribute, memory};

/// How much longer than its start timeout a rank waits for rank 0's word on why the meeting has failed.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// How long the holder of the socket's name, or a connection to it, may take to introduce itself.
pub(super) const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// What ranks that meet must have in common, in the words of a user, and this rank's value: `process sets` and
/// `[0, 1] [1, 2]`, or a knob's variable and its value. In the same order on all ranks.
pub(crate) type Terms = Vec<(String, String)>;

/// Whom to meet, where, and how long to wait.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// What all ranks that meet have in common and no other job or set of this user on this host has.
    pub(crate) job_key: String,
    /// How many contexts this job has had before: each meeting has its own name.
    pub(crate) init: u32,
    /// This rank among those that meet: an index into `members`.
    pub(crate) rank: usize,
    /// The job ranks of those that meet, distinct, in the order of their set ranks; for the job itself, `0..size`.
    /// Compared.
    pub(crate) members: Arc<[usize]>,
    /// How long the meeting may take from this rank's call on, until all ranks have the start.
    pub(crate) start_timeout: Duration,
    /// The host as this rank knows it; compared.
    pub(crate) host_key: String,
    /// What else must be the same on all ranks. Compared.
    pub(crate) agreement: Terms,
    /// Asked now and then while this rank waits for others, who may have died since they agreed to come.
    pub(crate) alarm: Option<Alarm>,
}

/// Says why nobody need be waited for any more.
#[derive(Clone)]
pub(crate) struct Alarm(pub(crate) Arc<dyn Fn() -> Option<Error> + Send + Sync>);

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alarm")
    }
}

/// How often the alarm is asked.
pub(super) const ALARM_INTERVAL: Duration = Duration::from_millis(200);

impl Meeting {
    /// Fails if the alarm has been raised.
    pub(super) fn check_alarm(&self) -> Result<(), RendezvousError> {
        match self.alarm.as_ref().and_then(|alarm| (alarm.0)()) {
            Some(error) => Err(RendezvousError::Ended {
                reason: error.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Number of ranks that meet.
    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// What users call set rank `rank`.
    pub(super) fn job_rank(&self, rank: usize) -> usize {
        self.members[rank]
    }

    /// What users call this rank.
    pub(super) fn own_job_rank(&self) -> usize {
        self.job_rank(self.rank)
    }
}

/// What comes of it.
#[derive(Debug)]
pub(super) struct Met {
    /// The region shared, stamped with its layout.
    pub(super) region: Area,
    /// All ranks, in order, this one included.
    pub(super) peers: Vec<Peer>,
}

/// Meets the other ranks.
///
/// # Errors
/// Any [`RendezvousError`], the same on all ranks that had arrived.
pub(super) fn meet(meeting: &Meeting, layout: &Layout) -> Result<Met, RendezvousError> {
    let (rank, size) = (meeting.rank, meeting.size());
    if rank >= size {
        return Err(RendezvousError::InvalidRank {
            rank,
            pid: std::process::id(),
            size,
        });
    }
    if size > SIZE_MAX {
        return Err(RendezvousError::TooManyRanks {
            size,
            size_max: SIZE_MAX,
        });
    }
    if size == 1 {
        let (region, _file) = create_region(meeting, layout)?;
        let peers = vec![Peer {
            pid: std::process::id(),
            lifeline: Lifeline::Own,
        }];
        return Ok(Met { region, peers });
    }
    match rank {
        0 => distribute::meet(meeting, layout, super::socket::open_pidfd),
        _ => client::meet(meeting, layout),
    }
}

/// Where the ranks meet: `@ronde-<uid>-<hash>`, of the job key and the number of the meeting.
///
/// All users of the host can list the names in use (`/proc/net/unix`). A hash, so that one name gives away neither the
/// key nor the job's next names.
pub(super) fn name(meeting: &Meeting) -> String {
    let hash = digest(format!("{}\0{}", meeting.job_key, meeting.init).as_bytes());
    format!("ronde-{}-{hash}", getuid().as_raw())
}

/// The address of [`name`].
pub(super) fn address(meeting: &Meeting) -> Result<SocketAddr, RendezvousError> {
    SocketAddr::from_abstract_name(name(meeting)).map_err(|error| {
        let code = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        system(meeting, "name the meeting point", Errno::from_raw_os_error(code))
    })
}

/// Makes the region, after a look at whether there is room for it.
pub(super) fn create_region(
    meeting: &Meeting,
    layout: &Layout,
) -> Result<(Area, rustix::fd::OwnedFd), RendezvousError> {
    let bytes = layout.bytes();
    memory::check_creation(meeting.own_job_rank(), bytes)?;
    let (region, file) = Region::create("ronde", bytes)
        .map_err(|error| system(meeting, &format!("create {bytes} bytes of shared memory"), error))?;
    let region = Area::whole(Arc::new(region));
    layout.stamp(&region);
    Ok((region, file))
}

/// The end of a timeout that starts now; a day from now where the clock cannot hold it.
pub(super) fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout)
        .unwrap_or(now + Duration::from_secs(86_400))
}

/// A failed call on this rank, as an error.
pub(super) fn system(meeting: &Meeting, what: &str, error: Errno) -> RendezvousError {
    RendezvousError::System {
        rank: meeting.own_job_rank(),
        what: what.to_owned(),
        code: error.raw_os_error(),
    }
}

/// The process that holds the socket's name, at the other end of `stream`, if it is this user's.
///
/// # Errors
/// Another user's.
pub(super) fn check_holder(meeting: &Meeting, stream: &UnixStream) -> Result<Credentials, RendezvousError> {
    let found = socket::credentials(stream)
        .map_err(|error| system(meeting, "see who listens for this job", error))?;
    let expected = getuid().as_raw();
    match found.uid == expected {
        true => Ok(found),
        false => Err(RendezvousError::ForeignUser {
            rank: meeting.own_job_rank(),
            pid: found.pid,
            found: found.uid,
            expected,
        }),
    }
}

/// Ranks, as job ranks with their processes, that have come and do not answer.
pub(super) fn silent(meeting: &Meeting, ranks: &[(usize, u32)]) -> RendezvousError {
    let stopped = ranks.iter().filter(|&&(_, pid)| pid != 0 && is_stopped(pid));
    RendezvousError::Silent {
        ranks: ranks.iter().map(|&(rank, _)| rank).collect(),
        pids: ranks.iter().map(|&(_, pid)| pid).collect(),
        stopped: stopped.map(|&(rank, _)| rank).collect(),
        waited_seconds: meeting.start_timeout.as_secs(),
    }
}
