//! Reducescatter between hosts: the first half of an allreduce, whose parts are the ranks' shares.

use super::Job;
use super::allreduce::reduce;
use super::rounds::{piece_bytes, rounds};
use super::staging::{copy_in, copy_out};
use crate::collective::Phases;
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use ronde_net::{Parts, part_range};

use crate::hosts::CommError;
use crate::tensor::Span;

/// Returns each rank's share of the batch, in rank order: the inputs that this rank reads, and for
/// its own share the outputs.
pub(super) fn shares(spans: &[Span], bytes: &[usize], rank: usize, size: usize) -> Vec<Stream> {
    let share = |owner: usize| {
        let mut stream = Stream::default();
        for (span, lengths) in spans.iter().zip(bytes.chunks_exact(size)) {
            let before: usize = lengths[..owner].iter().sum();
            if span.is_absent() {
                stream.skip(lengths[owner]);
            } else {
                let output = if owner == rank {
                    span.output()
                } else {
                    std::ptr::null_mut()
                };
                stream.push(span.input().wrapping_add(before), output, lengths[owner]);
            }
        }
        stream
    };
    (0..size).map(share).collect()
}

/// Combines the shares over the ranks `present`, each at its owner.
pub(super) async fn reducescatter(
    mut job: Job,
    shares: Vec<Stream>,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Phases, CommError> {
    let (rank, size) = (job.comm.rank(), job.comm.size());
    let part = piece_bytes(size);
    let is_present = |rank: usize| present.binary_search(&rank).is_ok();
    // An absent rank's share is not reduced.
    let length = |owner: usize| {
        if is_present(owner) {
            shares[owner].bytes()
        } else {
            0
        }
    };
    let longest = (0..size).map(length).max().unwrap_or(0);
    let piece = |owner: usize, round: usize| part_range(round, part, length(owner));
    let begin = |job: &mut Job, round: usize| {
        let sent = |owner: usize| {
            if is_present(rank) {
                piece(owner, round).len()
            } else {
                0
            }
        };
        let own = piece(rank, round).len();
        let sent = Parts::of((0..size).map(sent));
        let received = Parts::of((0..size).map(|from| if is_present(from) { own } else { 0 }));
        let mut send = job.staging.take(sent.bytes());
        let receive = job.staging.take(received.bytes());
        job.lap.file(
            |phases| &mut phases.copy_in_ns,
            || {
                for (owner, share) in shares.iter().enumerate() {
                    if !sent.range(owner).is_empty() {
                        copy_in(share, piece(owner, round), &mut send[sent.range(owner)]);
                    }
                }
            },
        );
        job.comm.alltoall_parts((send, sent), (receive, received))
    };
    let end =
        |job: &mut Job, round: usize, [(sent, _), (contributions, _)]: [(Vec<u8>, Parts); 2]| {
            let range = piece(rank, round);
            let bytes = range.len();
            // Contributions of the present ranks are stored without gaps for the absent ones.
            let places = 0..present.len();
            let sources: Vec<*const u8> = places
                .map(|place| contributions[place * bytes..].as_ptr())
                .collect();
            job.staging.give(sent);
            let mut result = job.staging.take(bytes);
            job.lap.file(
                |phases| &mut phases.reduce_ns,
                || reduce(&reducer, &sources, &mut result[..bytes]),
            );
            job.lap.file(
                |phases| &mut phases.copy_out_ns,
                || copy_out(&shares[rank], range, &result),
            );
            job.staging.give(result);
            job.staging.give(contributions);
        };
    rounds(&mut job, longest.div_ceil(part), begin, end).await?;
    Ok(job.done())
}
