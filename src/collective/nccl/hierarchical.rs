//! Hierarchical allreduce: NCCL reduces within a host so that each of its lanes has a share, the
//! lanes combine their shares with those of the other hosts over MPI or TCP, through host memory,
//! and NCCL gathers them. Data crosses a host's link once. (Lanes are those of
//! `collective/hosts/hierarchical`: the *i*th ranks of all hosts.)
//!
//! If each rank of a host has a lane, the intra-node stages are a reduce-scatter and an allgather;
//! a remainder that does not divide evenly belongs to the last share. On a host with more ranks
//! than the smallest one has, each share is reduced to the rank of its lane, and broadcast from it.
//!
//! The cycle waits until the last byte has arrived from the other hosts, as it does for tensors in
//! host memory. A share is copied and combined piece by piece, so that device, hosts and network
//! work at the same time. All ranks do everything in the same order: that of the batches.

#![allow(unsafe_code)] // copies between the device and pinned memory

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::exchange::exchange;
use super::number;
use super::track::Track;
use crate::collective::asynchronous::{Crossing, LaunchError, Peers, SetRank};
use crate::collective::{HostPlace, InterNode, Reduction};
use crate::gpu::{Call, Combine, Combined, Communicator, Device, GpuError, Mark, UniqueId};
use crate::tensor::{ReduceOp, Span};
use crate::transport::Transport;

/// Bytes of a piece; several are in flight between the hosts while others are copied.
const PIECE_BYTES: usize = if cfg!(test) { 1 << 12 } else { 1 << 20 };
/// Number of pieces that have memory, and number of them in flight between hosts when the next is
/// begun.
const SLOTS: usize = 8;
const LAG: usize = 4;

/// Alignment of the shares, in bytes.
const SHARE_ALIGNMENT: usize = 64;

/// This rank's state for hierarchical allreduces.
pub(super) struct Hierarchical {
    place: HostPlace,
    /// Ranks of all hosts.
    ranks: usize,
    device: Arc<Device>,
    /// Communicator with the other ranks of the host, if there are any.
    communicator: Option<Communicator>,
    /// Host memory of [`SLOTS`] pieces, if this rank has a lane.
    slots: Option<*mut u8>,
}

// SAFETY: the memory belongs to this rank alone, and moves with it from thread to thread.
unsafe impl Send for Hierarchical {}

impl Hierarchical {
    /// Creates the state, together with all other ranks of the set.
    pub(super) fn make(
        place: HostPlace,
        in_set: SetRank,
        track: &Track,
        peers: &mut Peers<'_>,
    ) -> Result<Self, LaunchError> {
        let device = Arc::clone(&track.device);
        let mut made = Self {
            place,
            ranks: in_set.size,
            communicator: None,
            slots: None,
            device,
        };
        let own = made.prepare();
        let ids = exchange(own, in_set, peers)?;
        if let Some(&Some(id)) = ids.get(place.first) {
            let joined = made.device.gpu.join(&id, place.rank, place.size);
            let communicator = joined.map_err(|error| track.fatal(error))?;
            made.communicator = Some(communicator);
            track.settle(communicator, peers.transport)?;
        }
        Ok(made)
    }

    /// Allocates memory, and makes the id for its host's communicator if this rank provides it; no
    /// other rank is needed.
    fn prepare(&mut self) -> Result<Option<UniqueId>, GpuError> {
        let HostPlace {
            rank, size, lanes, ..
        } = self.place;
        if rank < lanes {
            self.slots = Some(self.device.gpu.allocate_host(SLOTS * PIECE_BYTES)?);
        }
        let brings_id = rank == 0 && size > 1;
        brings_id.then(|| self.device.gpu.unique_id()).transpose()
    }

    pub(super) fn communicator(&self) -> Option<Communicator> {
        self.communicator
    }

    /// Hands over the communicator, to abort the work on the device.
    pub(super) fn take_communicator(&mut self) -> Option<Communicator> {
        self.communicator.take()
    }

    /// Puts an allreduce on the stream; returns when the other hosts' shares have arrived.
    pub(super) fn allreduce(
        &self,
        whole: Combined,
        track: &Track,
        is_timed: bool,
        inter_node: &mut dyn InterNode,
        transport: &mut dyn Transport,
    ) -> Result<Crossing, LaunchError> {
        let shares = Shares::new(whole, self.place);
        let reductions = Reductions::of(&whole, self.place, self.ranks);
        self.call(&shares.reduction(reductions.intra_node), track, transport)?;
        let reduced = track.mark(is_timed)?;
        let crossed = self.cross(&shares, &reductions, track, is_timed, inter_node, transport);
        if crossed.is_err() {
            inter_node.give_up(); // before the memory is freed
        }
        let [fetched, crossed, sent] = crossed?;
        self.call(&shares.gathering(), track, transport)?;
        Ok(Crossing {
            names: shares.names(),
            inter_node: inter_node.activity(),
            reduced,
            fetched,
            crossed,
            sent,
        })
    }

