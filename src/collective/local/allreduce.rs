//! Allreduce in shared memory: three pipelined stages, and shorter paths for tiny batches and for
//! one rank.

#![allow(unsafe_code)] // reduces in memory that other processes write

use std::ptr;

use smallvec::SmallVec;

use super::layout::Cut;
use super::{Lap, LocalCollective};
use crate::collective::Reduction;
use crate::collective::kernels::Reducer;
use crate::collective::stream::{Piece, Stream};
use crate::error::Error;

/// State of one batch, shared by its stages.
struct Job<'a> {
    batch: &'a Stream,
    cut: Cut,
    reducer: Reducer,
    /// Ranks that contribute, in order.
    present: SmallVec<[usize; 16]>,
    /// Whether this rank is absent.
    is_absent: bool,
}

impl LocalCollective {
    /// Combines a batch; returns the number of the chunk that follows its last chunk.
    pub(super) fn allreduce_batch(
        &self,
        batch: &Stream,
        reduction: &Reduction,
        absent: &[usize],
        lap: &mut Lap,
    ) -> Result<u32, Error> {
        let job = Job {
            batch,
            cut: self.layout.cut(batch.bytes()),
            reducer: Reducer::new(self.level, reduction, self.size),
            present: self.present(absent),
            is_absent: absent.contains(&self.rank),
        };
        let chunks = job.cut.chunks();
        if self.size == 1 {
            self.alone(&job);
            lap.file(|phases| &mut phases.reduce_ns);
            return Ok(self.next);
        }
        if chunks == 0 || job.present.is_empty() {
            return Ok(self.next);
        }
        if job.cut.is_tiny() {
            self.tiny(&job, lap)?;
            return Ok(self.next.wrapping_add(1));
        }
        for iteration in 0..chunks + 2 {
            if iteration < chunks {
                self.copy_in(&job, iteration, lap)?;
            }
            if (1..=chunks).contains(&iteration) {
                self.reduce(&job, iteration - 1, lap)?;
            }
            if iteration >= 2 {
                self.copy_out(&job, iteration - 2, lap)?;
            }
        }
        Ok(self.next.wrapping_add(chunks as u32))
    }

    /// Copies chunk `index` in (stage 1).
    fn copy_in(&self, job: &Job<'_>, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        self.wait_slot(chunk, lap)?;
        let (whole, own) = (job.cut.chunk(index), job.cut.part(index, self.rank));
        let area = self.layout.slot(chunk, self.rank);
        for range in [whole.start..own.start, own.end..whole.end] {
            for piece in job.batch.pieces(range) {
                // SAFETY: the piece is readable (`Span::new`). Its place is in this rank's area:
                // all reads of the previous chunk there have ended (`wait_slot`), and this chunk is
                // not published yet.
                unsafe {
                    self.copier
                        .copy(piece.input, area.add(piece.at - whole.start), piece.bytes)
                };
            }
        }
        self.has_copied_in(chunk, lap);
        Ok(())
    }

    /// Reduces this rank's part of chunk `index` (stage 2).
    fn reduce(&self, job: &Job<'_>, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let counters = &self.layout.counters;
        for peer in self.peers() {
            self.wait(counters.copied_in(peer), chunk.wrapping_add(1), peer, lap)?;
        }
        let (start, own) = (job.cut.chunk(index).start, job.cut.part(index, self.rank));
        let next = self.layout.slot(chunk, self.next_rank(self.rank));
        if job.is_absent {
            // No private output: the result is written directly to the area that the others read.
            let piece = Piece {
                input: ptr::null(),
                // SAFETY: inside the next rank's area.
                output: unsafe { next.add(own.start - start) },
                at: own.start,
                bytes: own.len(),
            };
            // SAFETY: as below, with the output in the place of `shared`.
            unsafe { self.combine(job, chunk, start, piece, ptr::null_mut()) };
        }
        for piece in job.batch.pieces(own) {
            // SAFETY: inside the next rank's area.
            let shared = unsafe { next.add(piece.at - start) };
            // SAFETY: all peers have copied in. Only this rank reads this part of the next rank's
            // area until the result is published, and only this rank writes it until the slot is
            // free again.
            unsafe { self.combine(job, chunk, start, piece, shared) };
        }
        counters.reduced(self.rank).publish(chunk.wrapping_add(1));
        lap.file(|phases| &mut phases.reduce_ns);
        Ok(())
    }

