//! Rendezvous: how the ranks of one host find each other and come to share a region.
//!
//! A rendezvous connects the ranks of the whole job or of one process set; each has a socket name and a region of its
//! own and is independent of the others. Ranks are counted within the set here (*set ranks*, 0..size); messages for users
//! name the *job rank*. In what follows, rank 0 is set rank 0.
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
//! The start has two phases. Until every rank has mapped the region, the death of any of them ends the rendezvous for
//! all, and rank 0 says which rank it was. From the first `Go` on, rank 0 refuses nobody: every rank then has the
//! others' pidfds and the region, so a rank that dies is found and named by each of them, as at any later time.
//!
//! One deadline covers all of it. Each rank counts the start timeout from its own call; it tells rank 0 how much is left,
//! and rank 0 ends the rendezvous when the first rank's time is up. So it is rank 0 that says who is missing or silent; a
//! rank that does not hear it gives up [`GRACE`] later. Nothing is sent to a process of another user, and nothing that
//! is received is believed before it is checked.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::getuid;

use crate::identity::digest;
use crate::rendezvous::RendezvousConfig;
use crate::shm::{Area, Region};

use super::error::RendezvousError;
use super::layout::Layout;
use super::peers::{Lifeline, Peer, is_stopped};
use super::socket::{self, Credentials};
use super::{SIZE_MAX, client, distribute, memory};

/// How much longer than its start timeout a rank waits for rank 0's error message after the rendezvous has failed.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// How long the holder of the socket's name, or a connection to it, may take to introduce itself.
pub(super) const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the alarm is asked.
pub(super) const ALARM_INTERVAL: Duration = Duration::from_millis(200);

impl RendezvousConfig {
    /// Fails if the alarm has been raised.
    pub(super) fn check_alarm(&self) -> Result<(), RendezvousError> {
        match self.alarm.as_ref().and_then(|alarm| (alarm.0)()) {
            Some(error) => Err(RendezvousError::Ended {
                reason: error.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Number of ranks of the set.
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

/// Result of a successful rendezvous.
#[derive(Debug)]
pub(super) struct Connected {
    /// The region shared, stamped with its layout.
    pub(super) region: Area,
    /// All ranks, in order, this one included.
    pub(super) peers: Vec<Peer>,
}

/// Runs the rendezvous with the other ranks.
///
/// # Errors
/// Any [`RendezvousError`], the same on all ranks that had arrived.
pub(super) fn connect(config: &RendezvousConfig, layout: &Layout) -> Result<Connected, RendezvousError> {
    let (rank, size) = (config.rank, config.size());
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
        let (region, _file) = create_region(config, layout)?;
        let peers = vec![Peer {
            pid: std::process::id(),
            lifeline: Lifeline::Own,
        }];
        return Ok(Connected { region, peers });
    }
    match rank {
        0 => distribute::serve(config, layout, super::socket::open_pidfd),
        _ => client::connect(config, layout),
    }
}

/// Name of the rendezvous socket: `@ronde-<uid>-<hash>`, of the job key and the number of the rendezvous.
///
/// All users of the host can list the names in use (`/proc/net/unix`). A hash, so that one name gives away neither the
/// key nor the job's next names.
pub(super) fn name(config: &RendezvousConfig) -> String {
    let hash = digest(format!("{}\0{}", config.job_key, config.init).as_bytes());
    format!("ronde-{}-{hash}", getuid().as_raw())
}

/// The address of [`name`].
pub(super) fn address(config: &RendezvousConfig) -> Result<SocketAddr, RendezvousError> {
    SocketAddr::from_abstract_name(name(config)).map_err(|error| {
        let code = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        system(
            config,
            "name the rendezvous socket",
            Errno::from_raw_os_error(code),
        )
    })
}

/// Makes the region, after a look at whether there is room for it.
pub(super) fn create_region(
    config: &RendezvousConfig,
    layout: &Layout,
) -> Result<(Area, rustix::fd::OwnedFd), RendezvousError> {
    let bytes = layout.bytes();
    memory::check_creation(config.own_job_rank(), bytes)?;
    let (region, file) = Region::create("ronde", bytes)
        .map_err(|error| system(config, &format!("create {bytes} bytes of shared memory"), error))?;
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
pub(super) fn system(config: &RendezvousConfig, what: &str, error: Errno) -> RendezvousError {
    RendezvousError::System {
        rank: config.own_job_rank(),
        what: what.to_owned(),
        code: error.raw_os_error(),
    }
}

/// The process that holds the socket's name, at the other end of `stream`, if it is this user's.
///
/// # Errors
/// Another user's.
pub(super) fn check_holder(
    config: &RendezvousConfig,
    stream: &UnixStream,
) -> Result<Credentials, RendezvousError> {
    let found =
        socket::credentials(stream).map_err(|error| system(config, "see who listens for this job", error))?;
    let expected = getuid().as_raw();
    match found.uid == expected {
        true => Ok(found),
        false => Err(RendezvousError::ForeignUser {
            rank: config.own_job_rank(),
            pid: found.pid,
            found: found.uid,
            expected,
        }),
    }
}

/// Ranks, as job ranks with their processes, that have come and do not answer.
pub(super) fn silent(config: &RendezvousConfig, ranks: &[(usize, u32)]) -> RendezvousError {
    let stopped = ranks.iter().filter(|&&(_, pid)| pid != 0 && is_stopped(pid));
    RendezvousError::Silent {
        ranks: ranks.iter().map(|&(rank, _)| rank).collect(),
        pids: ranks.iter().map(|&(_, pid)| pid).collect(),
        stopped: stopped.map(|&(rank, _)| rank).collect(),
        waited_seconds: config.start_timeout.as_secs(),
    }
}
