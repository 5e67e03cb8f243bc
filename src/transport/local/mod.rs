//! Local transport: control messages among the ranks of one host, through shared memory and
//! futexes.
//!
//! A transport serves the ranks of one process set, by their set ranks; errors and warnings name
//! job ranks. A process may have any number of transports at once: they share nothing.
//!
//! A rank does not send messages: it writes into its own part of a region that all ranks have
//! mapped, and raises a counter that the others wait on. The modules are: `rendezvous` (finds the
//! ranks and creates the region), `layout` (its layout), `snapshot` and `mailbox` (blocks and
//! frames of a cycle), `doorbell` (wake-ups), `peers` (detection of ranks that have died, left or
//! fallen silent), `cores` (cores of the ranks).
//!
//! In a forked child all of this has no effect: the region is not mapped there, and dropping it
//! does nothing.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, getpid};

use crate::error::Error;
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{Area, Watch};
use crate::transport::{Combine, Contribution, Doorbell, Transport, leave_when_dropped};

mod client;
mod cores;
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

pub(crate) use doorbell::own_bell;
pub(crate) use error::RendezvousError;

use doorbell::LocalDoorbell;
use layout::Layout;
use mailbox::Mailboxes;
use peers::Peers;
use snapshot::Snapshot;

/// Most ranks on one host: their pidfds are sent in one message, and every rank reads every other's
/// block.
pub(crate) const SIZE_MAX: usize = crate::identity::MAX_RANKS;

/// Local transport of one rank.
pub(crate) struct LocalTransport {
    rank: usize,
    members: Arc<[usize]>,
    snapshot: Snapshot,
    mailboxes: Mailboxes,
    doorbell: Arc<LocalDoorbell>,
    /// Last cycle entered; the doorbell reads it to find unanswered rings.
    entered: Arc<AtomicU64>,
    peers: Arc<Peers>,
    left: bool,
    owner: Pid,
}

/// Result of a rendezvous.
pub(crate) struct Opened {
    /// Transport for control.
    pub(crate) transport: LocalTransport,
    /// Part of the region for the collective, zero at first, page-aligned.
    pub(crate) data: Area,
    /// Check that the collective calls during its own waits, by set rank; its errors name job
    /// ranks.
    pub(crate) watch: Arc<dyn Watch>,
    /// Time for which a wait spins before it sleeps.
    pub(crate) spin: Duration,
}

impl LocalTransport {
    /// Runs the rendezvous with the other ranks and sets up the shared region: blocks of up to
    /// `cache_words` words of ready bits, and `data_bytes` bytes for the collective. Both numbers
    /// must be equal on all ranks, and are compared. `patience` is called with the number of cores
    /// of all ranks together, if the kernel tells it.
    ///
    /// # Errors
    /// Any [`RendezvousError`].
    pub(crate) fn open(
        config: &RendezvousConfig,
        cache_words: usize,
        data_bytes: usize,
        patience: impl FnOnce(Option<usize>) -> Patience,
    ) -> Result<Opened, RendezvousError> {
        let layout = Layout {
            size: config.size(),
            cache_words,
            data_bytes,
        };
        let connected = rendezvous::connect(config, &layout)?;
        let patience = patience(cores::of(connected.peers.iter().map(|peer| peer.pid)));
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
            spin,
        })
    }
}

impl LocalTransport {
    /// Calls `outer` during waits for others, too.
    pub(crate) fn heed(&self, outer: peers::OuterWatch) {
        self.peers.heed(outer);
    }

    /// Announces that this rank enters `cycle`, for a caller that uses the other methods instead of
    /// [`exchange`](Transport::exchange).
    pub(crate) fn enter(&self, cycle: u64) {
        self.entered.store(cycle, Ordering::Release);
    }
}

impl LocalTransport {
    /// Job rank of this rank, for errors.
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
            // Threads that sleep with pending work must check at once.
            self.doorbell.alarm();
        }
    }
}

impl Drop for LocalTransport {
    /// Leaves, unless the rank has left before.
    fn drop(&mut self) {
        let rank = self.job_rank();
        leave_when_dropped(self, rank);
    }
}
