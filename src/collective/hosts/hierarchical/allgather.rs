//! Hierarchical allgather: each host concatenates its ranks' contributions, the lanes exchange a
//! share each with the other hosts, and each host distributes the received bytes to its ranks.
//!
//! A host's bytes are sent once to every other host; a flat allgather sends them to each rank
//! there. A rank receives the bytes of its own host in the same way. Nothing is combined: the bytes
//! equal those of the flat operation.
//!
//! A chunk passes through three stages; the one between hosts overlaps with the others. The host's
//! ranks bring a window of their host's bytes to the lanes, which are ranks of the host (an
//! alltoall through shared memory). Each lane gathers its part of every host's window (an allgather
//! over MPI or TCP). The lanes of a host send what they hold to all of its ranks (an allgather
//! through shared memory). A joined rank contributes nothing and keeps nothing, but still carries
//! its lane's bytes.

#![allow(unsafe_code)] // spans over parts of the result

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::super::transfer;
use super::{HierarchicalCollective, LAG, Map, PART_ALIGN, PART_BYTES, Pieces, add, overlap};
use crate::collective::stream::Stream;
use crate::collective::{Collective, Phases};
use crate::error::Error;
use crate::hosts::Promise;
use crate::tensor::Span;

/// Number of hosts up to which a part has [`PART_BYTES`]. With more hosts parts are shorter, since a
/// lane holds one part of each host for each window that is in flight.
const WHOLE_PARTS_MAX: usize = 12;
/// Shortest part.
const PART_BYTES_MIN: usize = 4 << 10;

/// Bytes of a part with this number of hosts.
fn part_bytes(hosts: usize) -> usize {
    let bytes = PART_BYTES * WHOLE_PARTS_MAX / hosts.max(WHOLE_PARTS_MAX);
    bytes.max(PART_BYTES_MIN).next_multiple_of(PART_ALIGN)
}

/// Layout of a batch. A host's bytes are in tensor order, and in rank order within each tensor.
struct Plan {
    /// Destination of each host's bytes on this rank, including the bytes that are not written.
    results: Vec<Stream>,
    /// Position of each rank's contribution in this host's bytes: that of the `r`th rank to tensor
    /// `t` begins at `begins[t * ranks + r]` and ends where the next one begins.
    begins: Vec<usize>,
    /// Number of ranks of this host.
    ranks: usize,
    /// Largest number of bytes of one host.
    longest: usize,
}

impl Plan {
    /// Creates the plan of a batch in which set rank `r` contributes `bytes[t * size + r]` bytes to
    /// tensor `t`.
    fn new(map: &Map, spans: &[Span], bytes: &[usize]) -> Self {
        let size = map.hosts.iter().map(Vec::len).sum();
        let mut results: Vec<Stream> = map.hosts.iter().map(|_| Stream::default()).collect();
        let mut begins = vec![0];
        let mut end = 0;
        for (span, lengths) in spans.iter().zip(bytes.chunks_exact(size)) {
            let offsets: Vec<usize> = lengths
                .iter()
                .scan(0, |end, length| {
                    *end += length;
                    Some(*end - length)
                })
                .collect();
            for (host, result) in map.hosts.iter().zip(&mut results) {
                for &rank in host {
                    let output = if span.keeps_nothing() {
                        std::ptr::null_mut()
                    } else {
                        span.output().wrapping_add(offsets[rank])
                    };
                    result.push(std::ptr::null(), output, lengths[rank]);
                }
            }
            for &rank in &map.hosts[map.own] {
                end += lengths[rank];
                begins.push(end);
            }
        }
        let longest = results.iter().map(Stream::bytes).max().unwrap_or(0);
        Self {
            results,
            begins,
            ranks: map.hosts[map.own].len(),
            longest,
        }
    }

    /// Returns the window of host `host`'s bytes that is sent in round `round`, for windows of
    /// `chunk` bytes.
    fn window(&self, host: usize, round: usize, chunk: usize) -> Range<usize> {
        let bytes = self.results[host].bytes();
        (round * chunk).min(bytes)..((round + 1) * chunk).min(bytes)
    }

    /// Returns the range of the contributions of this host's ranks `ranks` to tensor `tensor` in
    /// the host's bytes.
    fn range(&self, tensor: usize, ranks: Range<usize>) -> Range<usize> {
        let first = tensor * self.ranks;
        self.begins[first + ranks.start]..self.begins[first + ranks.end]
    }

