//! Hierarchical allreduce: within hosts through shared memory, between them over MPI.
//!
//! Each host reduces a chunk into as many parts as there are *lanes*; lane *i* is made of the *i*th rank of every host,
//! so there are as many as the least host has ranks. Then every lane reduces its part over MPI, all of them at once, and
//! each host gathers the results. Of *B* bytes, 2·*B*·(*h* − 1)/*h* cross a host's link for *h* hosts, whatever the number
//! of ranks on it; a flat allreduce sends that from every rank. While MPI moves one chunk, the host reduces the next.
//!
//! The sums are rounded host by host: not the bits of a flat allreduce, but the same on all ranks, whatever the fusion and
//! the order of arrival. f16 and bf16 are rounded once more than in a flat one. Averages of integers, which are exact, and
//! batches that a joined rank is absent from go the flat way.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Batch, CHUNK_BYTES, MpiCollective, PART_ALIGN};
use crate::collective::local::LocalCollective;
use crate::collective::stream::Stream;
use crate::collective::{Activities, Collective, Phases, Reduction};
use crate::error::Error;
use crate::mpi::Promise;
use crate::tensor::{Dtype, ReduceOp, Span};

/// Chunks between hosts while the next one is reduced within them.
const LAG: usize = 1;

/// A rank's host, as a hierarchical collective sees it.
pub(crate) struct Host {
    pub(crate) collective: LocalCollective,
    /// This rank among those of the host, and their number.
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Ranks of the least host.
    pub(crate) lanes: usize,
}

/// See the module.
pub(crate) struct HierarchicalCollective {
    flat: MpiCollective,
    host: Host,
    /// The lane that this rank is in, unless its host has more ranks than the least.
    lane: Option<MpiCollective>,
    /// Ranks of all hosts.
    size: usize,
    /// Parts between the host and the lane.
    parts: Vec<Vec<u8>>,
}

/// A chunk between hosts.
struct Flight {
    /// Dropped before the part, which is lent to it.
    promise: Option<Promise<Batch>>,
    part: Vec<u8>,
    range: Range<usize>,
}

impl HierarchicalCollective {
    /// Everything but allreduces goes through `flat`.
    pub(crate) fn new(flat: MpiCollective, host: Host, lane: Option<MpiCollective>) -> Self {
        assert_eq!(lane.is_some(), host.rank < host.lanes);
        Self {
            size: flat.size,
            flat,
            host,
            lane,
            parts: Vec::new(),
        }
    }

    /// Whether `reduction` may be done host by host.
    fn splits(reduction: &Reduction) -> bool {
        let is_float = matches!(
            reduction.dtype,
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64
        );
        let is_scaled = reduction.prescale != 1.0 || reduction.postscale != 1.0;
        is_float || (reduction.op != ReduceOp::Average && !is_scaled)
    }

    /// What of the chunk `range` is lane `lane`'s.
    fn lane_range(&self, range: &Range<usize>, lane: usize) -> Range<usize> {
        let part = range.len().div_ceil(self.host.lanes).next_multiple_of(PART_ALIGN);
        let begin = (range.start + lane * part).min(range.end);
        begin..(begin + part).min(range.end)
    }

    /// The pieces of a chunk, as the host's collective wants them: for each the bytes that every rank of the host keeps, and
    /// its own share's place in the part at `part`, which `span` makes a span of.
    fn pieces(
        &self,
        batch: &Stream,
        range: &Range<usize>,
        part: *mut u8,
        span: impl Fn(&crate::collective::stream::Piece, *mut u8, usize) -> Span,
    ) -> (Vec<Span>, Vec<usize>) {
        let (mut spans, mut table) = (Vec::new(), Vec::new());
        let lanes: Vec<Range<usize>> = (0..self.host.lanes)
            .map(|lane| self.lane_range(range, lane))
            .collect();
        for piece in batch.pieces(range.clone()) {
            let end = piece.at + piece.bytes;
            let share = |lane: &Range<usize>| {
                lane.start.max(piece.at)..lane.end.min(end).max(lane.start.max(piece.at))
            };
            table.extend((0..self.host.size).map(|rank| lanes.get(rank).map_or(0, |lane| share(lane).len())));
            let own = lanes.get(self.host.rank).map_or(0..0, |lane| {
                let share = share(lane);
                share.start - lane.start..share.end - lane.start
            });
            let place = if own.is_empty() {
                part
            } else {
                part.wrapping_add(own.start)
            };
            spans.push(span(&piece, place, own.len()));
        }
        (spans, table)
    }
}