    /// Puts calls within the host on the stream; a rank that is alone on its host has none.
    fn call(
        &self,
        calls: &[Call],
        track: &Track,
        transport: &mut dyn Transport,
    ) -> Result<(), LaunchError> {
        let (Some(communicator), false) = (self.communicator, calls.is_empty()) else {
            return Ok(());
        };
        self.device
            .gpu
            .call(communicator, calls, track.stream)
            .map_err(|error| track.fatal(error))?;
        track.settle(communicator, transport)
    }

    /// Combines this rank's share with the other hosts, piece by piece. Returns three marks: the
    /// first piece is in host memory; all pieces have arrived from the other hosts; the last piece
    /// is on the device.
    fn cross(
        &self,
        shares: &Shares,
        reductions: &Reductions,
        track: &Track,
        is_timed: bool,
        inter_node: &mut dyn InterNode,
        transport: &mut dyn Transport,
    ) -> Result<[Mark; 3], LaunchError> {
        let own = shares.own();
        let slots = self.slots.unwrap_or(std::ptr::null_mut()); // a rank without slots has no share
        let (from, to) = shares.crosses(&own);
        let pieces = own.len().div_ceil(PIECE_BYTES);
        let place = |piece: usize| {
            let bytes = PIECE_BYTES.min(own.len() - piece * PIECE_BYTES);
            let slot = slots.wrapping_add(piece % SLOTS * PIECE_BYTES);
            (slot, (piece * PIECE_BYTES) as u64, bytes)
        };
        let fatal = |error| track.fatal(error);
        let gpu = &self.device.gpu;
        let fetch = |piece: usize| {
            let (slot, at, bytes) = place(piece);
            // SAFETY: the slot is writable, and free: its last content was put on its way back
            // before, on the same stream.
            unsafe { gpu.download_on(slot, from + at, bytes, track.stream) }.map_err(fatal)?;
            track.mark(is_timed && piece == 0)
        };
        let mut on_device: VecDeque<Mark> = (0..pieces.min(SLOTS))
            .map(fetch)
            .collect::<Result<_, _>>()?;
        let (mut fetched, mut crossed) = (None, None);
        for turn in 0..pieces + LAG {
            if turn < pieces
                && let Some(mark) = on_device.pop_front()
            {
                track.reach(&mark, self.communicator, transport)?;
                fetched.get_or_insert(mark);
                let (slot, _, bytes) = place(turn);
                // SAFETY: the device has written it, and reads it only after the combined data is
                // kept, below.
                let span = unsafe { Span::new(slot, slot, bytes) };
                inter_node.begin(span, &reductions.inter_node, reductions.ranks);
            }
            let Some(piece) = turn.checked_sub(LAG).filter(|&piece| piece < pieces) else {
                continue;
            };
            inter_node.keep().map_err(LaunchError::Rank)?;
            if piece + 1 == pieces {
                crossed = Some(track.mark(is_timed)?);
            }
            let (slot, at, bytes) = place(piece);
            // SAFETY: readable; it is not written before the stream has reached the next download
            // into it.
            unsafe { gpu.upload_on(to + at, slot, bytes, track.stream) }.map_err(fatal)?;
            if piece + SLOTS < pieces {
                on_device.push_back(fetch(piece + SLOTS)?);
            }
        }
        let again = |mark: Option<Mark>| mark.map_or_else(|| track.mark(is_timed), Ok);
        Ok([again(fetched)?, again(crossed)?, track.mark(is_timed)?])
    }
}

impl Drop for Hierarchical {
    /// No work is in flight, or it has been aborted.
    fn drop(&mut self) {
        if let Some(communicator) = self.communicator.take() {
            self.device.gpu.leave(communicator);
        }
        if let Some(slots) = self.slots.take() {
            self.device.gpu.free_host(slots);
        }
    }
}

/// Reductions of the intra-node and the inter-node stage, the latter as a part of a reduction over
/// `ranks` ranks.
struct Reductions {
    intra_node: Combine,
    inter_node: Reduction,
    ranks: usize,
}

impl Reductions {
    /// An average is an average of the hosts' averages if the hosts have equal weights, so that
    /// sums of small floats stay small; otherwise the sum is divided at the end.
    fn of(whole: &Combined, place: HostPlace, ranks: usize) -> Self {
        let (intra_node, op, ranks) = match whole.combine {
            Combine::Average if place.is_even => (Combine::Average, ReduceOp::Average, place.hosts),
            Combine::Average => (Combine::Sum, ReduceOp::Average, ranks),
            Combine::Sum => (Combine::Sum, ReduceOp::Sum, ranks),
            Combine::Product => (Combine::Product, ReduceOp::Product, ranks),
            Combine::Max => (Combine::Max, ReduceOp::Max, ranks),
            Combine::Min => (Combine::Min, ReduceOp::Min, ranks),
        };
        let inter_node = Reduction {
            dtype: number::dtype(whole.number),
            op,
            prescale: 1.0,
            postscale: 1.0,
        };
        Self {
            intra_node,
            inter_node,
            ranks,
        }
    }
}

