//! NCCL programs of broadcast, allgather and alltoall, which move bytes and reduce nothing.

use super::program::{Copies, Program, entry};
use super::{Batch, Scratch, SetRank};
use crate::gpu::layout::{places, room};
use crate::gpu::{Call, Number};
use crate::tensor::Span;

// ---- broadcast ----------------------------------------------------------------------------------

pub(super) fn broadcast_bytes(batch: &Batch<'_>) -> usize {
    match batch.spans {
        [_] => 0,
        spans => spans.iter().map(|span| room(span.bytes())).sum(),
    }
}

pub(super) fn broadcast_sink(batch: &Batch<'_>) -> usize {
    match batch.spans {
        [span] if span.keeps_nothing() => span.bytes(),
        _ => 0,
    }
}

pub(super) fn broadcast(batch: &Batch<'_>, set_rank: SetRank, scratch: Scratch) -> Program {
    let call = |from, to, count| Call::Broadcast {
        from,
        to,
        count,
        number: Number::U8,
        root: batch.root,
    };
    if let [span] = batch.spans {
        let to = if span.keeps_nothing() {
            scratch.sink
        } else {
            span.output() as u64
        };
        let from = if span.is_absent() {
            to
        } else {
            span.input() as u64
        };
        let calls = (span.bytes() > 0).then(|| call(from, to, span.bytes()));
        return Program {
            calls: calls.into_iter().collect(),
            ..Program::default()
        };
    }
    let at = places(batch.spans.iter().map(Span::bytes));
    let Some(&total @ 1..) = at.last() else {
        return Program::default();
    };
    let is_root = set_rank.rank == batch.root;
    let stretches = || batch.spans.iter().zip(&at);
    let inward = stretches().filter(|_| is_root).filter_map(|(span, at)| {
        entry(
            span.input() as u64,
            scratch.buffer + *at as u64,
            span.bytes(),
        )
    });
    let outward = stretches()
        .filter(|(span, _)| !(span.keeps_nothing() || is_root && span.input() == span.output()))
        .filter_map(|(span, at)| {
            entry(
                scratch.buffer + *at as u64,
                span.output() as u64,
                span.bytes(),
            )
        });
    Program {
        inward: copies(inward),
        calls: vec![call(scratch.buffer, scratch.buffer, total)],
        outward: copies(outward),
    }
}

/// Returns the copies, if there are any.
fn copies(entries: impl Iterator<Item = crate::gpu::Entry>) -> Vec<Copies> {
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() {
        Vec::new()
    } else {
        vec![Copies::plain(entries)]
    }
}

// ---- allgather ----------------------------------------------------------------------------------

/// Offsets of the ranks' parts in the gathered data, and its end: in the output if there is one
/// tensor, or in the fusion buffer, where each rank has all its tensors one after another.
fn stretches(batch: &Batch<'_>, size: usize) -> Vec<usize> {
    let of_rank = |rank: usize| -> usize {
        let bytes = (0..batch.spans.len()).map(|tensor| batch.bytes[tensor * size + rank]);
        match batch.spans {
            [_] => bytes.sum(),
            _ => bytes.map(room).sum(),
        }
    };
    let mut at = 0;
    let mut places = vec![0];
    for rank in 0..size {
        at += of_rank(rank);
        places.push(at);
    }
    places
}

pub(super) fn allgather_bytes(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    match batch.spans {
        [_] => 0,
        _ => stretches(batch, set_rank.size)[set_rank.size],
    }
}

pub(super) fn allgather_sink(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    match batch.spans {
        [span] if span.keeps_nothing() => stretches(batch, set_rank.size)[set_rank.size],
        _ => 0,
    }
}

