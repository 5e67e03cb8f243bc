//! Flat allreduce that sends data over a host's link once: the ranks of a host combine their
//! contributions through shared memory, and the bits are those of rank order.
//!
//! A result is `((x₀ ∘ x₁) ∘ x₂) ∘ …` in rank order. Where consecutive ranks share a host, that is
//! a chain over the hosts: the first host combines the contributions of its ranks, and every
//! further host combines what the previous one has sent with the contributions of its own ranks.
//! The last host sends the result back along the chain. A chunk has a part per lane, and several
//! chunks are in flight, so that all links are busy in both directions.
//!
//! For *B* bytes, a host sends at most 2·*B*, and *B* if there are two hosts: the least that is
//! possible. Without this, each of the *n* ranks sends 2·*B*·(*n* − 1)/*n*, most of it to other
//! hosts.
//!
//! It applies where rounding after each host changes nothing: not to sums of f16 and bf16, which
//! are added in f32, and not to averages of integers and scale factors before the reduction.
//!
//! A tiny batch is not combined on the way: the hosts collect and exchange the contributions, and
//! every rank combines all of them.

#![allow(unsafe_code)] // spans over parts of the batch

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::super::allreduce::reduce;
use super::super::rounds::piece_bytes;
use super::super::staging::{copy_in, copy_out};
use super::super::transfer;
use super::{HierarchicalCollective, LAG, Lane, Map, PART_BYTES, add};
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::collective::{Collective, Phases, Reduction};
use crate::error::Error;
use crate::hosts::Promise;
use crate::tensor::{Dtype, ReduceOp, Span};

/// Most hosts of a chain: each one delays the first chunk. (More than three were not measured.)
const CHAIN_HOSTS_MAX: usize = 8;

/// Directions of messages along the chain.
const TO_LAST: u16 = 0;
const TO_FIRST: u16 = 1;

/// Whether `reduction` may be rounded after each host.
pub(super) fn continues(reduction: &Reduction) -> bool {
    let is_plain = reduction.prescale == 1.0;
    match reduction.dtype {
        Dtype::F32 | Dtype::F64 => is_plain,
        Dtype::F16 | Dtype::Bf16 => {
            is_plain && matches!(reduction.op, ReduceOp::Min | ReduceOp::Max)
        }
        _ => is_plain && reduction.postscale == 1.0 && reduction.op != ReduceOp::Average,
    }
}

/// Whether the ranks of each host are consecutive, and the hosts few.
pub(super) fn is_chain(map: &Map) -> bool {
    let is_consecutive = map.hosts.iter().flatten().copied().eq(0..map
        .hosts
        .iter()
        .map(Vec::len)
        .sum());
    is_consecutive && map.hosts.len() <= CHAIN_HOSTS_MAX
}

/// Chunk on its way along the chain.
struct Flight {
    /// `None` for a rank without a lane.
    promise: Option<Promise<[Vec<u8>; 2]>>,
    /// Memory of such a rank.
    part: Vec<u8>,
    range: Range<usize>,
}

impl Lane {
    /// Tag of the messages of chunk `index`.
    fn tag(index: usize, way: u16) -> u16 {
        (index as u16) << 1 | way // the highest bits are lost: few chunks are in flight
    }

    /// Begins to receive what the previous hosts have combined of chunk `index`.
    fn receive(&self, index: usize, memory: Vec<u8>) -> Promise<Vec<u8>> {
        let (data, previous) = (self.collective.data, self.collective.rank - 1);
        self.collective.job.engine.begin(move |world| async move {
            if memory.is_empty() {
                return Ok(memory);
            }
            let tag = Self::tag(index, TO_LAST);
            world.comm(data).receive(memory, Some(previous), tag)?.await
        })
    }

    /// Begins to send `part`, what the hosts up to this one have combined of chunk `index`, and to
    /// receive the result to `memory`, which is as long. Returns both, the result first.
    fn pass(&self, index: usize, part: Vec<u8>, memory: Vec<u8>) -> Promise<[Vec<u8>; 2]> {
        let (data, rank, size) = (
            self.collective.data,
            self.collective.rank,
            self.collective.size,
        );
        self.collective.job.engine.begin(move |world| async move {
            let comm = world.comm(data);
            let (mut result, mut spare) = (part, memory);
            if result.is_empty() {
                return Ok([result, spare]);
            }
            if rank + 1 < size {
                let receive = comm.receive(spare, Some(rank + 1), Self::tag(index, TO_FIRST))?;
                let send = comm.send(result, rank + 1, Self::tag(index, TO_LAST))?;
                (result, spare) = (receive.await?, send.await?);
            }
            if rank > 0 {
                let send = comm.send(result, rank - 1, Self::tag(index, TO_FIRST))?;
                result = send.await?;
            }
            Ok([result, spare])
        })
    }

