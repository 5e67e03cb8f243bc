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
//!   connect, Hello ───────────►  uid, build, members, rank, sizes, host key, agreement
//!                                … until all are here
//!   ◄─────────── Welcome + fds   region created, pidfds opened
//!   map, Ready ───────────────►
//!   ◄──────────────────── Go     or Refused(why), at any point
//! ```

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::getuid;

use crate::error::Error;
use crate::shm::{Area, Region};

use super::error::RendezvousError;
use super::layout::{FNV_OFFSET, Layout, fnv1a};
use super::peers::{Lifeline, Peer};
use super::{SIZE_MAX, guest, host, memory};

/// Longest job key that goes into the socket's name as it is; the name has room for 107 bytes.
const KEY_BYTES_MAX: usize = 64;

/// How long everyone together has to map the region, once all are here.
pub(super) const MAPPING_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// How long to wait for the others.
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
        0 => host::meet(meeting, layout, super::socket::open_pidfd),
        _ => guest::meet(meeting, layout),
    }
}

/// Where the ranks meet: `@ronde-<uid>-<job key>-<init>`.
pub(super) fn address(meeting: &Meeting) -> Result<SocketAddr, RendezvousError> {
    let mut key = meeting.job_key.clone();
    if key.len() > KEY_BYTES_MAX {
        key = format!("{:016x}", fnv1a(FNV_OFFSET, key.as_bytes()));
    }
    let name = format!("ronde-{}-{key}-{}", getuid().as_raw(), meeting.init);
    SocketAddr::from_abstract_name(name).map_err(|error| {
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