pub(super) fn allgather(batch: &Batch<'_>, set_rank: SetRank, scratch: Scratch) -> Program {
    let SetRank { rank, size } = set_rank;
    let at = stretches(batch, size);
    if at[size] == 0 {
        return Program::default();
    }
    if let [span] = batch.spans {
        let output = if span.keeps_nothing() {
            scratch.sink
        } else {
            span.output() as u64
        };
        return Program {
            calls: gathering(&at, rank, span.input() as u64, output),
            ..Program::default()
        };
    }
    let bytes = |tensor: usize, rank: usize| batch.bytes[tensor * size + rank];
    // Offsets of the tensors of each rank.
    let within: Vec<Vec<usize>> = (0..size)
        .map(|rank| places((0..batch.spans.len()).map(|tensor| bytes(tensor, rank))))
        .collect();
    let in_buffer =
        |tensor: usize, rank: usize| scratch.buffer + (at[rank] + within[rank][tensor]) as u64;
    let tensors = || batch.spans.iter().enumerate();
    let inward = tensors().filter_map(|(tensor, span)| {
        entry(
            span.input() as u64,
            in_buffer(tensor, rank),
            bytes(tensor, rank),
        )
    });
    let outward = tensors()
        .filter(|(_, span)| !span.keeps_nothing())
        .flat_map(|(tensor, span)| {
            let mut to = span.output() as u64;
            let own = span.input() as u64;
            (0..size)
                .filter_map(move |from| {
                    let (at, bytes) = (to, bytes(tensor, from));
                    to += bytes as u64;
                    let in_place = from == rank && at == own; // the input is at its rows' place
                    (!in_place)
                        .then(|| entry(in_buffer(tensor, from), at, bytes))
                        .flatten()
                })
                .collect::<Vec<_>>()
        });
    Program {
        inward: copies(inward),
        calls: gathering(&at, rank, scratch.buffer + at[rank] as u64, scratch.buffer),
        outward: copies(outward),
    }
}

/// Returns the calls that gather every rank's part in `output`: one allgather if all are equally
/// long, otherwise one broadcast from each rank.
fn gathering(at: &[usize], rank: usize, input: u64, output: u64) -> Vec<Call> {
    let lengths = || at.windows(2).map(|pair| pair[1] - pair[0]);
    let first = at[1];
    if lengths().all(|length| length == first) {
        return vec![Call::Allgather {
            from: input,
            to: output,
            count: first,
            number: Number::U8,
        }];
    }
    let broadcast = |(root, count): (usize, usize)| {
        let to = output + at[root] as u64;
        (count > 0).then_some(Call::Broadcast {
            from: if root == rank { input } else { to },
            to,
            count,
            number: Number::U8,
            root,
        })
    };
    lengths().enumerate().filter_map(broadcast).collect()
}

// ---- alltoall -----------------------------------------------------------------------------------

fn received(batch: &Batch<'_>, tensor: usize, set_rank: SetRank) -> usize {
    let SetRank { rank, size } = set_rank;
    (0..size)
        .map(|from| batch.bytes[(tensor * size + from) * size + rank])
        .sum()
}

pub(super) fn alltoall_sink(batch: &Batch<'_>, set_rank: SetRank) -> usize {
    let spans = batch.spans.iter().enumerate();
    let dropped = spans.filter(|(_, span)| span.keeps_nothing());
    dropped
        .map(|(tensor, _)| received(batch, tensor, set_rank))
        .max()
        .unwrap_or(0)
}

pub(super) fn alltoall(batch: &Batch<'_>, set_rank: SetRank, scratch: Scratch) -> Program {
    let SetRank { rank, size } = set_rank;
    let mut calls = Vec::new();
    for (tensor, span) in batch.spans.iter().enumerate() {
        let bytes = |from: usize, to: usize| batch.bytes[(tensor * size + from) * size + to];
        let mut from = span.input() as u64;
        let mut to = if span.keeps_nothing() {
            scratch.sink
        } else {
            span.output() as u64
        };
        for peer in 0..size {
            let (sent, received) = (bytes(rank, peer), bytes(peer, rank));
            if sent > 0 {
                calls.push(Call::Send {
                    from,
                    count: sent,
                    peer,
                });
            }
            if received > 0 {
                calls.push(Call::Receive {
                    to,
                    count: received,
                    peer,
                });
            }
            from += sent as u64;
            to += received as u64;
        }
    }
    Program {
        calls,
        ..Program::default()
    }
}