    /// Copies the other ranks' parts of chunk `index` out (stage 3).
    fn copy_out(&self, job: &Job<'_>, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let counters = &self.layout.counters;
        let start = job.cut.chunk(index).start;
        for peer in self.peers() {
            self.wait(counters.reduced(peer), chunk.wrapping_add(1), peer, lap)?;
            let area = self.layout.slot(chunk, self.next_rank(peer));
            let pieces = job.batch.pieces(job.cut.part(index, peer));
            for piece in pieces.filter(|piece| !piece.output.is_null()) {
                // SAFETY: the owner has published this part and does not write it before
                // `copied_out` below; the output is writable and not aliased (`Span::new`).
                unsafe {
                    self.copier
                        .copy(area.add(piece.at - start), piece.output, piece.bytes)
                };
            }
        }
        counters
            .copied_out(self.rank)
            .publish(chunk.wrapping_add(1));
        lap.copied_out(index + 1 == job.cut.chunks());
        Ok(())
    }

    /// Reduces a batch of one small chunk: every rank copies all of it in and reduces all of it.
    fn tiny(&self, job: &Job<'_>, lap: &mut Lap) -> Result<(), Error> {
        if job.is_absent {
            return Ok(()); // no rank reads an absent rank's area
        }
        let chunk = self.next;
        let counters = &self.layout.counters;
        self.wait_slot(chunk, lap)?;
        let area = self.layout.slot(chunk, self.rank);
        for piece in job.batch.pieces(job.cut.chunk(0)) {
            // SAFETY: as in `copy_in`.
            unsafe {
                self.copier
                    .copy(piece.input, area.add(piece.at), piece.bytes)
            };
        }
        self.has_copied_in(chunk, lap);
        for &peer in job.present.iter().filter(|&&rank| rank != self.rank) {
            self.wait(counters.copied_in(peer), chunk.wrapping_add(1), peer, lap)?;
        }
        for piece in job.batch.pieces(job.cut.chunk(0)) {
            // SAFETY: writes to private memory only; the areas are only read until `finish`
            // publishes `copied_out`.
            unsafe { self.combine(job, chunk, 0, piece, ptr::null_mut()) };
        }
        lap.file(|phases| &mut phases.reduce_ns);
        Ok(())
    }

    /// Reduces a batch of a set of one rank: applies scale factors, or copies.
    fn alone(&self, job: &Job<'_>) {
        let pieces = job.batch.pieces(0..job.batch.bytes());
        for piece in pieces.filter(|piece| !piece.output.is_null()) {
            // SAFETY: equal or disjoint ranges of the piece's length (`Span::new`).
            unsafe {
                job.reducer
                    .combine(&[piece.input], piece.output, ptr::null_mut(), piece.bytes)
            };
        }
    }

    /// Combines a piece of chunk `chunk`, which starts at byte `start` of the batch, from the
    /// private input (unless this rank is absent) and the peers' areas into the piece's output and
    /// `shared`.
    ///
    /// # Safety
    /// All peers must have copied the piece in. `shared` must be null, or the piece's place in an
    /// area of the slot that only this rank accesses.
    unsafe fn combine(
        &self,
        job: &Job<'_>,
        chunk: u32,
        start: usize,
        piece: Piece,
        shared: *mut u8,
    ) {
        let sources: SmallVec<[*const u8; 16]> = job
            .present
            .iter()
            .map(|&rank| {
                if rank == self.rank {
                    piece.input
                } else {
                    // SAFETY: inside that rank's area of the slot.
                    unsafe {
                        self.layout
                            .slot(chunk, rank)
                            .add(piece.at - start)
                            .cast_const()
                    }
                }
            })
            .collect();
        // A rank that keeps nothing, for lack of memory, combines for the others alone.
        let (output, shared) = match (piece.output.is_null(), shared.is_null()) {
            (false, _) => (piece.output, shared),
            (true, false) => (shared, ptr::null_mut()),
            (true, true) => return,
        };
        // SAFETY: the piece (`Span::new`) and the areas (the caller) are readable and writable; an
        // output is one of the sources or overlaps nothing.
        unsafe { job.reducer.combine(&sources, output, shared, piece.bytes) };
    }
}
