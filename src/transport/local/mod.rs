//! The local transport: ranks of one host, through shared memory and futexes.
//!
//! A transport serves the ranks of one process set: all of the job's, or some of them, whom it knows by their set
//! ranks; whom it names in an error or a warning, it names by the job rank. A process may have any number of them at
//! once: they share nothing.
//!
//! Nothing here is sent: a rank writes into its own part of a region that all have mapped, and raises a counter
//! that the others wait on. The files are the steps of its life: `rendezvous` (who are we, and where is the
//! region), `layout` (what lies where in it), `snapshot` and `mailbox` (the cycle's two kinds of traffic),
//! `doorbell` (waking one another), `peers` (who has died, left or fallen silent).
//!
//! In a forked child nothing here acts: the region is not mapped there, and dropping it does nothing.

use std::sync::Arc;

use rustix::process::{Pid, getpid};

use crate::error::Error;
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{Area, Watch};
use crate::transport::{Combine, Contribution, Doorbell, Transport, leave_when_dropped};

mod client;
mod distribute;
mod doorbell;
mod error;
mod layout;
mod mailbox;
mod memory;
mod peers;
mod rendezvous;
mod server;
mod snapshot;
mod socket;
mod wire;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(feature = "mpi")]
pub(crate) use doorbell::own_bell;
pub(crate) use error::RendezvousError;

use doorbell::LocalDoorbell;
use layout::Layout;
use mailbox::Mailboxes;
use peers::Peers;
use snapshot::Snapshot;

/// Most ranks on one host: their pidfds travel in one message, and beyond this the exchange, in which every rank
/// reads every other's block, would want a tree.
pub(crate) const SIZE_MAX: usize = crate::identity::MAX_RANKS;

/// One rank's end of the local transport.
pub(crate) struct LocalTransport {
    rank: usize,
    members: Arc<[usize]>,
    snapshot: Snapshot,
    mailboxes: Mailboxes,
    doorbell: Arc<LocalDoorbell>,
    /// The last cycle entered; the doorbell knows by it what has been answered.
    entered: Arc<AtomicU64>,
    peers: Arc<Peers>,
    left: bool,
    owner: Pid,
}

/// Result of a rendezvous.
pub(crate) struct Opened {
    /// Control.
    pub(crate) transport: LocalTransport,
    /// The part of the region for the collective, zero at first, page-aligned.
    pub(crate) data: Area,
    /// Whom the collective asks during its own waits, by set rank; its errors name job ranks.
    pub(crate) watch: Arc<dyn Watch>,
}

impl LocalTransport {
    /// Meets the other ranks and sets up the shared region: blocks of up to `cache_words` words of ready bits, and
    /// `data_bytes` bytes for the collective. Both must be the same on all ranks, and are compared.
    ///
    /// # Errors
    /// Any [`RendezvousError`].
    pub(crate) fn open(
        config: &RendezvousConfig,
        cache_words: usize,
        data_bytes: usize,
        patience: Patience,
    ) -> Result<Opened, RendezvousError> {
        let layout = Layout {
            size: config.size(),
            cache_words,
            data_bytes,
        };
        let connected = rendezvous::connect(config, &layout)?;
        let parts = layout.split(&connected.region);
        let (rank, spin) = (config.rank, patience.spin);
        let set = parts.set;
        let stride = layout.set().slot_words();
        let entered = Arc::new(AtomicU64::new(0));
        let members = Arc::clone(&config.members);
        let peers = Peers::new(
            rank,
            members,
            connected.peers,
            parts.poison,
            parts.states,
            patience,
        );
        let peers = Arc::new(peers);
        let transport = Self {
            rank,
            members: Arc::clone(&config.members),
            snapshot: Snapshot::new(rank, cache_words, stride, set.slots, set.sequence, spin),
            mailboxes: Mailboxes::new(
                rank,
                Arc::clone(&config.members),
                set.sent,
                set.taken,
                set.chunks,
                spin,
            ),
            doorbell: Arc::new(LocalDoorbell::new(
                rank,
                set.rung,
                set.bells,
                Arc::clone(&entered),
                spin,
            )),
            entered,
            peers: Arc::clone(&peers),
            left: false,
            owner: getpid(),
        };
        Ok(Opened {
            transport,
            data: parts.data,
            watch: peers,
        })
    }
}

#[cfg(feature = "mpi")]
impl LocalTransport {
    /// Has `outer` asked during waits for others, too.
    pub(crate) fn heed(&self, outer: peers::OuterWatch) {
        self.peers.heed(outer);
    }

    /// Says that this rank enters `cycle`, for a caller that uses the other verbs in place of [`exchange`](Transport::exchange).
    pub(crate) fn enter(&self, cycle: u64) {
        self.entered.store(cycle, Ordering::Release);
    }
}

impl LocalTransport {
    /// What errors call this rank.
    fn job_rank(&self) -> usize {
        self.members[self.rank]
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// One host, one boot, one `CLOCK_MONOTONIC`.
    fn shares_clock(&self) -> bool {
        true
    }

    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        self.entered.store(cycle, Ordering::Release);
        let members = &self.members;
        self.snapshot
            .exchange(cycle, block, members, combine, &*self.peers)
    }

    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        self.mailboxes.gather(frame, frames, &*self.peers)
    }

    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        self.mailboxes.broadcast(frame, &*self.peers)
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::clone(&self.doorbell) as Arc<dyn Doorbell>
    }

    fn check_peers(&mut self) -> Result<(), Error> {
        self.peers.check_all()
    }

    fn leave(&mut self, because: Option<&Error>) {
        if self.left || getpid() != self.owner {
            return;
        }
        self.left = true;
        self.peers.leave(because);
        if because.is_some() {
            // Who sleeps with work pending shall look at once.
            self.doorbell.alarm();
        }
    }
}

impl Drop for LocalTransport {
    /// Leaves, if nobody has done it before.
    fn drop(&mut self) {
        let rank = self.job_rank();
        leave_when_dropped(self, rank);
    }
}
