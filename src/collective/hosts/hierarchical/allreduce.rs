//! Hierarchical allreduce: each host reduces a chunk into one part per lane, every lane reduces its
//! part over MPI or TCP, and each host gathers the parts.
//!
//! For *h* hosts and *B* bytes, 2·*B*·(*h* − 1)/*h* bytes cross a host's link, whatever the number
//! of ranks on it; a flat allreduce sends that number from every rank.
//!
//! Sums are rounded per host: the bits differ from those of a flat allreduce, but are equal on all
//! ranks and do not depend on fusion or on the order of arrival. f16 and bf16 are rounded once more
//! than in a flat allreduce. An average of f16 is the average of the hosts' averages, because the
//! sum of a host may be too large for f16. Averages of integers, which are exact, those of f16 on
//! hosts of different sizes, and batches with an absent rank use the flat allreduce.

#![allow(unsafe_code)] // spans over the staging buffer

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::{HierarchicalCollective, LAG, PART_BYTES, add};
use crate::collective::stream::Stream;
use crate::collective::{Collective, Phases, Reduction};
use crate::error::Error;
use crate::hosts::Promise;
use crate::tensor::{Dtype, ReduceOp, Span};

/// Chunk that is being reduced between hosts.
struct Flight {
    /// Dropped before the part, which the operation borrows.
    promise: Option<Promise<Phases>>,
    part: Vec<u8>,
    range: Range<usize>,
}

/// Reductions of the intra-node and the inter-node stage.
struct Reductions {
    intra_node: Reduction,
    inter_node: Reduction,
    /// Whether both stages divide.
    divides_twice: bool,
}

/// Whether `reduction` may be hierarchical; `is_even`: all hosts have equally many ranks.
pub(super) fn splits(reduction: &Reduction, is_even: bool) -> bool {
    let is_float = matches!(
        reduction.dtype,
        Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64
    );
    let is_scaled = reduction.prescale != 1.0 || reduction.postscale != 1.0;
    let is_average = reduction.op == ReduceOp::Average;
    match is_float {
        true => is_even || !divides_twice(reduction),
        false => !is_average && !is_scaled,
    }
}

/// Whether the sum of a host may overflow where the average does not.
fn divides_twice(reduction: &Reduction) -> bool {
    reduction.op == ReduceOp::Average && reduction.dtype == Dtype::F16
}

impl Reductions {
    fn of(reduction: &Reduction) -> Self {
        let divides_twice = divides_twice(reduction);
        let op = match reduction.op {
            ReduceOp::Average if !divides_twice => ReduceOp::Sum,
            op => op,
        };
        Self {
            intra_node: Reduction {
                op,
                postscale: 1.0,
                ..*reduction
            },
            inter_node: Reduction {
                prescale: 1.0,
                ..*reduction
            },
            divides_twice,
        }
    }
}

impl HierarchicalCollective {
    /// Runs an allreduce that [splits] and has no absent rank.
    pub(super) fn allreduce_hierarchical(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
    ) -> Result<Phases, Error> {
        let mut batch = Stream::default();
        spans.iter().for_each(|span| batch.push_span(span));
        let reductions = Reductions::of(reduction);
        let chunk = PART_BYTES * self.map.lanes;
        let chunks = batch.bytes().div_ceil(chunk);
        let mut phases = Phases::default();
        let mut flights: VecDeque<Flight> = VecDeque::new();
        for turn in 0..chunks + LAG {
            if turn < chunks {
                let range = turn * chunk..((turn + 1) * chunk).min(batch.bytes());
                let flight = self.reduce_intra_node(&batch, range, &reductions, &mut phases)?;
                flights.push_back(flight);
            }
            if (LAG..chunks + LAG).contains(&turn) {
                let flight = flights.pop_front().expect("as many as turns");
                let Flight {
                    promise,
                    part,
                    range,
                } = flight;
                self.keep(promise, &mut phases)?;
                self.gather_intra_node(&batch, part, range, &mut phases)?;
            }
        }
        Ok(phases)
    }

