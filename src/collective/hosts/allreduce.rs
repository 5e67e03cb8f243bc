//! Allreduce over MPI: ranks send every part of a chunk to its owner, the owner combines it and
//! sends the result to all; several chunks are in flight.
//!
//! A rank's own part does not pass through staging: the kernel reads it from the tensors and writes
//! its result to them and to the send buffer in one pass. Arrived data is processed at once, the
//! chunk closest to completion first, because that frees buffers for the next one. MPI is polled
//! after every step, because a peer may wait for a message from it.

#![allow(unsafe_code)] // reduces in memory of the caller

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use super::staging::{copy_in, copy_out};
use super::{Batch, Job, PART_ALIGN, PART_BYTES_MIN, Pipeline, TINY_BYTES};
use crate::collective::kernels::Reducer;
use crate::collective::stream::{Piece, Stream};
use ronde_net::part_range;

use crate::hosts::{CommError, Pending, turn};

/// Chunk whose parts are being sent to their owners.
struct Scattered {
    cut: Cut,
    pending: Pending<(Vec<u8>, Vec<u8>)>,
}

/// Chunk whose results are being sent to all ranks.
struct Gathered {
    cut: Cut,
    pending: Pending<Vec<u8>>,
}

/// Position of a chunk in its batch, with this rank's part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    range: Range<usize>,
    /// Length of a part; the last ones may be shorter.
    part: usize,
    /// This rank's part, within the chunk.
    own: Range<usize>,
}

impl Cut {
    fn new(range: Range<usize>, rank: usize, size: usize) -> Self {
        let part = range.len().div_ceil(size).next_multiple_of(PART_ALIGN);
        let own = part_range(rank, part, range.len());
        Self { range, part, own }
    }

    /// This rank's part, within the batch.
    fn own_of_batch(&self) -> Range<usize> {
        self.range.start + self.own.start..self.range.start + self.own.end
    }

    /// Ranges before and after this rank's part, within the batch.
    fn others(&self) -> [Range<usize>; 2] {
        let own = self.own_of_batch();
        [self.range.start..own.start, own.end..self.range.end]
    }
}

/// State of one batch, shared by its chunks.
struct Work {
    job: Job,
    batch: Stream,
    reducer: Reducer,
    /// Ranks that contribute, in order.
    present: Vec<usize>,
}

