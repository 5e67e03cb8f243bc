//! Allreduce of parts through staging buffers.
//!
//! A rank's own part does not pass through staging: the kernel reads it from the tensors and writes
//! its result to them and to the send buffer in one pass. Arrived data is processed at once, the
//! chunk closest to completion first, because that frees buffers for the next one. The carrier is
//! polled after every step, because a peer may wait for a message from it.

#![allow(unsafe_code)] // reduces in memory of the caller

use std::collections::VecDeque;
use std::rc::Rc;

use ronde_net::part_range;

use super::super::staging::{copy_in, copy_out};
use super::super::{Job, Pipeline};
use super::cut::Cut;
use super::{chunk_bytes, tag};
use crate::collective::Phases;
use crate::collective::kernels::Reducer;
use crate::collective::stream::{Piece, Stream};
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

/// State of one batch, shared by its chunks.
struct Work {
    job: Job,
    batch: Rc<Stream>,
    reducer: Reducer,
    /// Ranks that contribute, in order.
    present: Vec<usize>,
}

/// Combines `batch` over the ranks `present`.
pub(super) async fn allreduce(
    job: Job,
    batch: Rc<Stream>,
    reducer: Reducer,
    present: Vec<usize>,
) -> Result<Phases, CommError> {
    let (bytes, rank, size) = (batch.bytes(), job.comm.rank(), job.comm.size());
    let Pipeline { flights, .. } = *job.pipeline;
    let chunk = chunk_bytes(&job, bytes);
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
                    let sources = cut.contributions(&piece, &received, rank, present);
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