    /// Runs the intra-node stage of a chunk and starts the inter-node stage of this rank's part.
    fn reduce_intra_node(
        &mut self,
        batch: &Stream,
        range: Range<usize>,
        reductions: &Reductions,
        phases: &mut Phases,
    ) -> Result<Flight, Error> {
        let began = Instant::now();
        let bytes = self.own_range(&range).len();
        let mut part = self.buffer(bytes);
        let pieces = self.pieces(batch, &range, part.as_mut_ptr(), |piece, place, _| {
            // SAFETY: the piece is a part of the caller's span; its share is written to a part that
            // is not aliased.
            unsafe { Span::new(piece.input, place, piece.bytes) }
        });
        let intra_node = &reductions.intra_node;
        let done = self.intra_node.collective.reducescatter(
            &pieces.spans,
            &pieces.table,
            intra_node,
            &[],
        )?;
        add(phases, &done);
        if range.start == 0 {
            phases.lead_in_ns = began.elapsed().as_nanos() as u64;
            phases.late_ns = done.late_ns;
        }
        let promise = self.lane.as_mut().map(|lane| {
            let place = part.as_mut_ptr();
            let mut own = Stream::default();
            own.push(place, place, bytes);
            let ranks = match reductions.divides_twice {
                true => self.map.hosts.len(),
                false => self.size,
            };
            lane.collective
                .begin_allreduce(own, &reductions.inter_node, ranks)
        });
        Ok(Flight {
            promise,
            part,
            range,
        })
    }

    /// Copies the results of a chunk, a `part` of which each lane has, to the outputs of all ranks
    /// of this host.
    pub(super) fn gather_intra_node(
        &mut self,
        batch: &Stream,
        mut part: Vec<u8>,
        range: Range<usize>,
        phases: &mut Phases,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let pieces = self.pieces(batch, &range, part.as_mut_ptr(), |piece, place, own| {
            // SAFETY: the piece is a part of the caller's span; this rank's share is read from a
            // part that is not aliased.
            unsafe { Span::new(place, piece.output, own) }
        });
        let done = self
            .intra_node
            .collective
            .allgather(&pieces.spans, &pieces.table)?;
        add(phases, &done);
        if range.end == batch.bytes() {
            phases.tail_out_ns = began.elapsed().as_nanos() as u64;
        }
        self.buffers.push(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hierarchical_rounding_would_make_wrong_goes_flat() {
        let of = |dtype, op, prescale| Reduction {
            dtype,
            op,
            prescale,
            postscale: 1.0,
        };
        for is_even in [false, true] {
            let splits = |dtype, op, prescale| splits(&of(dtype, op, prescale), is_even);
            assert!(splits(Dtype::F32, ReduceOp::Average, 0.5));
            assert!(splits(Dtype::F16, ReduceOp::Sum, 1.0));
            assert!(splits(Dtype::I64, ReduceOp::Sum, 1.0));
            assert!(splits(Dtype::I8, ReduceOp::Max, 1.0));
            assert!(!splits(Dtype::I64, ReduceOp::Average, 1.0));
            assert!(!splits(Dtype::I64, ReduceOp::Sum, 0.5));
            assert_eq!(splits(Dtype::F16, ReduceOp::Average, 1.0), is_even);
        }
    }

    #[test]
    fn factors_apply_once_and_an_average_divides_at_the_end() {
        let reduction = Reduction {
            dtype: Dtype::F32,
            op: ReduceOp::Average,
            prescale: 2.0,
            postscale: 3.0,
        };
        let Reductions {
            intra_node,
            inter_node,
            divides_twice,
        } = Reductions::of(&reduction);
        assert!(!divides_twice);
        assert_eq!(
            (intra_node.op, intra_node.prescale, intra_node.postscale),
            (ReduceOp::Sum, 2.0, 1.0)
        );
        assert_eq!(
            (inter_node.op, inter_node.prescale, inter_node.postscale),
            (ReduceOp::Average, 1.0, 3.0)
        );
        let of_f16 = Reductions::of(&Reduction {
            dtype: Dtype::F16,
            ..reduction
        });
        assert!(of_f16.divides_twice && of_f16.intra_node.op == ReduceOp::Average);
    }
}
