//! Hierarchical allreduce and allgather: the intra-node stage uses shared memory, the inter-node
//! stage MPI or TCP.
//!
//! *Lane* i consists of the *i*th rank of every host, so there are as many lanes as the smallest
//! host has ranks. Data crosses a host's link once, a share in each lane, all lanes at the same
//! time; the flat operations send it from, or to, every rank. While one chunk is on its way between
//! hosts, the host processes its neighbours.
//!
//! - `allreduce`: each host reduces, lanes reduce the hosts' sums, each host gathers the results.
//! - `allgather`: each host collects, lanes exchange the hosts' bytes, each host distributes them.
//!
//! Each of the two may change between flat and hierarchical from one operation to the next; the
//! other operations are always flat. A flat allreduce, too, combines the contributions of a host in
//! shared memory first, where that does not change the bits (`in_order`).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::{HostsCollective, PART_ALIGN, TINY_BYTES};
use crate::collective::local::LocalCollective;
use crate::collective::stream::{Piece, Stream};
use crate::collective::{Activities, Collective, Hierarchy, InterNode, Phases, Reduction};
use crate::error::Error;
use crate::hosts::Promise;
use crate::tensor::Span;

mod allgather;
mod allreduce;
mod in_order;
mod inter_node;

/// Bytes of a chunk in each lane, and chunks in flight between hosts while the host processes
/// others. A chunk of an allreduce crosses the link twice, one time after the other, so a few must
/// be in flight to keep the link busy; but each one wakes both threads of a rank. A flat allreduce
/// of ResNet-50's 102 MB between 2 hosts of 2 ranks at 10 Gbit/s, on 2 cores with other load,
/// median of 7 in ms: four of 512 KiB 156, three of 1 MiB 157, six of 256 KiB 141; in another row
/// four of 512 KiB 171, six of 256 KiB 167, four 179, eight of 128 KiB 193. BERT's 440 MB, median
/// of 3: 594, 567 and 628 with four of 512 KiB, six of 256 KiB and eight of 128 KiB.
const PART_BYTES: usize = 256 << 10;
const LAG: usize = 6;

/// The intra-node stage: the collective of the ranks of this rank's host.
pub(crate) struct IntraNode {
    pub(crate) collective: LocalCollective,
    /// Position of this rank among the ranks of the host, and their number.
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// The inter-node stage of this rank's lane. Lane *i* consists of the *i*th rank of every host.
pub(crate) struct Lane {
    pub(crate) collective: HostsCollective,
    /// Host of each rank of the lane, as an index into the [map](Map).
    pub(crate) hosts: Vec<usize>,
}

/// Distribution of the set's ranks over hosts.
pub(crate) struct Map {
    /// Set ranks of each host, ascending; hosts in the order of their first ranks.
    pub(crate) hosts: Vec<Vec<usize>>,
    /// Index of this rank's host.
    pub(crate) own: usize,
    /// Number of ranks of the smallest host.
    pub(crate) lanes: usize,
}

/// Collective of one rank whose allreduce and allgather can be hierarchical.
pub(crate) struct HierarchicalCollective {
    flat: HostsCollective,
    map: Map,
    /// Whether the hosts can combine their contributions one after another.
    is_chain: bool,
    /// Whether all hosts have equally many ranks.
    is_even: bool,
    intra_node: IntraNode,
    /// `None` for a rank that has no counterpart on the smallest host.
    lane: Option<Lane>,
    /// Number of ranks of all hosts.
    size: usize,
    hierarchy: Hierarchy,
    /// Whether the last operation was hierarchical.
    was_hierarchical: bool,
    /// Buffers of parts between the host and the lane; kept to reuse their memory.
    buffers: Vec<Vec<u8>>,
    /// Transfers in flight of the inter-node stage for tensors on GPUs.
    lent: VecDeque<Promise<Phases>>,
}

impl HierarchicalCollective {
    /// Creates the collective; operations are flat until [`Collective::set_hierarchy`] changes
    /// that.
    pub(crate) fn new(
        flat: HostsCollective,
        map: Map,
        intra_node: IntraNode,
        lane: Option<Lane>,
    ) -> Self {
        assert_eq!(lane.is_some(), intra_node.rank < map.lanes);
        assert_eq!(map.hosts[map.own].len(), intra_node.size);
        Self {
            size: flat.size,
            is_chain: in_order::is_chain(&map),
            is_even: map.hosts.iter().all(|ranks| ranks.len() == map.lanes),
            flat,
            map,
            intra_node,
            lane,
            hierarchy: Hierarchy::default(),
            was_hierarchical: false,
            buffers: Vec::new(),
            lent: VecDeque::new(),
        }
    }

    /// Returns each lane's range of the chunk `range`.
    fn lane_ranges(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let lanes = self.map.lanes;
        let part = range.len().div_ceil(lanes).next_multiple_of(PART_ALIGN);
        let lane = |lane: usize| {
            let begin = (range.start + lane * part).min(range.end);
            begin..(begin + part).min(range.end)
        };
        (0..lanes).map(lane).collect()
    }