    /// Waits for an operation of this lane.
    fn wait<T>(&self, promise: Promise<T>, phases: &mut Phases) -> Result<T, Error> {
        let began = Instant::now();
        let outcome = self.collective.wait(promise);
        phases.wait_ns += began.elapsed().as_nanos() as u64;
        outcome
    }
}

impl HierarchicalCollective {
    /// Runs an allreduce that [continues], along a [chain](is_chain), without absent ranks.
    pub(super) fn allreduce_in_order(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
    ) -> Result<Phases, Error> {
        let mut batch = Stream::default();
        spans.iter().for_each(|span| batch.push_span(span));
        let chunk = PART_BYTES * self.map.lanes;
        let chunks = batch.bytes().div_ceil(chunk);
        let range = |index: usize| index * chunk..((index + 1) * chunk).min(batch.bytes());
        let mut phases = Phases::default();
        let (mut before, mut flights) = (VecDeque::new(), VecDeque::new());
        let mut posted = 0;
        for turn in 0..chunks + LAG {
            while self.map.own > 0 && posted < chunks.min(turn + LAG) {
                let memory = self.part(&range(posted));
                if let Some(lane) = &self.lane {
                    before.push_back(lane.receive(posted, memory));
                }
                posted += 1;
            }
            if turn < chunks {
                let before = before.pop_front();
                let range = range(turn);
                let flight =
                    self.combine_chunk(&batch, turn, range, before, reduction, &mut phases)?;
                flights.push_back(flight);
            }
            if (LAG..chunks + LAG).contains(&turn) {
                let flight = flights.pop_front().expect("as many as turns");
                self.hand_out_chunk(&batch, flight, &mut phases)?;
            }
        }
        Ok(phases)
    }

    /// Memory for this rank's part of the chunk `range`.
    fn part(&mut self, range: &Range<usize>) -> Vec<u8> {
        let bytes = self.own_range(range).len();
        let mut part = self.buffer(bytes);
        part.truncate(bytes);
        part
    }

    /// Combines the contributions of this host to a chunk with those of the hosts `before`, and
    /// passes the result on.
    fn combine_chunk(
        &mut self,
        batch: &Stream,
        index: usize,
        range: Range<usize>,
        before: Option<Promise<Vec<u8>>>,
        reduction: &Reduction,
        phases: &mut Phases,
    ) -> Result<Flight, Error> {
        let before = match (before, &self.lane) {
            (Some(promise), Some(lane)) => Some(lane.wait(promise, phases)?),
            _ => None,
        };
        let began = Instant::now();
        let is_last = self.map.own + 1 == self.map.hosts.len();
        let mut reduction = *reduction;
        if !is_last {
            // The last host divides and scales.
            reduction.postscale = 1.0;
            if reduction.op == ReduceOp::Average {
                reduction.op = ReduceOp::Sum;
            }
        }
        let mut part = self.part(&range);
        let pieces = self.pieces(batch, &range, part.as_mut_ptr(), |piece, place, _| {
            // SAFETY: the piece is a part of the caller's span; its share is written to a part that
            // is not aliased.
            unsafe { Span::new(piece.input, place, piece.bytes) }
        });
        let earlier = before.as_ref().map_or(std::ptr::null(), Vec::as_ptr);
        let collective = &mut self.intra_node.collective;
        // SAFETY: what was received is as long as this rank's part, and another buffer.
        let done = unsafe {
            collective.reducescatter_after(
                earlier,
                self.size,
                &pieces.spans,
                &pieces.table,
                &reduction,
            )
        }?;
        add(phases, &done);
        if index == 0 {
            phases.lead_in_ns = began.elapsed().as_nanos() as u64;
            phases.late_ns = done.late_ns;
        }
        if self.lane.is_none() {
            let promise = None;
            return Ok(Flight {
                promise,
                part,
                range,
            });
        }
        // `hand_out_chunk` gives back as many buffers as a chunk takes here.
        let memory = before.unwrap_or_else(|| self.part(&range));
        Ok(Flight {
            promise: self
                .lane
                .as_ref()
                .map(|lane| lane.pass(index, part, memory)),
            part: Vec::new(),
            range,
        })
    }

    /// Waits for the result of a chunk and copies it to the outputs of all ranks of this host.
    fn hand_out_chunk(
        &mut self,
        batch: &Stream,
        flight: Flight,
        phases: &mut Phases,
    ) -> Result<(), Error> {
        let Flight {
            promise,
            mut part,
            range,
        } = flight;
        if let (Some(promise), Some(lane)) = (promise, &self.lane) {
            let [result, spare] = lane.wait(promise, phases)?;
            part = result;
            self.buffers.push(spare);
        }
        self.gather_intra_node(batch, part, range, phases)
    }