    /// Returns the tensors that have bytes of this host in `window`; empty tensors at its edges may
    /// be included.
    fn tensors(&self, window: &Range<usize>) -> Range<usize> {
        let tensors = (self.begins.len() - 1) / self.ranks;
        let after =
            |bound: usize| self.begins[1..].partition_point(|&end| end <= bound) / self.ranks;
        after(window.start)..(after(window.end) + 1).min(tensors)
    }
}

/// Window that is being exchanged between hosts.
struct Flight {
    /// Dropped before the parts, which the operation borrows.
    promise: Option<Promise<Phases>>,
    /// Part of every host's window that this rank's lane carries, in host order.
    parts: Vec<Vec<u8>>,
    round: usize,
}

impl HierarchicalCollective {
    /// Runs an allgather; the table is that of [`Collective::allgather`].
    pub(super) fn allgather_hierarchical(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
    ) -> Result<Phases, Error> {
        assert_eq!(
            bytes.len(),
            spans.len() * self.size,
            "a length per tensor and rank"
        );
        let plan = Plan::new(&self.map, spans, bytes);
        let chunk = part_bytes(self.map.hosts.len()) * self.map.lanes;
        let rounds = plan.longest.div_ceil(chunk);
        let mut phases = Phases::default();
        let mut flights: VecDeque<Flight> = VecDeque::new();
        for turn in 0..rounds + LAG {
            if turn < rounds {
                let flight = self.collect_intra_node(spans, &plan, turn, chunk, &mut phases)?;
                flights.push_back(flight);
            }
            if (LAG..rounds + LAG).contains(&turn) {
                let flight = flights.pop_front().expect("as many as turns");
                self.hand_round(&plan, flight, chunk, rounds, &mut phases)?;
            }
        }
        Ok(phases)
    }

    /// Brings a window of the host's bytes to its lanes and starts the exchange of this rank's
    /// part.
    fn collect_intra_node(
        &mut self,
        spans: &[Span],
        plan: &Plan,
        round: usize,
        chunk: usize,
        phases: &mut Phases,
    ) -> Result<Flight, Error> {
        let began = Instant::now();
        let (hosts, own) = (self.map.hosts.len(), self.map.own);
        let part = part_bytes(hosts);
        let lengths: Vec<usize> = (0..hosts)
            .map(|host| self.own_range(&plan.window(host, round, chunk)).len())
            .collect();
        let mut parts: Vec<Vec<u8>> = lengths.iter().map(|&bytes| self.buffer(bytes)).collect();
        let window = plan.window(own, round, chunk);
        let pieces = self.contributions(spans, plan, &window, parts[own].as_mut_ptr());
        let done = self
            .intra_node
            .collective
            .alltoall(&pieces.spans, &pieces.table)?;
        add(phases, &done);
        if round == 0 {
            phases.lead_in_ns = began.elapsed().as_nanos() as u64;
            phases.late_ns = done.late_ns;
        }
        let promise = self.lane.as_mut().map(|lane| {
            let mut sent = Stream::default();
            sent.push(parts[own].as_ptr(), std::ptr::null_mut(), lengths[own]);
            let received = lane.hosts.iter().map(|&host| {
                let mut stream = Stream::default();
                if host == own {
                    stream.skip(lengths[host]); // already in place
                } else {
                    stream.push(std::ptr::null(), parts[host].as_mut_ptr(), lengths[host]);
                }
                stream
            });
            let received = received.collect();
            // One round: other windows are in flight.
            lane.collective
                .begin(move |job| transfer::allgather(job, sent, received, part))
        });
        Ok(Flight {
            promise,
            parts,
            round,
        })
    }

    /// Returns the bytes that the ranks of this host send to its lanes of `window`, tensor by
    /// tensor; the part of this rank's lane is at `part`.
    fn contributions(
        &self,
        spans: &[Span],
        plan: &Plan,
        window: &Range<usize>,
        part: *mut u8,
    ) -> Pieces {
        let (rank, size) = (self.intra_node.rank, self.intra_node.size);
        let lanes = self.lane_ranges(window);
        let mut pieces = Pieces::default();
        for tensor in plan.tensors(window) {
            for from in 0..size {
                let sent = plan.range(tensor, from..from + 1);
                let to = |to: usize| lanes.get(to).map_or(0, |lane| overlap(lane, &sent).len());
                pieces.table.extend((0..size).map(to));
            }
            let own = plan.range(tensor, rank..rank + 1);
            let sent = overlap(&own, window);
            let input = match sent.is_empty() {
                true => std::ptr::null(),
                false => spans[tensor].input().wrapping_add(sent.start - own.start),
            };
            let output = match lanes.get(rank) {
                None => std::ptr::null_mut(),
                Some(lane) => part
                    .wrapping_add(overlap(lane, &plan.range(tensor, 0..size)).start - lane.start),
            };
            // SAFETY: the input is a part of the caller's span; the output is as long as the bytes
            // that all ranks send to it, and lies in a part that is not aliased.
            pieces
                .spans
                .push(unsafe { Span::new(input, output, sent.len()) });
        }
        pieces
    }

