//! Allreduce: an alltoall of the parts, the kernels, an allgather of the results; chunk by chunk.

use std::collections::VecDeque;
use std::ops::Range;

use super::staging::{Staging, copy_in, copy_out};
use super::{CHUNK_BYTES, Job, LAG, TINY_BYTES, part_bytes};
use crate::collective::Phases;
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::mpi::{MpiError, Pending};

/// A chunk between two stages.
struct Flight {
    range: Range<usize>,
    part: usize,
    pending: Pending<(Vec<u8>, Vec<u8>)>,
}

/// Combines `batch` over the ranks `present`.
pub(super) async fn allreduce(
    mut job: Job,
    batch: Stream,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<(Phases, Staging), MpiError> {
    let (bytes, size) = (batch.bytes(), job.comm.size());
    if bytes == 0 {
        return Ok(job.done());
    }
    if bytes * size <= TINY_BYTES {
        return tiny(job, batch, reducer, present).await;
    }
    let chunks = bytes.div_ceil(CHUNK_BYTES);
    let (mut scattered, mut gathered) = (VecDeque::new(), VecDeque::new());
    for turn in 0..chunks + 2 * LAG {
        if turn < chunks {
            let begin = turn * CHUNK_BYTES;
            scattered.push_back(scatter(&mut job, &batch, begin..(begin + CHUNK_BYTES).min(bytes))?);
        }
        if (LAG..chunks + LAG).contains(&turn) {
            let flight = scattered.pop_front().expect("as many as turns");
            gathered.push_back(combine(&mut job, flight, &reducer, &present).await?);
        }
        if turn >= 2 * LAG {
            let flight: Flight = gathered.pop_front().expect("as many as turns");
            let (own, all) = flight.pending.await?;
            job.lap.file(|phases| &mut phases.copy_out_ns, || copy_out(&batch, flight.range, &all));
            job.staging.give(own);
            job.staging.give(all);
        }
    }
    Ok(job.done())
}

/// Copies a chunk in and begins to bring its parts to their owners.
fn scatter(job: &mut Job, batch: &Stream, range: Range<usize>) -> Result<Flight, MpiError> {
    let size = job.comm.size();
    let part = part_bytes(range.len(), size);
    let (mut send, receive) = (job.staging.take(part * size), job.staging.take(part * size));
    let copied = range.clone();
    job.lap.file(|phases| &mut phases.copy_in_ns, || copy_in(batch, copied, &mut send));
    let pending = job.comm.alltoall(send, receive, part)?;
    Ok(Flight { range, part, pending })
}

/// Combines this rank's part of a chunk and begins to bring it to all.
async fn combine(job: &mut Job, flight: Flight, reducer: &Reducer, present: &[usize]) -> Result<Flight, MpiError> {
    let Flight { range, part, pending } = flight;
    let (mut result, contributions) = pending.await?;
    let own = (job.comm.rank() * part).min(range.len());
    let bytes = part.min(range.len() - own);
    job.lap.file(
        |phases| &mut phases.reduce_ns,
        || reduce(reducer, &contributions, part, present, &mut result[..bytes]),
    );
    // The contributions have been read: the results of all go where they were.
    let pending = job.comm.allgather(result, contributions, part)?;
    Ok(Flight { range, part, pending })
}

/// Combines the contributions of `present`, each of which begins at its rank's multiple of `part`.
pub(super) fn reduce(reducer: &Reducer, contributions: &[u8], part: usize, present: &[usize], result: &mut [u8]) {
    if result.is_empty() {
        return;
    }
    let bytes = result.len();
    let sources: Vec<*const u8> = present
        .iter()
        .map(|rank| contributions[rank * part..][..bytes].as_ptr())
        .collect();
    // SAFETY: sources and result are `bytes` long, a whole number of elements: chunks, parts and batches are; they do
    // not overlap. Whoever submits a tensor is present, so there is a source.
    unsafe { reducer.combine(&sources, result.as_mut_ptr(), std::ptr::null_mut(), bytes) };
}

/// Everything to everyone, and everyone combines all of it: one meeting.
async fn tiny(
    mut job: Job,
    batch: Stream,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<(Phases, Staging), MpiError> {
    let (bytes, size) = (batch.bytes(), job.comm.size());
    let (mut own, all) = (job.staging.take(bytes), job.staging.take(bytes * size));
    job.lap.file(|phases| &mut phases.copy_in_ns, || copy_in(&batch, 0..bytes, &mut own));
    let (mut result, all) = job.comm.allgather(own, all, bytes)?.await?;
    job.lap.file(
        |phases| &mut phases.reduce_ns,
        || reduce(&reducer, &all, bytes, &present, &mut result[..bytes]),
    );
    job.lap.file(|phases| &mut phases.copy_out_ns, || copy_out(&batch, 0..bytes, &result));
    job.staging.give(result);
    job.staging.give(all);
    Ok(job.done())
}