/// An allreduce, split into the lanes' shares.
#[derive(Clone, Copy, Debug)]
struct Shares {
    whole: Combined,
    place: HostPlace,
    /// Elements of each share; the last one also has the remainder.
    each: usize,
}

impl Shares {
    fn new(whole: Combined, place: HostPlace) -> Self {
        let aligned = SHARE_ALIGNMENT / whole.number.bytes();
        let each = whole.count / place.lanes / aligned * aligned;
        Self { whole, place, each }
    }

    /// Elements of a lane.
    fn of(&self, lane: usize) -> Range<usize> {
        let begin = lane * self.each;
        if lane + 1 == self.place.lanes {
            begin..self.whole.count
        } else {
            begin..begin + self.each
        }
    }

    /// Byte range of this rank's share; empty if it has no lane.
    fn own(&self) -> Range<usize> {
        if self.place.rank >= self.place.lanes {
            return 0..0;
        }
        let Range { start, end } = self.of(self.place.rank);
        let width = self.whole.number.bytes();
        start * width..end * width
    }

    /// Addresses at which the inter-node stage reads and writes: NCCL has moved the data to the
    /// output, unless the host has only one rank.
    fn crosses(&self, own: &Range<usize>) -> (u64, u64) {
        let Combined { from, to, .. } = self.whole;
        let read = if self.place.size == 1 { from } else { to };
        (read + own.start as u64, to + own.start as u64)
    }

    /// Whether each rank of this host has a lane.
    fn is_full(&self) -> bool {
        self.place.lanes == self.place.size
    }

    /// Returns the NCCL call for a part whose result one rank of the host has.
    fn one(&self, root: usize, part: Range<usize>, intra_node: Combine) -> Option<Call> {
        let at = self.at(part.start);
        let combined = Combined {
            from: self.whole.from + at,
            to: self.whole.to + at,
            count: part.len(),
            combine: intra_node,
            ..self.whole
        };
        (!part.is_empty()).then_some(Call::Reduce(combined, root))
    }

    /// Returns the call that sends it from there to the others.
    fn back(&self, root: usize, part: Range<usize>) -> Option<Call> {
        let at = self.whole.to + self.at(part.start);
        (!part.is_empty()).then_some(Call::Broadcast {
            from: at,
            to: at,
            count: part.len(),
            number: self.whole.number,
            root,
        })
    }

    fn at(&self, element: usize) -> u64 {
        (element * self.whole.number.bytes()) as u64
    }

    /// Parts that single ranks of the host reduce, and their ranks: every lane's if some ranks have
    /// none, otherwise the remainder of the equal shares.
    fn singles(&self) -> Vec<(usize, Range<usize>)> {
        let lanes = self.place.lanes;
        if self.is_full() {
            vec![(lanes - 1, lanes * self.each..self.whole.count)]
        } else {
            (0..lanes).map(|lane| (lane, self.of(lane))).collect()
        }
    }

    /// Whether there are equal shares for all ranks of the host.
    fn scatters(&self) -> bool {
        self.is_full() && self.each > 0
    }

    /// Offset of this rank's equal share.
    fn own_place(&self) -> u64 {
        self.whole.to + self.at(self.place.rank * self.each)
    }

    /// Returns the calls that reduce within the host.
    fn reduction(&self, intra_node: Combine) -> Vec<Call> {
        let scattered = self.scatters().then(|| {
            Call::Reducescatter(Combined {
                to: self.own_place(),
                count: self.each,
                combine: intra_node,
                ..self.whole
            })
        });
        let singles = self.singles().into_iter();
        let singles = singles.filter_map(|(root, part)| self.one(root, part, intra_node));
        scattered.into_iter().chain(singles).collect()
    }

    /// Returns the calls that send all shares to all ranks of the host.
    fn gathering(&self) -> Vec<Call> {
        let gathered = self.scatters().then(|| Call::Allgather {
            from: self.own_place(),
            to: self.whole.to,
            count: self.each,
            number: self.whole.number,
        });
        let singles = self.singles().into_iter();
        let singles = singles.filter_map(|(root, part)| self.back(root, part));
        gathered.into_iter().chain(singles).collect()
    }

    /// Activity names of the intra-node stages, as in Horovod's timeline.
    fn names(&self) -> [&'static str; 2] {
        if self.scatters() {
            ["NCCL_REDUCESCATTER", "NCCL_ALLGATHER"]
        } else {
            ["NCCL_REDUCE", "NCCL_BCAST"]
        }
    }
}
