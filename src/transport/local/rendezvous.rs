//! Rendezvous: the ranks of one host find each other and map a shared region.
//!
//! A rendezvous connects the ranks of the whole job or of one process set. Each rendezvous has its
//! own socket name and region and is independent of the others. Ranks are counted within the set
//! here (*set ranks*, 0..size); messages for users name the *job rank*. Below, rank 0 is set rank
//! 0.
//!
//! Rank 0 listens on an abstract Unix socket with a name that all ranks can compute, so no file is
//! left behind; the other ranks try to connect until it listens. The rendezvous succeeds on all
//! ranks or on none: rank 0 sends the region and the ranks' pidfds only when all ranks have arrived
//! and match, and a rank starts only when all have mapped the region. If the rendezvous fails, rank
//! 0 sends the reason to every rank, and all return the same error.
//!
//! ```text
//! rank r                         rank 0
//!   connect, uid of rank 0       uid of rank r
//!   Hello ────────────────────►  build, members, rank, sizes, host key, contract, time left
//!   ◄─────────────── Admitted    … until all have arrived
//!   ◄─────────── Welcome + fds   region created, pidfds opened
//!   map, Ready ───────────────►  … until all are ready
//!   ◄──────────────────── Go     or Refused(error), at any time before the first Go
//! ```
//!
//! The start has two phases. Until every rank has mapped the region, the death of a rank ends the
//! rendezvous for all, and rank 0 names that rank. From the first `Go` on, rank 0 refuses no rank:
//! every rank then has the others' pidfds and the region, so each of them detects and names a rank
//! that dies, as at any later time.
//!
//! One deadline covers all of it. Each rank counts the start timeout from its own call and sends
//! the remaining time to rank 0. Rank 0 ends the rendezvous when the first rank's time has passed.
//! So rank 0 names the ranks that are missing or silent; a rank that receives no message from it
//! gives up [`GRACE`] later. Nothing is sent to a process of another user, and all received data is
//! checked before it is used.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::geteuid;

use crate::identity::digest;
use crate::rendezvous::RendezvousConfig;
use crate::shm::{Area, Region};

use super::error::RendezvousError;
use super::layout::Layout;
use super::peers::{Lifeline, Peer, is_stopped};
use super::socket::{self, Credentials};
use super::{SIZE_MAX, client, distribute, memory};

/// Time that a rank waits for rank 0's error message, after its own start timeout.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Time that the holder of the socket's name, or a connection to it, has for its first message.
pub(super) const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two calls of the alarm.
pub(super) const ALARM_INTERVAL: Duration = Duration::from_millis(200);

impl RendezvousConfig {
    /// Returns the alarm's error, if it has one.
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

    /// Job rank of set rank `rank`, for errors.
    pub(super) fn job_rank(&self, rank: usize) -> usize {
        self.members[rank]
    }

    /// Job rank of this rank, for errors.
    pub(super) fn own_job_rank(&self) -> usize {
        self.job_rank(self.rank)
    }
}

/// Result of a successful rendezvous.
#[derive(Debug)]
pub(super) struct Connected {
    /// The shared region, stamped with its layout.
    pub(super) region: Area,
    /// All ranks, in order, this one included.
    pub(super) peers: Vec<Peer>,
}

/// Runs the rendezvous with the other ranks.
///
/// # Errors
/// Any [`RendezvousError`], the same on all ranks that had arrived.
pub(super) fn connect(
    config: &RendezvousConfig,
    layout: &Layout,
) -> Result<Connected, RendezvousError> {
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

/// Name of the rendezvous socket: `@ronde-<uid>-<hash>`, of the job key and the number of the
/// rendezvous.
///
/// All users of the host can list the names in use (`/proc/net/unix`). The name is a hash, so that
/// it reveals neither the key nor the job's next names.
pub(super) fn name(config: &RendezvousConfig) -> String {
    let hash = digest(format!("{}\0{}", config.job_key, config.init).as_bytes());
    format!("ronde-{}-{hash}", geteuid().as_raw())
}

/// Address of [`name`].
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

/// Creates the region, after a check of the available memory.
pub(super) fn create_region(
    config: &RendezvousConfig,
    layout: &Layout,
) -> Result<(Area, rustix::fd::OwnedFd), RendezvousError> {
    let bytes = layout.bytes();
    memory::check_creation(config.own_job_rank(), bytes)?;
    let (region, file) = Region::create("ronde", bytes).map_err(|error| {
        system(
            config,
            &format!("create {bytes} bytes of shared memory (memfd_create)"),
            error,
        )
    })?;
    let region = Area::whole(Arc::new(region));
    layout.stamp(&region);
    Ok((region, file))
}

/// End of a timeout that starts now; a day from now if the clock cannot represent it.
pub(super) fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout)
        .unwrap_or(now + Duration::from_secs(86_400))
}

/// Error for a failed system call of this rank.
pub(super) fn system(config: &RendezvousConfig, what: &str, error: Errno) -> RendezvousError {
    RendezvousError::System {
        rank: config.own_job_rank(),
        what: what.to_owned(),
        code: error.raw_os_error(),
    }
}

/// Returns the process that holds the socket's name, at the other end of `stream`, if it is this
/// user's.
///
/// # Errors
/// The process belongs to another user.
pub(super) fn check_holder(
    config: &RendezvousConfig,
    stream: &UnixStream,
) -> Result<Credentials, RendezvousError> {
    let found = socket::credentials(stream).map_err(|error| {
        system(
            config,
            "read the credentials of the process that listens for this job",
            error,
        )
    })?;
    let expected = geteuid().as_raw();
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

/// Error for ranks (job ranks with their processes) that have arrived and do not answer.
pub(super) fn silent(config: &RendezvousConfig, ranks: &[(usize, u32)]) -> RendezvousError {
    let stopped = ranks
        .iter()
        .filter(|&&(_, pid)| pid != 0 && is_stopped(pid));
    RendezvousError::Silent {
        ranks: ranks.iter().map(|&(rank, _)| rank).collect(),
        pids: ranks.iter().map(|&(_, pid)| pid).collect(),
        stopped: stopped.map(|&(rank, _)| rank).collect(),
        waited_seconds: config.start_timeout.as_secs(),
    }
}
