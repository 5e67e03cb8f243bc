//! Allreduce between hosts. What all ranks know decides how a batch is reduced.
//!
//! - A tiny batch: every rank sends all of it to all, and combines all of it.
//! - `pair`: two ranks over TCP exchange their inputs, and both combine them.
//! - Otherwise ranks send every part of a chunk to its owner, the owner combines it and sends the
//!   result to all; several chunks are in flight. `direct`: from the tensors and to them, over TCP;
//!   `staged`: through buffers. Both send the same messages.

#![allow(unsafe_code)] // reduces in memory of the caller

use std::rc::Rc;

use super::lent::Lent;
use super::staging::{copy_in, copy_out};
use super::{Job, PART_BYTES_MIN, TINY_BYTES};
use crate::collective::Phases;
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::hosts::CommError;

mod cut;
mod direct;
mod pair;
mod staged;

/// Combines `batch` over the ranks `present`.
pub(super) async fn allreduce(
    job: Job,
    batch: Stream,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Phases, CommError> {
    let (bytes, size) = (batch.bytes(), job.comm.size());
    if bytes == 0 {
        return Ok(job.done());
    }
    if bytes * size <= TINY_BYTES {
        return tiny(job, batch, reducer, present).await;
    }
    let batch = Rc::new(batch);
    let lent = Lent::of(&job.comm, &batch);
    if job.comm.borrows() && size == 2 && present.len() == 2 {
        return pair::allreduce(job, batch, lent, reducer).await;
    }
    match lent {
        Some(lent) => direct::allreduce(job, batch, lent, reducer, present).await,
        None => staged::allreduce(job, batch, reducer, present).await,
    }
}

/// Length of the chunks that are cut into a part per rank.
fn chunk_bytes(job: &Job, bytes: usize) -> usize {
    let parts = job.comm.size() * PART_BYTES_MIN;
    job.pipeline.chunk_bytes(bytes).max(parts)
}

/// Tag of a message, from the batch and the direction: of two batches, the later one may be the
/// first to send results on one of the ranks.
fn tag(serial: u16, way: u16) -> u16 {
    serial << 1 | way // the highest bit is lost: far fewer batches are in flight at once
}

/// Combines `sources`, each as long as `result`, which may be one of them.
pub(super) fn reduce(reducer: &Reducer, sources: &[*const u8], result: &mut [u8]) {
    if !result.is_empty() {
        // SAFETY: the sources are as long as the result, a whole number of elements, as chunks,
        // parts and batches are; one may be the result, the others do not overlap it. There is a
        // source, because a rank that submits a tensor is present.
        unsafe {
            reducer.combine(
                sources,
                result.as_mut_ptr(),
                std::ptr::null_mut(),
                result.len(),
            )
        };
    }
}

/// Reduces a tiny batch: every rank sends all of it to all and combines all of it, with one
/// synchronization.
async fn tiny(
    mut job: Job,
    batch: Stream,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Phases, CommError> {
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