impl Collective for HierarchicalCollective {
    fn activities(&self) -> &'static Activities {
        self.flat.activities()
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        if !absent.is_empty() || !Self::splits(reduction) {
            return self.flat.allreduce(spans, reduction, absent);
        }
        let mut batch = Stream::default();
        spans.iter().for_each(|span| batch.push_span(span));
        let within = Reduction {
            op: if reduction.op == ReduceOp::Average {
                ReduceOp::Sum
            } else {
                reduction.op
            },
            postscale: 1.0,
            ..*reduction
        };
        let between = Reduction {
            prescale: 1.0,
            ..*reduction
        };
        let chunk = CHUNK_BYTES * self.host.lanes;
        let chunks = batch.bytes().div_ceil(chunk);
        let mut phases = Phases::default();
        let mut flights: VecDeque<Flight> = VecDeque::new();
        for turn in 0..chunks + LAG {
            if turn < chunks {
                let range = turn * chunk..((turn + 1) * chunk).min(batch.bytes());
                let flight = self.reduce_within(&batch, range, &within, &between, &mut phases)?;
                flights.push_back(flight);
            }
            if turn >= LAG && turn - LAG < chunks {
                let flight = flights.pop_front().expect("as many as turns");
                self.gather_within(&batch, flight, &mut phases)?;
            }
        }
        Ok(phases)
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        self.flat.broadcast(spans, root)
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        self.flat.allgather(spans, bytes)
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

impl HierarchicalCollective {
    /// Reduces a chunk within the host and sends this rank's part on its way between hosts.
    fn reduce_within(
        &mut self,
        batch: &Stream,
        range: Range<usize>,
        within: &Reduction,
        between: &Reduction,
        phases: &mut Phases,
    ) -> Result<Flight, Error> {
        let bytes = self
            .lane_range(&range, self.host.rank.min(self.host.lanes - 1))
            .len();
        let mut part = self.parts.pop().unwrap_or_default();
        if part.len() < bytes.max(1) {
            part.resize(bytes.max(1), 0);
        }
        let (spans, table) = self.pieces(batch, &range, part.as_mut_ptr(), |piece, place, _| {
            // SAFETY: the piece is a part of the caller's span; its share goes to a part that nobody else touches.
            unsafe { Span::new(piece.input, place, piece.bytes) }
        });
        let done = self.host.collective.reducescatter(&spans, &table, within, &[])?;
        add(phases, &done);
        let promise = self.lane.as_mut().map(|lane| {
            let place = part.as_mut_ptr();
            let mut own = Stream::default();
            own.push(place, place, bytes);
            lane.begin_allreduce(own, between, self.size)
        });
        Ok(Flight { promise, part, range })
    }

    /// Takes a chunk's part back and gathers all of the host's.
    fn gather_within(&mut self, batch: &Stream, flight: Flight, phases: &mut Phases) -> Result<(), Error> {
        let Flight {
            promise,
            mut part,
            range,
        } = flight;
        if let (Some(promise), Some(lane)) = (promise, self.lane.as_mut()) {
            let began = std::time::Instant::now();
            lane.keep(promise)?;
            phases.wait_ns += began.elapsed().as_nanos() as u64;
        }
        let (spans, table) = self.pieces(batch, &range, part.as_mut_ptr(), |piece, place, own| {
            // SAFETY: as above, the other way round.
            unsafe { Span::new(place, piece.output, own) }
        });
        let done = self.host.collective.allgather(&spans, &table)?;
        add(phases, &done);
        self.parts.push(part);
        Ok(())
    }
}

fn add(phases: &mut Phases, more: &Phases) {
    phases.copy_in_ns += more.copy_in_ns;
    phases.reduce_ns += more.reduce_ns;
    phases.copy_out_ns += more.copy_out_ns;
    phases.wait_ns += more.wait_ns;
}
