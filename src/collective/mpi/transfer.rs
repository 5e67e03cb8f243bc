//! Broadcast, allgather and alltoall: bytes that go from rank to rank as they are.

use std::collections::VecDeque;

use super::staging::{copy_in, copy_out};
use super::{Batch, CHUNK_BYTES, Job, LAG, PART_ALIGN};
use crate::collective::stream::Stream;
use crate::mpi::{MpiError, Parts};
use crate::tensor::Span;

/// From rank `root` to all; `batch` is what the root reads and everyone writes.
pub(super) async fn broadcast(mut job: Job, batch: Stream, root: usize) -> Result<Batch, MpiError> {
    let bytes = batch.bytes();
    let chunks = bytes.div_ceil(CHUNK_BYTES);
    let chunk = |turn: usize| turn * CHUNK_BYTES..((turn + 1) * CHUNK_BYTES).min(bytes);
    let mut flights = VecDeque::new();
    for turn in 0..chunks + LAG {
        if turn < chunks {
            let range = chunk(turn);
            let mut buffer = job.staging.take(range.len());
            if job.comm.rank() == root {
                let copied = range.clone();
                job.lap.file(
                    |phases| &mut phases.copy_in_ns,
                    || copy_in(&batch, copied, &mut buffer),
                );
            }
            flights.push_back(job.comm.broadcast(buffer, range.len(), root)?);
        }
        if turn >= LAG {
            let buffer = flights.pop_front().expect("as many as turns").await?;
            let range = chunk(turn - LAG);
            job.lap.file(
                |phases| &mut phases.copy_out_ns,
                || copy_out(&batch, range, &buffer),
            );
            job.staging.give(buffer);
        }
    }
    Ok(job.done())
}

/// What rank `rank` contributes to an allgather.
pub(super) fn gathered_from_here(spans: &[Span], bytes: &[usize], rank: usize, size: usize) -> Stream {
    let mut stream = Stream::default();
    for (span, lengths) in spans.iter().zip(bytes.chunks_exact(size)) {
        stream.push(span.input(), std::ptr::null_mut(), lengths[rank]);
    }
    stream
}

/// Where what each rank contributes is written here.
pub(super) fn gathered_here(spans: &[Span], bytes: &[usize], size: usize) -> Vec<Stream> {
    let from = |from: usize| {
        let mut stream = Stream::default();
        for (span, lengths) in spans.iter().zip(bytes.chunks_exact(size)) {
            let before: usize = lengths[..from].iter().sum();
            receive(&mut stream, span, before, lengths[from]);
        }
        stream
    };
    (0..size).map(from).collect()
}

/// What rank `rank` sends to each rank in an alltoall.
pub(super) fn sent_from_here(spans: &[Span], bytes: &[usize], rank: usize, size: usize) -> Vec<Stream> {
    let to = |to: usize| {
        let mut stream = Stream::default();
        for (span, table) in spans.iter().zip(bytes.chunks_exact(size * size)) {
            let lengths = &table[rank * size..][..size];
            let before: usize = lengths[..to].iter().sum();
            stream.push(
                span.input().wrapping_add(before),
                std::ptr::null_mut(),
                lengths[to],
            );
        }
        stream
    };
    (0..size).map(to).collect()
}

/// Where what each rank sends to rank `rank` is written here.
pub(super) fn received_here(spans: &[Span], bytes: &[usize], rank: usize, size: usize) -> Vec<Stream> {
    let from = |from: usize| {
        let mut stream = Stream::default();
        for (span, table) in spans.iter().zip(bytes.chunks_exact(size * size)) {
            let length = |from: usize| table[from * size + rank];
            receive(&mut stream, span, (0..from).map(length).sum(), length(from));
        }
        stream
    };
    (0..size).map(from).collect()
}

