//! Reducescatter: the first half of an allreduce, where the parts are the ranks' shares.

use std::collections::VecDeque;

use super::allreduce::reduce;
use super::staging::{copy_in, copy_out};
use super::{Batch, CHUNK_BYTES, Job, LAG, PART_ALIGN};
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::mpi::{MpiError, Parts};
use crate::tensor::Span;

/// Each rank's share of the batch, in rank order; what this rank reads of it, and of its own, where it writes it.
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
) -> Result<Batch, MpiError> {
    let (rank, size) = (job.comm.rank(), job.comm.size());
    let part = (CHUNK_BYTES / size).next_multiple_of(PART_ALIGN);
    let is_present = |rank: usize| present.binary_search(&rank).is_ok();
    // An absent rank's share is reduced by nobody.
    let length = |owner: usize| {
        if is_present(owner) {
            shares[owner].bytes()
        } else {
            0
        }
    };
    let rounds = (0..size).map(length).max().unwrap_or(0).div_ceil(part);
    let piece = |owner: usize, round: usize| {
        let begin = (round * part).min(length(owner));
        begin..(begin + part).min(length(owner))
    };
    let mut flights = VecDeque::new();
    for turn in 0..rounds + LAG {
        if turn < rounds {
            let sent = Parts::of((0..size).map(|owner| {
                if is_present(rank) {
                    piece(owner, turn).len()
                } else {
                    0
                }
            }));
            let own = piece(rank, turn).len();
            let received = Parts::of((0..size).map(|from| if is_present(from) { own } else { 0 }));
            let mut send = job.staging.take(sent.bytes());
            let receive = job.staging.take(received.bytes());
            job.lap.file(
                |phases| &mut phases.copy_in_ns,
                || {
                    for (owner, share) in shares
                        .iter()
                        .enumerate()
                        .filter(|(owner, _)| !sent.range(*owner).is_empty())
                    {
                        copy_in(share, piece(owner, turn), &mut send[sent.range(owner)]);
                    }
                },
            );
            flights.push_back(job.comm.alltoall_parts((send, sent), (receive, received))?);
        }
        if turn >= LAG {
            let range = piece(rank, turn - LAG);
            let [(mut result, _), (contributions, _)] =
                flights.pop_front().expect("as many as turns").await?;
            // Those who are present lie one after another, without gaps for the others.
            let length = range.len();
            let sources: Vec<*const u8> = (0..present.len())
                .map(|place| contributions[place * length..].as_ptr())
                .collect();
            if result.len() < range.len() {
                result.resize(range.len(), 0);
            }
            let bytes = length;
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
        }
    }
    Ok(job.done())
}
