//! The control interface: ranks exchange what is ready, and wake one another.
//!
//! A [`Transport`] knows ranks, cycles and bytes; it knows nothing of tensors. It has three verbs:
//! [`exchange`](Transport::exchange) brings one block of words from every rank to all and combines them with a function that
//! the caller supplies,
//! [`gather`](Transport::gather) and [`broadcast`](Transport::broadcast) carry what is not cached through rank 0.
//! Its [`Doorbell`] is the part that submitting threads may touch: a hint that a cycle is wanted, never an input
//! to what the cycle decides.

use std::sync::Arc;

use crate::clock::Nanos;
use crate::error::{Error, LimitError, PeerError};

mod block;
pub(crate) mod local;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use block::{BLOCK_HEAD_WORDS_MAX, Combine, Contribution, RankBlock};

/// Most bytes of a frame: some 500,000 requests.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

/// Moves control data among the ranks of one process set. Blocks and frames are collective: every rank makes these
/// calls in the same order. Ranks are counted within the set; errors name them as the job does.
pub(crate) trait Transport: Send {
    /// This rank, `0..size`.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Whether all ranks read the same clock, as those of one boot do. Where they do not, the cycle has them compared.
    fn shares_clock(&self) -> bool;

    /// Publishes this rank's block for `cycle` (1, 2, 3, …), waits until every rank has published its own, and combines all of
    /// them in rank order.
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the shutdown limit; [`PeerError::InvalidData`] for a block of another cycle,
    /// version or length, and for one that `combine` refuses.
    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error>;

    /// Brings every rank's frame to rank 0, in rank order; on the other ranks `frames` stays empty.
    ///
    /// # Errors
    /// As for [`exchange`](Self::exchange), and frames longer than [`FRAME_BYTES_MAX`].
    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error>;

    /// Brings rank 0's frame to every rank; on the others it replaces what `frame` held.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error>;

    /// The wake-up side, shared with submitting threads.
    fn doorbell(&self) -> Arc<dyn Doorbell>;

    /// Looks for peers that died, left or stalled, without waiting. Called while work is pending but no cycle runs.
    ///
    /// # Errors
    /// The first such peer.
    fn check_peers(&mut self) -> Result<(), Error>;

    /// Tells the peers that this rank leaves for good, in order (`None`) or because of an error, so that they
    /// report it instead of waiting for this rank.
    fn leave(&mut self, because: Option<&Error>);
}

/// Fails if this rank's frame, which is job rank `rank`'s, is too long to be sent.
fn check_own_frame(rank: usize, frame: &[u8]) -> Result<(), Error> {
    if frame.len() <= FRAME_BYTES_MAX {
        return Ok(());
    }
    Err(LimitError::ControlFrame {
        rank,
        bytes: frame.len(),
        limit_bytes: FRAME_BYTES_MAX,
    }
    .into())
}

/// The length of a frame from job rank `rank`, if it is one.
fn check_length(rank: usize, bytes: u64) -> Result<usize, Error> {
    let length = usize::try_from(bytes)
        .ok()
        .filter(|&length| length <= FRAME_BYTES_MAX);
    length.ok_or_else(|| {
        Error::Peer(PeerError::InvalidData {
            rank,
            problem: format!("a frame of {bytes} bytes, where the limit is {FRAME_BYTES_MAX}"),
        })
    })
}

/// Leaves, for a transport of job rank `rank` that is dropped: a rank that is still alive but will never answer must not be
/// waited for.
fn leave_when_dropped(transport: &mut dyn Transport, rank: usize) {
    let panicked = std::thread::panicking().then(|| Error::Internal {
        rank,
        message: "a panic".to_owned(),
    });
    transport.leave(panicked.as_ref());
}

/// Who parks at the doorbell: at most one of each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The rank's own cycle thread.
    Background,
    /// A caller that drives the cycle from inside `wait`. While one is [present](Doorbell::present), rings wake
    /// it and not the background thread.
    Driver,
}

/// Park: how long a thread sleeps and which events wake it. A ring is counted in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// Until the cycle time has passed; ends early when every rank is eager, but not for a ring: the cycle it
    /// asks for could not start sooner anyway, and waking a thread costs more than a small allreduce.
    Pace(Nanos),
    /// Until somebody rings, or until this time.
    Idle(Option<Nanos>),
}

impl Park {
    /// The same, but no longer than until `deadline`.
    pub(crate) fn until(self, deadline: Option<Nanos>) -> Self {
        let Some(deadline) = deadline else { return self };
        match self {
            Self::Pace(end) => Self::Pace(end.min(deadline)),
            Self::Idle(end) => Self::Idle(Some(end.map_or(deadline, |end| end.min(deadline)))),
        }
    }
}

/// Wake-ups among ranks. Everything here is a hint: a lost or false wake-up may cost time, never correctness.
pub(crate) trait Doorbell: Send + Sync {
    /// Asks every rank to join `cycle`. The highest cycle asked for counts.
    fn ring(&self, cycle: u64);

    /// The highest cycle that any rank asked for.
    fn rung(&self) -> u64;

    /// Says that this rank would start `cycle` at once: it has submitted all it expects to, or is blocked in
    /// `wait`. The rank that completes the condition wakes the others; its own background thread only if `own`
    /// says so, since a caller that is about to wait drives the cycle itself.
    fn eager(&self, cycle: u64, own: bool);

    /// Whether every rank would start `cycle` at once.
    fn all_eager(&self, cycle: u64) -> bool;

    /// Number of wake-ups so far at this rank; taken before looking at the state that [`park`](Self::park) then
    /// guards.
    fn wakes(&self) -> u32;

    /// Sleeps until `park` ends; returns at once if the number of wake-ups differs from `seen`.
    fn park(&self, role: Role, seen: u32, park: Park);

    /// Wakes this rank's own sleeper.
    fn wake_self(&self);

    /// Says that a driver has come or gone.
    fn present(&self, driver: bool);
}
