//! NCCL program of allreduce.
//!
//! Several tensors go through the fusion buffer: one kernel in, one call, one kernel out. A single
//! tensor needs no copy: NCCL reads the input and writes the output; a factor is a kernel over the
//! output before or after.

use super::number::Travel;
use super::program::{Copies, Program, entry};
use super::{Batch, Scratch, SetRank};
use crate::gpu::layout::{places, room};
use crate::gpu::{Call, Kernel};

fn is_direct(batch: &Batch<'_>, travel: &Travel) -> bool {
    batch.spans.len() == 1 && travel.is_plain()
}

/// Number of elements of each tensor.
fn elements<'a>(batch: &'a Batch<'_>) -> impl Iterator<Item = usize> + 'a {
    let bytes = batch.reduction.dtype.size_bytes();
    batch.spans.iter().map(move |span| span.bytes() / bytes)
}

fn places_of(batch: &Batch<'_>, travel: &Travel) -> Vec<usize> {
    places(elements(batch).map(|elements| elements * travel.wire.bytes()))
}

pub(super) fn buffer_bytes(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    let travel = batch.travel(set_rank);
    if is_direct(batch, &travel) {
        0
    } else {
        places_of(batch, &travel).pop().unwrap_or(0)
    }
}

pub(super) fn sink_bytes(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    match batch.spans {
        [span] if span.keeps_nothing() && is_direct(batch, &batch.travel(set_rank)) => {
            room(span.bytes())
        }
        _ => 0,
    }
}

pub(super) fn program(batch: &Batch<'_>, set_rank: SetRank, scratch: Scratch) -> Program {
    let Scratch { buffer, sink } = scratch;
    let travel = batch.travel(set_rank);
    let (prescale, postscale) = (batch.reduction.prescale, batch.reduction.postscale);
    let at = places_of(batch, &travel);
    let total_bytes = at.last().copied().unwrap_or(0);
    if total_bytes == 0 {
        return Program::default();
    }
    let reduced = |from, to, count| Call::Allreduce(travel.combined(from, to, count));
    let is_absent = batch.spans.iter().all(crate::tensor::Span::is_absent);
    if is_direct(batch, &travel) {
        let count = batch.spans[0].bytes() / travel.wire.bytes();
        if is_absent {
            return Program {
                inward: vec![neutral(&travel, sink, total_bytes)],
                calls: vec![reduced(sink, sink, count)],
                outward: Vec::new(),
            };
        }
        let (keeps_nothing, input) = (
            batch.spans[0].keeps_nothing(),
            batch.spans[0].input() as u64,
        );
        let output = if keeps_nothing {
            sink
        } else {
            batch.spans[0].output() as u64
        };
        let scaled = |from, to, factor| Copies::scaled(travel.own, factor, from, to, count);
        let (inward, from) = if prescale == 1.0 {
            (Vec::new(), input)
        } else {
            (vec![scaled(input, output, prescale)], output)
        };
        return Program {
            inward,
            calls: vec![reduced(from, output, count)],
            outward: if postscale == 1.0 || keeps_nothing {
                Vec::new()
            } else {
                vec![scaled(output, output, postscale)]
            },
        };
    }
    // Padding between tensors is reduced with them, whatever it contains.
    let calls = vec![reduced(buffer, buffer, total_bytes / travel.wire.bytes())];
    if is_absent {
        return Program {
            inward: vec![neutral(&travel, buffer, total_bytes)],
            calls,
            outward: Vec::new(),
        };
    }
    let stretches = || batch.spans.iter().zip(elements(batch)).zip(&at);
    let (inward, outward) = (travel.inward(prescale), travel.outward(postscale));
    let inward = Copies {
        kernel: inward,
        factor: prescale,
        divisor: 1,
        entries: stretches()
            .filter_map(|((span, elements), at)| {
                entry(
                    span.input() as u64,
                    buffer + *at as u64,
                    units(inward, elements, span.bytes()),
                )
            })
            .collect(),
    };
    let outward = Copies {
        kernel: outward,
        factor: postscale,
        divisor: travel.divisor,
        entries: stretches()
            .filter(|((span, _), _)| !span.keeps_nothing())
            .filter_map(|((span, elements), at)| {
                entry(
                    buffer + *at as u64,
                    span.output() as u64,
                    units(outward, elements, span.bytes()),
                )
            })
            .collect(),
    };
    Program {
        inward: vec![inward],
        calls,
        outward: vec![outward],
    }
}

/// Number of units that a kernel counts: bytes or elements.
pub(super) fn units(kernel: Kernel, elements: usize, bytes: usize) -> usize {
    match kernel {
        Kernel::Copy | Kernel::Fill => bytes,
        Kernel::Convert { .. } => elements,
    }
}

/// Returns copies that fill the buffer with neutral elements.
pub(super) fn neutral(travel: &Travel, buffer: u64, bytes: usize) -> Copies {
    Copies {
        kernel: Kernel::Fill,
        factor: 1.0,
        divisor: 1,
        entries: entry(travel.neutral(), buffer, bytes).into_iter().collect(),
    }
}
