//! Allreduce: every part of a chunk to its owner, the kernels, every result to all; chunk by chunk.

use std::collections::VecDeque;
use std::ops::Range;

use super::staging::{copy_in, copy_out};
use super::{Batch, CHUNK_BYTES, Job, LAG, PART_BYTES_MIN, TINY_BYTES, part_bytes};
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::mpi::{MpiError, Pending, part_range};

/// A chunk on its way to the owners of its parts.
struct Scattered {
    range: Range<usize>,
    pending: Pending<(Vec<u8>, Vec<u8>)>,
}

/// A chunk on its way back.
struct Gathered {
    range: Range<usize>,
    pending: Pending<Vec<u8>>,
}

/// Combines `batch` over the ranks `present`.
pub(super) async fn allreduce(
    mut job: Job,
    batch: Stream,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Batch, MpiError> {
    let (bytes, size) = (batch.bytes(), job.comm.size());
    if bytes == 0 {
        return Ok(job.done());
    }
    if bytes * size <= TINY_BYTES {
        return tiny(job, batch, reducer, present).await;
    }
    let chunk = CHUNK_BYTES.max(size * PART_BYTES_MIN);
    let chunks = bytes.div_ceil(chunk);
    let (mut scattered, mut gathered) = (VecDeque::new(), VecDeque::new());
    // Messages between two ranks are told apart by the way they go and the order in which both begin them, which is the
    // turns'.
    for turn in 0..chunks + 2 * LAG {
        if turn < chunks {
            let begin = turn * chunk;
            scattered.push_back(scatter(&mut job, &batch, begin..(begin + chunk).min(bytes))?);
        }
        if (LAG..chunks + LAG).contains(&turn) {
            let chunk: Scattered = scattered.pop_front().expect("as many as turns");
            gathered.push_back(combine(&mut job, chunk, &reducer, &present).await?);
        }
        if turn >= 2 * LAG {
            let Gathered { range, pending } = gathered.pop_front().expect("as many as turns");
            let chunk = pending.await?;
            job.lap.file(
                |phases| &mut phases.copy_out_ns,
                || copy_out(&batch, range, &chunk),
            );
            job.staging.give(chunk);
        }
    }
    Ok(job.done())
}

/// Copies a chunk in and begins to bring its parts to their owners.
fn scatter(job: &mut Job, batch: &Stream, range: Range<usize>) -> Result<Scattered, MpiError> {
    let (rank, size, bytes) = (job.comm.rank(), job.comm.size(), range.len());
    let part = part_bytes(bytes, size);
    let own = part_range(rank, part, bytes).len();
    let (mut chunk, received) = (job.staging.take(bytes), job.staging.take(own * (size - 1)));
    let copied = range.clone();
    job.lap.file(
        |phases| &mut phases.copy_in_ns,
        || copy_in(batch, copied, &mut chunk),
    );
    let pending = job
        .comm
        .scatter(chunk, received, part, bytes, tag(job.serial, 0))?;
    Ok(Scattered { range, pending })
}

/// Combines this rank's part of a chunk and begins to bring it to all.
async fn combine(
    job: &mut Job,
    chunk: Scattered,
    reducer: &Reducer,
    present: &[usize],
) -> Result<Gathered, MpiError> {
    let Scattered { range, pending } = chunk;
    let (mut chunk, received) = pending.await?;
    let (rank, bytes) = (job.comm.rank(), range.len());
    let part = part_bytes(bytes, job.comm.size());
    let own = part_range(rank, part, bytes);
    job.lap.file(
        |phases| &mut phases.reduce_ns,
        || {
            let result = &mut chunk[own];
            let (length, mine) = (result.len(), result.as_ptr());
            let source = |&from: &usize| match from {
                from if from == rank => mine,
                from => received[(from - usize::from(from > rank)) * length..][..length].as_ptr(),
            };
            let sources: Vec<*const u8> = present.iter().map(source).collect();
            reduce(reducer, &sources, result);
        },
    );
    job.staging.give(received);
    let pending = job.comm.gather_parts_of(chunk, part, bytes, tag(job.serial, 1))?;
    Ok(Gathered { range, pending })
}

/// Which of the two ways of which batch: of two batches, the later may be the first to turn back on one of the ranks.
fn tag(serial: u16, way: u16) -> u16 {
    serial << 1 | way // the highest bits are cut off: far fewer batches are under way at once
}

/// Combines `sources`, each as long as `result`, which may be one of them.
pub(super) fn reduce(reducer: &Reducer, sources: &[*const u8], result: &mut [u8]) {
    if !result.is_empty() {
        // SAFETY: sources are as long as the result, a whole number of elements as chunks, parts and batches are; one may be
        // the result, the others do not overlap it. Who submits a tensor is present, so there is a source.
        unsafe { reducer.combine(sources, result.as_mut_ptr(), std::ptr::null_mut(), result.len()) };
    }
}

/// Everything to everyone, and everyone combines all of it: one meeting.
async fn tiny(mut job: Job, batch: Stream, reducer: Reducer, present: Vec<usize>) -> Result<Batch, MpiError> {
    let (bytes, size) = (batch.bytes(), job.comm.size());
    let (mut own, all) = (job.staging.take(bytes), job.staging.take(bytes * size));
    job.lap.file(
        |phases| &mut phases.copy_in_ns,
        || copy_in(&batch, 0..bytes, &mut own),
    );
    let (mut result, all) = job.comm.allgather(own, all, bytes)?.await?;
    let sources: Vec<*const u8> = present
        .iter()
        .map(|rank| all[rank * bytes..][..bytes].as_ptr())
        .collect();
    job.lap.file(
        |phases| &mut phases.reduce_ns,
        || reduce(&reducer, &sources, &mut result[..bytes]),
    );
    job.lap.file(
        |phases| &mut phases.copy_out_ns,
        || copy_out(&batch, 0..bytes, &result),
    );
    job.staging.give(result);
    job.staging.give(all);
    Ok(job.done())
}
