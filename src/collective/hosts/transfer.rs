//! Broadcast, allgather and alltoall between hosts.

use super::rounds::{piece_bytes, rounds};
use super::staging::{copy_in, copy_out};
use super::{CHUNK_BYTES, Job};
use crate::collective::Phases;
use crate::collective::stream::Stream;
use ronde_net::{Parts, part_range};

use crate::hosts::CommError;
use crate::tensor::Span;

/// Sends from rank `root` to all; `batch` has the inputs of the root and the outputs of every rank.
pub(super) async fn broadcast(
    mut job: Job,
    batch: Stream,
    root: usize,
) -> Result<Phases, CommError> {
    let bytes = batch.bytes();
    let chunk = |round: usize| part_range(round, CHUNK_BYTES, bytes);
    let begin = |job: &mut Job, round: usize| {
        let mut buffer = job.staging.take(chunk(round).len());
        if job.comm.rank() == root {
            job.lap.file(
                |phases| &mut phases.copy_in_ns,
                || copy_in(&batch, chunk(round), &mut buffer),
            );
        }
        job.comm.broadcast(buffer, chunk(round).len(), root)
    };
    let end = |job: &mut Job, round: usize, buffer: Vec<u8>| {
        job.lap.file(
            |phases| &mut phases.copy_out_ns,
            || copy_out(&batch, chunk(round), &buffer),
        );
        job.staging.give(buffer);
    };
    rounds(&mut job, bytes.div_ceil(CHUNK_BYTES), begin, end).await?;
    Ok(job.done())
}

/// Returns the inputs that rank `rank` contributes to an allgather.
pub(super) fn gathered_from_here(
    spans: &[Span],
    bytes: &[usize],
    rank: usize,
    size: usize,
) -> Stream {
    let mut stream = Stream::default();
    for (span, lengths) in spans.iter().zip(bytes.chunks_exact(size)) {
        stream.push(span.input(), std::ptr::null_mut(), lengths[rank]);
    }
    stream
}

/// Returns the outputs on this rank for each rank's contribution.
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

/// Returns the inputs that rank `rank` sends to each rank in an alltoall.
pub(super) fn sent_from_here(
    spans: &[Span],
    bytes: &[usize],
    rank: usize,
    size: usize,
) -> Vec<Stream> {
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

/// Returns the outputs for the bytes that each rank sends to rank `rank`.
pub(super) fn received_here(
    spans: &[Span],
    bytes: &[usize],
    rank: usize,
    size: usize,
) -> Vec<Stream> {
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

/// Adds `bytes` bytes at `offset` of the output of `span`, if it has one.
fn receive(stream: &mut Stream, span: &Span, offset: usize, bytes: usize) {
    if span.keeps_nothing() {
        stream.skip(bytes);
    } else {
        stream.push(std::ptr::null(), span.output().wrapping_add(offset), bytes);
    }
}

/// Returns the most bytes that one rank sends to another in an alltoall, all tensors together.
pub(super) fn longest_way(bytes: &[usize], size: usize) -> usize {
    let way = |way: usize| bytes.iter().skip(way).step_by(size * size).sum();
    (0..size * size).map(way).max().unwrap_or(0)
}

/// Sends every rank's stream to all, `part` bytes of it in each round.
///
/// The ranks must begin the rounds of all allgathers in the same order. Of several in flight, each
/// may therefore have one round only.
pub(super) async fn allgather(
    mut job: Job,
    own: Stream,
    all: Vec<Stream>,
    part: usize,
) -> Result<Phases, CommError> {
    let longest = all.iter().map(Stream::bytes).max().unwrap_or(0);
    let begin = |job: &mut Job, round: usize| {
        let parts = parts(&all, round, part);
        let range = piece(&own, round, part);
        let (mut send, receive) = (
            job.staging.take(range.len()),
            job.staging.take(parts.bytes()),
        );
        job.lap.file(
            |phases| &mut phases.copy_in_ns,
            || copy_in(&own, range, &mut send),
        );
        job.comm.allgather_parts(send, receive, parts)
    };
    let end = |job: &mut Job, round: usize, (sent, received, parts): (Vec<u8>, Vec<u8>, Parts)| {
        copy_parts_out(job, &all, round, part, &received, &parts);
        job.staging.give(sent);
        job.staging.give(received);
    };
    rounds(&mut job, longest.div_ceil(part), begin, end).await?;
    Ok(job.done())
}

/// Sends each rank's streams to the others; `longest` is the length of the longest stream of all
/// ranks.
pub(super) async fn alltoall(
    mut job: Job,
    sent: Vec<Stream>,
    received: Vec<Stream>,
    longest: usize,
) -> Result<Phases, CommError> {
    let part = piece_bytes(job.comm.size());
    let begin = |job: &mut Job, round: usize| {
        let (to, from) = (parts(&sent, round, part), parts(&received, round, part));
        let (mut send, receive) = (job.staging.take(to.bytes()), job.staging.take(from.bytes()));
        job.lap.file(
            |phases| &mut phases.copy_in_ns,
            || {
                for (rank, stream) in sent.iter().enumerate() {
                    copy_in(
                        stream,
                        piece(stream, round, part),
                        &mut send[to.range(rank)],
                    );
                }
            },
        );
        job.comm.alltoall_parts((send, to), (receive, from))
    };
    let end = |job: &mut Job, round: usize, [(send, _), (receive, from)]: [(Vec<u8>, Parts); 2]| {
        copy_parts_out(job, &received, round, part, &receive, &from);
        job.staging.give(send);
        job.staging.give(receive);
    };
    rounds(&mut job, longest.div_ceil(part), begin, end).await?;
    Ok(job.done())
}

/// Copies the bytes received for each of `streams` in round `round` to the outputs.
fn copy_parts_out(
    job: &mut Job,
    streams: &[Stream],
    round: usize,
    part: usize,
    buffer: &[u8],
    parts: &Parts,
) {
    job.lap.file(
        |phases| &mut phases.copy_out_ns,
        || {
            for (from, stream) in streams.iter().enumerate() {
                copy_out(
                    stream,
                    piece(stream, round, part),
                    &buffer[parts.range(from)],
                );
            }
        },
    );
}

/// Returns the range of each of `streams` that is sent in round `round`.
fn parts(streams: &[Stream], round: usize, part: usize) -> Parts {
    Parts::of(
        streams
            .iter()
            .map(|stream| piece(stream, round, part).len()),
    )
}

/// Returns the range of `stream` that is sent in round `round`.
fn piece(stream: &Stream, round: usize, part: usize) -> std::ops::Range<usize> {
    part_range(round, part, stream.bytes())
}