/// `bytes` bytes that go to `offset` of the output of `span`, if there is one.
fn receive(stream: &mut Stream, span: &Span, offset: usize, bytes: usize) {
    if span.keeps_nothing() {
        stream.skip(bytes);
    } else {
        stream.push(std::ptr::null(), span.output().wrapping_add(offset), bytes);
    }
}

/// The most that one rank sends to another in an alltoall, all tensors together.
pub(super) fn longest_way(bytes: &[usize], size: usize) -> usize {
    let way = |way: usize| bytes.iter().skip(way).step_by(size * size).sum();
    (0..size * size).map(way).max().unwrap_or(0)
}

/// Everyone's stream to all.
pub(super) async fn allgather(mut job: Job, own: Stream, all: Vec<Stream>) -> Result<Batch, MpiError> {
    let size = job.comm.size();
    let part = (CHUNK_BYTES / size).next_multiple_of(PART_ALIGN);
    let rounds = all.iter().map(Stream::bytes).max().unwrap_or(0).div_ceil(part);
    let mut flights = VecDeque::new();
    for turn in 0..rounds + LAG {
        if turn < rounds {
            let parts = Parts::of(all.iter().map(|stream| piece(stream, turn, part).len()));
            let range = piece(&own, turn, part);
            let (mut send, receive) = (job.staging.take(range.len()), job.staging.take(parts.bytes()));
            job.lap.file(
                |phases| &mut phases.copy_in_ns,
                || copy_in(&own, range, &mut send),
            );
            flights.push_back(job.comm.allgather_parts(send, receive, parts)?);
        }
        if turn >= LAG {
            let (sent, received, parts) = flights.pop_front().expect("as many as turns").await?;
            job.lap.file(
                |phases| &mut phases.copy_out_ns,
                || {
                    for (from, stream) in all.iter().enumerate() {
                        copy_out(
                            stream,
                            piece(stream, turn - LAG, part),
                            &received[parts.range(from)],
                        );
                    }
                },
            );
            job.staging.give(sent);
            job.staging.give(received);
        }
    }
    Ok(job.done())
}

/// Each rank's streams to the others; the longest of all ranks' has `longest` bytes.
pub(super) async fn alltoall(
    mut job: Job,
    sent: Vec<Stream>,
    received: Vec<Stream>,
    longest: usize,
) -> Result<Batch, MpiError> {
    let part = (CHUNK_BYTES / job.comm.size()).next_multiple_of(PART_ALIGN);
    let rounds = longest.div_ceil(part);
    let mut flights = VecDeque::new();
    for turn in 0..rounds + LAG {
        if turn < rounds {
            let parts =
                |streams: &[Stream]| Parts::of(streams.iter().map(|stream| piece(stream, turn, part).len()));
            let (to, from) = (parts(&sent), parts(&received));
            let (mut send, receive) = (job.staging.take(to.bytes()), job.staging.take(from.bytes()));
            job.lap.file(
                |phases| &mut phases.copy_in_ns,
                || {
                    for (rank, stream) in sent.iter().enumerate() {
                        copy_in(stream, piece(stream, turn, part), &mut send[to.range(rank)]);
                    }
                },
            );
            flights.push_back(job.comm.alltoall_parts((send, to), (receive, from))?);
        }
        if turn >= LAG {
            let [(send, _), (receive, from)] = flights.pop_front().expect("as many as turns").await?;
            job.lap.file(
                |phases| &mut phases.copy_out_ns,
                || {
                    for (rank, stream) in received.iter().enumerate() {
                        copy_out(
                            stream,
                            piece(stream, turn - LAG, part),
                            &receive[from.range(rank)],
                        );
                    }
                },
            );
            job.staging.give(send);
            job.staging.give(receive);
        }
    }
    Ok(job.done())
}

/// What of `stream` goes in round `round`.
fn piece(stream: &Stream, round: usize, part: usize) -> std::ops::Range<usize> {
    let begin = (round * part).min(stream.bytes());
    begin..(begin + part).min(stream.bytes())
}