    /// Receives a window and distributes it from the host's lanes to all of its ranks.
    fn hand_round(
        &mut self,
        plan: &Plan,
        flight: Flight,
        chunk: usize,
        rounds: usize,
        phases: &mut Phases,
    ) -> Result<(), Error> {
        let Flight {
            promise,
            mut parts,
            round,
        } = flight;
        self.keep(promise, phases)?;
        let began = Instant::now();
        let mut all = Pieces::default();
        for (host, part) in parts.iter_mut().enumerate() {
            let window = plan.window(host, round, chunk);
            let pieces = self.pieces(
                &plan.results[host],
                &window,
                part.as_mut_ptr(),
                |piece, place, own| {
                    // SAFETY: the share lies in a part that is not aliased; the output is a part of
                    // the caller's span, or null.
                    unsafe { Span::new(place, piece.output, own) }
                },
            );
            all.spans.extend(pieces.spans);
            all.table.extend(pieces.table);
        }
        let done = self
            .intra_node
            .collective
            .allgather(&all.spans, &all.table)?;
        add(phases, &done);
        if round + 1 == rounds {
            phases.tail_out_ns = began.elapsed().as_nanos() as u64;
        }
        self.buffers.extend(parts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the map of hosts with ranks {0, 2} and {1}; this rank is on the first.
    fn map() -> Map {
        Map {
            hosts: vec![vec![0, 2], vec![1]],
            own: 0,
            lanes: 1,
        }
    }

    /// Returns a span with an output at `output` and no input.
    fn span(output: usize) -> Span {
        // SAFETY: nothing is read or written in these tests.
        unsafe {
            Span::new(
                std::ptr::null(),
                std::ptr::without_provenance_mut(output),
                0,
            )
        }
    }

    #[test]
    fn a_hosts_bytes_are_in_order_of_tensors_and_of_its_ranks() {
        // Ranks 0, 1 and 2 contribute 3, 10 and 2 bytes to the first tensor, 0, 0 and 5 to the
        // second.
        let plan = Plan::new(&map(), &[span(1_000), span(2_000)], &[3, 10, 2, 0, 0, 5]);
        let places = |host: usize| {
            let pieces = plan.results[host].pieces(0..usize::MAX);
            let place = |piece: crate::collective::stream::Piece| {
                (piece.output.addr(), piece.at, piece.bytes)
            };
            pieces.map(place).collect::<Vec<_>>()
        };
        assert_eq!(places(0), [(1_000, 0, 3), (1_013, 3, 2), (2_000, 5, 5)]);
        assert_eq!(places(1), [(1_003, 0, 10)]);
        assert_eq!(plan.begins, [0, 3, 5, 5, 10]);
        assert_eq!((plan.range(0, 1..2), plan.range(1, 0..2)), (3..5, 5..10));
        assert_eq!(plan.longest, 10);
        // Windows of 4 bytes: the first host's are 0..4, 4..8, 8..10.
        assert_eq!(
            (plan.window(0, 2, 4), plan.window(0, 3, 4)),
            (8..10, 10..10)
        );
        assert_eq!(plan.tensors(&(0..4)), 0..1);
        assert_eq!(plan.tensors(&(4..8)), 0..2);
        assert_eq!(plan.tensors(&(8..10)), 1..2);
    }

    #[test]
    fn a_window_needs_little_memory_however_many_hosts_there_are() {
        assert_eq!(part_bytes(2), PART_BYTES);
        assert_eq!(part_bytes(WHOLE_PARTS_MAX), PART_BYTES);
        for hosts in WHOLE_PARTS_MAX..5_000 {
            let part = part_bytes(hosts);
            assert_eq!(part % PART_ALIGN, 0);
            let most =
                (WHOLE_PARTS_MAX * PART_BYTES).max(hosts * PART_BYTES_MIN) + hosts * PART_ALIGN;
            assert!(hosts * part <= most, "{hosts} hosts: {part}");
        }
    }

    #[test]
    fn who_keeps_nothing_has_the_pieces_all_the_same() {
        let plan = Plan::new(&map(), &[Span::absent(0)], &[3, 10, 2]);
        let pieces: Vec<_> = plan.results[0].pieces(0..5).collect();
        assert_eq!(pieces.len(), 2);
        assert!(pieces.iter().all(|piece| piece.output.is_null()));
    }
}
