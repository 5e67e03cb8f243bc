//! Transport: trait for the control messages of a process set, with a doorbell to wake other ranks.
//!
//! A [`Transport`] knows ranks, cycles and bytes, but no tensors. [`exchange`](Transport::exchange)
//! combines the blocks of words of all ranks by the caller's function: within each host first, then
//! among the hosts in ⌈log₂ hosts⌉ rounds, so that a rank's traffic does not grow with the ranks.
//! [`gather`](Transport::gather) and [`broadcast`](Transport::broadcast) send requests and
//! responses through rank 0. Submitting threads use only its [`Doorbell`]: it is a hint that a
//! cycle is requested, and never an input to the cycle's decisions.

use std::sync::Arc;

use crate::clock::Nanos;
use crate::error::{Error, LimitError, PeerError};

mod block;
pub(crate) mod hosts;
pub(crate) mod local;
pub(crate) mod rounds;
#[cfg(test)]
pub(crate) mod simulated;

#[cfg(test)]
pub(crate) use block::Prefix;
pub(crate) use block::{
    ATTACHED_WORDS_MAX, BLOCK_HEAD_WORDS_MAX, Combine, Contribution, Partial, RankBlock,
    bit_indices, each_bit,
};

/// Longest frame, bytes: about 500,000 requests.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

/// Sends control data among the ranks of one process set. Blocks and frames are collective: every
/// rank makes these calls in the same order. Ranks are set ranks; errors name job ranks.
pub(crate) trait Transport: Send {
    /// Set rank of this process, `0..size`.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Whether all ranks read the same clock, as those of one boot do. Otherwise the cycle measures
    /// the offsets.
    fn shares_clock(&self) -> bool;

    /// Publishes this rank's block for `cycle` (1, 2, 3, …), waits until every rank has published
    /// its own, and combines all of them.
    ///
    /// # Errors
    /// A peer that died, left or stalled beyond the shutdown limit; [`PeerError::InvalidData`] for
    /// a block or partial state of another cycle, version or length, or one that `combine` refuses.
    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error>;

    /// Sends every rank's frame to rank 0, in rank order; on the other ranks `frames` stays empty.
    ///
    /// # Errors
    /// As for [`exchange`](Self::exchange), and frames longer than [`FRAME_BYTES_MAX`].
    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error>;

    /// Sends rank 0's frame to every rank; on the others it replaces the contents of `frame`.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error>;

    /// The doorbell, shared with submitting threads.
    fn doorbell(&self) -> Arc<dyn Doorbell>;

    /// Checks for peers that died, left or stalled, without waiting. Called while work is pending
    /// but no cycle runs.
    ///
    /// # Errors
    /// The error about the first such peer.
    fn check_peers(&mut self) -> Result<(), Error>;

    /// Informs the peers that this rank leaves, in order (`None`) or because of an error, so that
    /// they report it instead of waiting for this rank.
    fn leave(&mut self, because: Option<&Error>);
}

/// Checks that this rank's frame can be sent; errors name job rank `rank`.
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

/// Converts the length of a frame from job rank `rank`; returns an error if it is above the limit.
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

/// Leaves when the transport of job rank `rank` is dropped: the others must not wait for a rank
/// that is alive but will never answer.
fn leave_when_dropped(transport: &mut dyn Transport, rank: usize) {
    let panicked = std::thread::panicking().then(|| Error::Internal {
        rank,
        message: "a panic".to_owned(),
    });
    transport.leave(panicked.as_ref());
}

/// Thread that parks at the doorbell: at most one of each role at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The rank's own cycle thread.
    Background,
    /// A caller that runs the cycle from inside `wait`. While one is [present](Doorbell::present),
    /// rings wake it and not the background thread.
    Driver,
}

/// Park: how long a thread sleeps and which events wake it. A ring is counted in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// Until the cycle time has passed. It ends early when every rank is eager, but not for a ring:
    /// the requested cycle could not start sooner anyway, and waking a thread costs more than a
    /// small allreduce.
    Pace(Nanos),
    /// While a caller runs the cycle, until the cycle time has passed: as `Pace`, but eager ranks do
    /// not end it if their callers are [about to wait](Start::Callers).
    Driven(Nanos),
    /// Until a rank rings, or until this time.
    Idle(Option<Nanos>),
}

/// Threads that start a cycle for which all ranks are eager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The background threads, of this rank too: its caller goes on with other work.
    Background,
    /// This thread, and the background threads of the other ranks.
    Here,
    /// Callers that are about to wait, on all ranks. A background thread that has just left the
    /// cycle to a caller sleeps on: waking it takes longer than a small allreduce.
    Callers,
}

impl Start {
    /// Returns the wake-up of the ranks by the one that completes the condition.
    pub(crate) fn call(self) -> Call {
        match self {
            Self::Background | Self::Here => Call::Urgent,
            Self::Callers => Call::Callers,
        }
    }
}

/// Urgency of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A cycle is requested, but not before the cycle time has passed.
    Ring,
    /// A cycle is requested at once, by callers that are about to wait on all ranks.
    Callers,
    /// A cycle is requested at once.
    Urgent,
}

impl Call {
    /// Whether it wakes a thread that sleeps until the cycle time has passed, if `paced`, and while
    /// a caller runs the cycle, if `driven`.
    pub(crate) fn wakes(self, paced: bool, driven: bool) -> bool {
        match self {
            Self::Ring => !paced,
            Self::Callers => !driven,
            Self::Urgent => true,
        }
    }
}

impl Park {
    /// Returns the park, limited to `deadline`.
    pub(crate) fn until(self, deadline: Option<Nanos>) -> Self {
        let Some(deadline) = deadline else {
            return self;
        };
        match self {
            Self::Pace(end) => Self::Pace(end.min(deadline)),
            Self::Driven(end) => Self::Driven(end.min(deadline)),
            Self::Idle(end) => Self::Idle(Some(end.map_or(deadline, |end| end.min(deadline)))),
        }
    }
}

/// Wake-ups among ranks. All of them are hints: a lost or false wake-up may cost time, never
/// correctness.
pub(crate) trait Doorbell: Send + Sync {
    /// Requests that every rank enters `cycle`. The highest requested cycle counts.
    fn ring(&self, cycle: u64);

    /// Highest cycle that any rank has requested.
    fn rung(&self) -> u64;

    /// Announces that this rank would start `cycle` at once: it has submitted all tensors that it
    /// expects to, or is blocked in `wait`. The rank that completes the condition wakes the threads
    /// that are to `start` it.
    fn eager(&self, cycle: u64, start: Start);

    /// Whether every rank would start `cycle` at once.
    fn all_eager(&self, cycle: u64) -> bool;

    /// Number of wake-ups of this rank so far; must be read before the state that
    /// [`park`](Self::park) depends on.
    fn wakes(&self) -> u32;

    /// Sleeps until `park` ends; returns at once if the number of wake-ups differs from `seen`.
    fn park(&self, role: Role, seen: u32, park: Park);

    /// Wakes this rank's own sleepers, of either role.
    fn wake_self(&self);

    /// Announces that a driver has arrived, or that one of those that have has left.
    fn present(&self, driver: bool);
}