    /// Runs an allreduce of a tiny batch over the ranks that are not `absent`.
    pub(super) fn allreduce_tiny(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let mut batch = Stream::default();
        spans.iter().for_each(|span| batch.push_span(span));
        let (bytes, here) = (batch.bytes(), self.intra_node.size);
        let mut phases = Phases::default();
        let [mut own, mut of_host, mut all] =
            [bytes, bytes * here, bytes * self.size].map(|bytes| self.buffer(bytes));
        copy_in(&batch, 0..bytes, &mut own);
        // SAFETY: buffers of the batch's length and of that of all contributions of this host.
        let span = unsafe { Span::new(own.as_ptr(), of_host.as_mut_ptr(), bytes) };
        let done = self
            .intra_node
            .collective
            .allgather(&[span], &vec![bytes; here])?;
        add(&mut phases, &done);
        phases.late_ns = done.late_ns;
        // Contributions of the hosts one after another, each in rank order.
        let begins: Vec<usize> = self
            .map
            .hosts
            .iter()
            .scan(0, |end, ranks| {
                *end += bytes * ranks.len();
                Some(*end - bytes * ranks.len())
            })
            .collect();
        if let Some(lane) = self.lane.as_mut().filter(|_| self.intra_node.rank == 0) {
            let began = Instant::now();
            let mut sent = Stream::default();
            sent.push(of_host.as_ptr(), std::ptr::null_mut(), bytes * here);
            let place = all.as_mut_ptr();
            let received = lane.hosts.iter().map(|&host| {
                let mut stream = Stream::default();
                let length = bytes * self.map.hosts[host].len();
                stream.push(std::ptr::null(), place.wrapping_add(begins[host]), length);
                stream
            });
            let received = received.collect();
            let part = piece_bytes(lane.hosts.len());
            lane.collective
                .run(move |job| transfer::allgather(job, sent, received, part))?;
            phases.wait_ns += began.elapsed().as_nanos() as u64;
        }
        let place = all.as_mut_ptr();
        // SAFETY: a buffer of that length; the same memory in and out, as broadcasts may have.
        let span = unsafe { Span::new(place, place, bytes * self.size) };
        let done = self.intra_node.collective.broadcast(&[span], 0)?;
        add(&mut phases, &done);
        let began = Instant::now();
        let mut sources: Vec<(usize, *const u8)> = Vec::with_capacity(self.size);
        for (ranks, begin) in self.map.hosts.iter().zip(&begins) {
            let contributions = all[*begin..].chunks_exact(bytes);
            let present = ranks.iter().copied().zip(contributions);
            let present = present.filter(|(rank, _)| !absent.contains(rank));
            sources.extend(present.map(|(rank, contribution)| (rank, contribution.as_ptr())));
        }
        sources.sort_unstable_by_key(|(rank, _)| *rank);
        let sources: Vec<*const u8> = sources.into_iter().map(|(_, source)| source).collect();
        let reducer = Reducer::new(self.flat.level, reduction, self.size);
        reduce(&reducer, &sources, &mut own[..bytes]);
        copy_out(&batch, 0..bytes, &own);
        phases.reduce_ns += began.elapsed().as_nanos() as u64;
        self.buffers.extend([own, of_host, all]);
        Ok(phases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_after_each_host_would_change_takes_another_way() {
        let of = |dtype, op, prescale, postscale| Reduction {
            dtype,
            op,
            prescale,
            postscale,
        };
        assert!(continues(&of(Dtype::F32, ReduceOp::Average, 1.0, 0.5)));
        assert!(continues(&of(Dtype::F64, ReduceOp::Product, 1.0, 1.0)));
        assert!(continues(&of(Dtype::Bf16, ReduceOp::Max, 1.0, 2.0)));
        assert!(continues(&of(Dtype::I8, ReduceOp::Sum, 1.0, 1.0)));
        assert!(continues(&of(Dtype::Bool, ReduceOp::Product, 1.0, 1.0)));
        assert!(!continues(&of(Dtype::F32, ReduceOp::Sum, 0.5, 1.0)));
        assert!(!continues(&of(Dtype::F16, ReduceOp::Sum, 1.0, 1.0)));
        assert!(!continues(&of(Dtype::I64, ReduceOp::Average, 1.0, 1.0)));
        assert!(!continues(&of(Dtype::I32, ReduceOp::Max, 1.0, 0.5)));
    }

    #[test]
    fn consecutive_ranks_of_few_hosts_are_a_chain() {
        let map = |hosts: Vec<Vec<usize>>| Map {
            hosts,
            own: 0,
            lanes: 1,
        };
        assert!(is_chain(&map(vec![vec![0, 1], vec![2], vec![3, 4]])));
        assert!(!is_chain(&map(vec![vec![0, 2], vec![1, 3]])));
        let single = |hosts: usize| map((0..hosts).map(|rank| vec![rank]).collect());
        assert!(is_chain(&single(CHAIN_HOSTS_MAX)));
        assert!(!is_chain(&single(CHAIN_HOSTS_MAX + 1)));
    }
}