    /// Returns the part of the chunk `range` that this rank carries between hosts; empty if it has
    /// no lane.
    fn own_range(&self, range: &Range<usize>) -> Range<usize> {
        let own = self
            .lane_ranges(range)
            .into_iter()
            .nth(self.intra_node.rank);
        own.unwrap_or(range.end..range.end)
    }

    /// Returns the pieces of the chunk `range` for the host's collective: a span for each piece,
    /// which `span` creates from the piece and from the place and length of this rank's share in
    /// the part at `part`; and a table of all ranks' shares.
    fn pieces(
        &self,
        stream: &Stream,
        range: &Range<usize>,
        part: *mut u8,
        span: impl Fn(&Piece, *mut u8, usize) -> Span,
    ) -> Pieces {
        let mut pieces = Pieces::default();
        let lanes = self.lane_ranges(range);
        for piece in stream.pieces(range.clone()) {
            let of_piece = piece.at..piece.at + piece.bytes;
            let share = |rank: usize| lanes.get(rank).map(|lane| overlap(lane, &of_piece));
            let bytes = |rank: usize| share(rank).map_or(0, |share| share.len());
            pieces.table.extend((0..self.intra_node.size).map(bytes));
            let place = match share(self.intra_node.rank).filter(|share| !share.is_empty()) {
                Some(share) => part.wrapping_add(share.start - lanes[self.intra_node.rank].start),
                None => part,
            };
            pieces
                .spans
                .push(span(&piece, place, bytes(self.intra_node.rank)));
        }
        pieces
    }

    /// Waits for the operation in flight of this rank's lane, if it has a lane.
    fn keep(&mut self, promise: Option<Promise<Phases>>, phases: &mut Phases) -> Result<(), Error> {
        if let (Some(promise), Some(lane)) = (promise, self.lane.as_mut()) {
            let began = Instant::now();
            lane.collective.wait(promise)?;
            phases.wait_ns += began.elapsed().as_nanos() as u64;
        }
        Ok(())
    }

    /// Returns a buffer of at least `bytes` bytes, and of at least one.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        if buffer.len() < bytes.max(1) {
            buffer.resize(bytes.max(1), 0);
        }
        buffer
    }
}

/// Spans for the host's collective, and the lengths of the ranks' shares, span by span.
#[derive(Default)]
struct Pieces {
    spans: Vec<Span>,
    table: Vec<usize>,
}

/// Returns the intersection of two ranges; if that is empty, an empty range inside the first.
fn overlap(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let begin = one.start.max(other.start).min(one.end);
    begin..one.end.min(other.end).max(begin)
}

/// Adds the phases of one chunk within the host, except `lead_in_ns` and `tail_out_ns`, which only
/// the whole batch has.
fn add(phases: &mut Phases, more: &Phases) {
    phases.copy_in_ns += more.copy_in_ns;
    phases.reduce_ns += more.reduce_ns;
    phases.copy_out_ns += more.copy_out_ns;
    phases.wait_ns += more.wait_ns;
}

impl Collective for HierarchicalCollective {
    fn activities(&self) -> &'static Activities {
        match self.was_hierarchical {
            true => &self.flat.names.hierarchical,
            false => self.flat.activities(),
        }
    }

    fn set_hierarchy(&mut self, hierarchy: Hierarchy) {
        self.hierarchy = hierarchy;
    }

    fn inter_node(&mut self) -> Option<&mut dyn InterNode> {
        self.hierarchy
            .allreduce
            .then_some(self as &mut dyn InterNode)
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        self.was_hierarchical = self.hierarchy.allreduce
            && absent.is_empty()
            && allreduce::splits(reduction, self.is_even);
        let bytes: usize = spans.iter().map(Span::bytes).sum();
        if self.was_hierarchical {
            self.allreduce_hierarchical(spans, reduction)
        } else if bytes > 0 && bytes * self.size <= TINY_BYTES {
            self.allreduce_tiny(spans, reduction, absent)
        } else if absent.is_empty() && self.is_chain && in_order::continues(reduction) {
            self.allreduce_in_order(spans, reduction)
        } else {
            self.flat.allreduce(spans, reduction, absent)
        }
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        self.flat.broadcast(spans, root)
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        self.was_hierarchical = self.hierarchy.allgather;
        if self.was_hierarchical {
            self.allgather_hierarchical(spans, bytes)
        } else {
            self.flat.allgather(spans, bytes)
        }
    }

    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        self.flat.alltoall(spans, bytes)
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        self.flat.reducescatter(spans, bytes, reduction, absent)
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn an_overlap_is_inside_of_the_first_range() {
        assert_eq!(overlap(&(2..8), &(4..20)), 4..8);
        assert_eq!(overlap(&(2..8), &(0..3)), 2..3);
        for (nothing, empty) in [(0..2, 2..2), (8..9, 8..8), (20..30, 8..8), (5..5, 5..5)] {
            assert_eq!(overlap(&(2..8), &nothing), empty, "{nothing:?}");
        }
    }
}