/// Combines `batch` over the ranks `present`.
pub(super) async fn allreduce(
    job: Job,
    batch: Stream,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Batch, CommError> {
    let (bytes, rank, size) = (batch.bytes(), job.comm.rank(), job.comm.size());
    if bytes == 0 {
        return Ok(job.done());
    }
    if bytes * size <= TINY_BYTES {
        return tiny(job, batch, reducer, present).await;
    }
    let Pipeline { flights, .. } = *job.pipeline;
    let chunk = job.pipeline.chunk_bytes(bytes).max(size * PART_BYTES_MIN);
    let mut ranges = (0..bytes.div_ceil(chunk)).map(move |index| part_range(index, chunk, bytes));
    let mut work = Work {
        job,
        batch,
        reducer,
        present,
    };
    let (mut scattered, mut gathered) = (VecDeque::<Scattered>::new(), VecDeque::<Gathered>::new());
    // Messages between two ranks are identified by their direction and by the order in which both
    // ranks begin them: chunk order.
    loop {
        if let Some(first) = gathered.front_mut()
            && let Some(chunk) = first.pending.test()?
        {
            let Gathered { cut, .. } = gathered.pop_front().expect("just seen");
            work.copy_out(&cut, chunk);
        } else if let Some(first) = scattered.front_mut()
            && let Some(memory) = first.pending.test()?
        {
            let Scattered { cut, .. } = scattered.pop_front().expect("just seen");
            gathered.push_back(work.combine(cut, memory)?);
            continue;
        } else if scattered.len() + gathered.len() < flights
            && let Some(range) = ranges.next()
        {
            scattered.push_back(work.scatter(Cut::new(range, rank, size))?);
            continue;
        } else if scattered.is_empty() && gathered.is_empty() {
            return Ok(work.job.done());
        }
        turn().await;
    }
}

impl Work {
    /// Copies the other ranks' parts of a chunk in and starts sending them to their owners.
    fn scatter(&mut self, cut: Cut) -> Result<Scattered, CommError> {
        let Self { job, batch, .. } = self;
        let (bytes, others) = (cut.range.len(), job.comm.size() - 1);
        let (mut chunk, received) = (
            job.staging.take(bytes),
            job.staging.take(cut.own.len() * others),
        );
        job.lap.file(
            |phases| &mut phases.copy_in_ns,
            || {
                for range in cut.others() {
                    let place = range.start - cut.range.start;
                    copy_in(batch, range, &mut chunk[place..]);
                }
            },
        );
        let tag = tag(job.serial, 0);
        let pending = job.comm.scatter(chunk, received, cut.part, bytes, tag)?;
        Ok(Scattered { cut, pending })
    }

    /// Combines this rank's part of a chunk and starts sending the result to all. `received` holds
    /// the other ranks' contributions.
    fn combine(
        &mut self,
        cut: Cut,
        (mut chunk, received): (Vec<u8>, Vec<u8>),
    ) -> Result<Gathered, CommError> {
        let Self {
            job,
            batch,
            reducer,
            present,
        } = self;
        let (rank, whole) = (job.comm.rank(), cut.own_of_batch());
        job.lap.file(
            |phases| &mut phases.reduce_ns,
            || {
                let combine = |piece: Piece, result: *mut u8| {
                    let offset = piece.at - whole.start;
                    let source = |&from: &usize| match from {
                        from if from == rank => piece.input,
                        from => received[(from - usize::from(from > rank)) * whole.len()..]
                            [offset..]
                            .as_ptr(),
                    };
                    let sources: SmallVec<[*const u8; 16]> = present.iter().map(source).collect();
                    // SAFETY: the piece is readable and writable (`Span::new`), and the received
                    // and sent buffers are as long; one output may be this rank's own input,
                    // otherwise they overlap nothing. There is a source, because some rank
                    // submitted the tensor.
                    unsafe { reducer.combine(&sources, result, piece.output, piece.bytes) };
                };
                let result = &mut chunk[cut.own.clone()];
                if !present.contains(&rank) && !whole.is_empty() {
                    // This rank contributes nothing: the result is written to the send buffer only.
                    combine(
                        Piece {
                            input: std::ptr::null(),
                            output: std::ptr::null_mut(),
                            at: whole.start,
                            bytes: whole.len(),
                        },
                        result.as_mut_ptr(),
                    );
                }
                for piece in batch.pieces(whole.clone()) {
                    combine(piece, result[piece.at - whole.start..].as_mut_ptr());
                }
            },
        );
        job.staging.give(received);
        let (bytes, tag) = (cut.range.len(), tag(job.serial, 1));
        let pending = job.comm.gather_parts_of(chunk, cut.part, bytes, tag)?;
        Ok(Gathered { cut, pending })
    }

    /// Copies the results of the other ranks' parts out.
    fn copy_out(&mut self, cut: &Cut, chunk: Vec<u8>) {
        let Self { job, batch, .. } = self;
        job.lap.file(
            |phases| &mut phases.copy_out_ns,
            || {
                for range in cut.others() {
                    let place = range.start - cut.range.start;
                    copy_out(batch, range, &chunk[place..]);
                }
            },
        );
        job.staging.give(chunk);
    }
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
) -> Result<Batch, CommError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_cut_in_parts_of_whole_lines_and_what_is_not_ones_own_lies_around_it() {
        // 1000 bytes among three ranks: parts of 384, the last one of 232.
        let cut = |rank| Cut::new(5_000..6_000, rank, 3);
        assert_eq!((cut(0).part, cut(0).own), (384, 0..384));
        assert_eq!(cut(1).own_of_batch(), 5_384..5_768);
        assert_eq!(cut(1).others(), [5_000..5_384, 5_768..6_000]);
        assert_eq!(cut(2).own, 768..1_000);
        assert_eq!(cut(2).others(), [5_000..5_768, 6_000..6_000]);
    }

    #[test]
    fn ranks_beyond_the_last_line_own_nothing() {
        let cut = Cut::new(0..100, 3, 4);
        assert_eq!((cut.part, cut.own.clone()), (64, 100..100));
        assert_eq!(cut.others(), [0..100, 100..100]);
    }
}
