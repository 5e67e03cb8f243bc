//! NCCL program of reducescatter.
//!
//! NCCL gives every rank equally many elements. If shares differ by a row, or several tensors share
//! a batch, the fusion buffer has a region for each rank, all as long as the longest, with that
//! rank's shares of all tensors.

use super::number::Travel;
use super::program::{Copies, Program, entry};
use super::reduce::{neutral, units};
use super::{Batch, Scratch, SetRank};
use crate::gpu::Call;
use crate::gpu::layout::{places, room};

/// Number of elements of rank `rank`'s share of a tensor.
fn share(batch: &Batch<'_>, size: usize, tensor: usize, rank: usize) -> usize {
    batch.bytes[tensor * size + rank] / batch.reduction.dtype.size_bytes()
}

fn is_direct(batch: &Batch<'_>, travel: &Travel, size: usize) -> bool {
    let first = batch.bytes.first();
    batch.spans.len() == 1
        && travel.is_plain()
        && batch.reduction.prescale == 1.0 // no memory for the scaled input
        && batch.bytes[..size].iter().all(|bytes| Some(bytes) == first)
}

/// Bytes of one rank's region.
fn region(batch: &Batch<'_>, travel: &Travel, size: usize) -> usize {
    let of_rank = |rank: usize| -> usize {
        let shares = (0..batch.spans.len()).map(|tensor| share(batch, size, tensor, rank));
        shares
            .map(|elements| room(elements * travel.wire.bytes()))
            .sum()
    };
    (0..size).map(of_rank).max().unwrap_or(0)
}

pub(super) fn buffer_bytes(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    let travel = batch.travel(set_rank);
    if is_direct(batch, &travel, set_rank.size) {
        0
    } else {
        set_rank.size * region(batch, &travel, set_rank.size)
    }
}

pub(super) fn sink_bytes(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    let travel = batch.travel(set_rank);
    match batch.spans {
        [span] if span.keeps_nothing() && is_direct(batch, &travel, set_rank.size) => {
            let share = batch.bytes[0];
            if span.is_absent() {
                room(set_rank.size * share)
            } else {
                share
            }
        }
        _ => 0,
    }
}

pub(super) fn program(batch: &Batch<'_>, set_rank: SetRank, scratch: Scratch) -> Program {
    let SetRank { rank, size } = set_rank;
    let travel = batch.travel(set_rank);
    let (prescale, postscale) = (batch.reduction.prescale, batch.reduction.postscale);
    let is_absent = batch.spans.iter().all(crate::tensor::Span::is_absent);
    let reduced = |from, to, count| Call::Reducescatter(travel.combined(from, to, count));
    let region = region(batch, &travel, size);
    if region == 0 {
        return Program::default();
    }
    if is_direct(batch, &travel, size) {
        let (span, count) = (&batch.spans[0], share(batch, size, 0, rank));
        let (from, to) = match (is_absent, span.keeps_nothing()) {
            (true, _) => (scratch.sink, scratch.sink + (rank * batch.bytes[0]) as u64),
            (false, true) => (span.input() as u64, scratch.sink),
            (false, false) => (span.input() as u64, span.output() as u64),
        };
        let neutral =
            is_absent.then(|| neutral(&travel, scratch.sink, room(size * batch.bytes[0])));
        let scaled = (postscale != 1.0 && !span.keeps_nothing())
            .then(|| Copies::scaled(travel.own, postscale, to, to, count));
        return Program {
            inward: neutral.into_iter().collect(),
            calls: vec![reduced(from, to, count)],
            outward: scaled.into_iter().collect(),
        };
    }
    let own_bytes = batch.reduction.dtype.size_bytes();
    // Offsets of the tensors' shares in a rank's region.
    let within: Vec<Vec<usize>> = (0..size)
        .map(|rank| {
            let shares = (0..batch.spans.len()).map(|tensor| share(batch, size, tensor, rank));
            places(shares.map(|elements| elements * travel.wire.bytes()))
        })
        .collect();
    let in_buffer =
        |tensor: usize, rank: usize| scratch.buffer + (rank * region + within[rank][tensor]) as u64;
    let own_region = scratch.buffer + (rank * region) as u64;
    let calls = vec![reduced(
        scratch.buffer,
        own_region,
        region / travel.wire.bytes(),
    )];
    if is_absent {
        return Program {
            inward: vec![neutral(&travel, scratch.buffer, size * region)],
            calls,
            outward: Vec::new(),
        };
    }
    let (inward, outward) = (travel.inward(prescale), travel.outward(postscale));
    let mut contributions = Vec::new();
    let mut results = Vec::new();
    for (tensor, span) in batch.spans.iter().enumerate() {
        let mut from = span.input() as u64;
        for to in 0..size {
            let elements = share(batch, size, tensor, to);
            contributions.extend(entry(
                from,
                in_buffer(tensor, to),
                units(inward, elements, elements * own_bytes),
            ));
            from += (elements * own_bytes) as u64;
        }
        if !span.keeps_nothing() {
            let elements = share(batch, size, tensor, rank);
            let units = units(outward, elements, elements * own_bytes);
            results.extend(entry(in_buffer(tensor, rank), span.output() as u64, units));
        }
    }
    Program {
        inward: vec![Copies {
            kernel: inward,
            factor: prescale,
            divisor: 1,
            entries: contributions,
        }],
        calls,
        outward: vec![Copies {
            kernel: outward,
            factor: postscale,
            divisor: travel.divisor,
            entries: results,
        }],
    }
}
