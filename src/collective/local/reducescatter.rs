//! Reducescatter: contributions copied in for the ranks whose shares they belong to, which combine them.

#![allow(unsafe_code)] // reduces in memory that other processes write

use std::ops::Range;
use std::ptr;

use smallvec::SmallVec;

use super::{Lap, LocalCollective};
use crate::collective::Reduction;
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::error::Error;
use crate::tensor::Span;

/// What the stages of one batch share.
struct Job {
    /// Each rank's share of the batch, as this rank contributes to it; this rank's own with where its result goes.
    shares: Vec<Stream>,
    /// Ranks that contribute, in order.
    present: SmallVec<[usize; 16]>,
    reducer: Reducer,
}

impl LocalCollective {
    /// Combines a batch, each rank its share; returns the number of the chunk after its last. The tables are those of
    /// [`Collective::reducescatter`](crate::collective::Collective::reducescatter).
    pub(super) fn reducescatter_batch(
        &self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
        lap: &mut Lap,
    ) -> Result<u32, Error> {
        let longest = (0..self.size)
            .filter(|rank| !absent.contains(rank))
            .map(|rank| bytes.iter().skip(rank).step_by(self.size).sum())
            .max()
            .unwrap_or(0_usize);
        let rounds = match self.size {
            1 => 0,
            _ => longest.div_ceil(self.layout.part_bytes()),
        };
        let end = self.next.wrapping_add(rounds as u32);
        if absent.contains(&self.rank) {
            return Ok(end);
        }
        let job = Job {
            shares: self.shares(spans, bytes, absent),
            present: self.present(absent),
            reducer: Reducer::new(self.level, reduction, self.size),
        };
        if self.size == 1 {
            for piece in job.shares[0].pieces(0..longest) {
                // SAFETY: disjoint ranges of the piece's length (`Span::new`).
                unsafe {
                    job.reducer
                        .combine(&[piece.input], piece.output, ptr::null_mut(), piece.bytes)
                };
            }
            lap.file(|phases| &mut phases.reduce_ns);
            return Ok(end);
        }
        for iteration in 0..=rounds {
            if iteration < rounds {
                self.contribute(&job, iteration, lap)?;
            }
            if iteration >= 1 {
                self.reduce_share(&job, iteration - 1, lap)?;
            }
        }
        Ok(end)
    }

    /// The shares of the ranks; of those that are absent, nothing.
    fn shares(&self, spans: &[Span], bytes: &[usize], absent: &[usize]) -> Vec<Stream> {
        let mut shares: Vec<Stream> = (0..self.size).map(|_| Stream::default()).collect();
        for (span, bytes) in spans.iter().zip(bytes.chunks(self.size)) {
            debug_assert_eq!(span.bytes(), bytes.iter().sum::<usize>());
            let mut offset = 0;
            for (owner, (share, bytes)) in shares.iter_mut().zip(bytes).enumerate() {
                if owner == self.rank && span.keeps_nothing() {
                    share.skip(*bytes);
                } else if !absent.contains(&owner) {
                    // The output is a share's, hence only the owner's is meant.
                    share.push(span.input().wrapping_add(offset), span.output(), *bytes);
                }
                offset += bytes;
            }
        }
        shares
    }

    /// The bytes of a share that are on their way in chunk `index`.
    fn window(&self, index: usize) -> Range<usize> {
        let start = index * self.layout.part_bytes();
        start..start + self.layout.part_bytes()
    }

    /// Stage 1 of chunk `index`: contributions to the other ranks' shares.
    fn contribute(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        self.wait_slot(chunk, lap)?;
        let window = self.window(index);
        for owner in self.peers() {
            let place = self.layout.part(chunk, self.rank, owner);
            for piece in job.shares[owner].pieces(window.clone()) {
                // SAFETY: the piece is readable (`Span::new`); its place is this rank's for this chunk, and nobody reads
                // there any more (`wait_slot`) nor yet (not published).
                unsafe {
                    self.copier
                        .copy(piece.input, place.add(piece.at - window.start), piece.bytes)
                };
            }
        }
        self.has_copied_in(chunk, lap);
        Ok(())
    }

    /// Stage 2 of chunk `index`: the own share, from the private input and what the peers have copied in.
    fn reduce_share(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let counters = &self.layout.counters;
        let window = self.window(index);
        let own = &job.shares[self.rank];
        if window.start < own.bytes() {
            for &peer in job.present.iter().filter(|&&rank| rank != self.rank) {
                self.wait(counters.copied_in(peer), chunk.wrapping_add(1), peer, lap)?;
            }
        }
        for piece in own.pieces(window.clone()) {
            let source = |&rank: &usize| {
                if rank == self.rank {
                    return piece.input;
                }
                let place = self.layout.part(chunk, rank, self.rank);
                // SAFETY: inside of the part, which is as long as the window.
                unsafe { place.add(piece.at - window.start).cast_const() }
            };
            let sources: SmallVec<[*const u8; 16]> = job.present.iter().map(source).collect();
            // SAFETY: the peers have published their contributions and leave them alone until `copied_out` below; input
            // and output are the piece's, and disjoint (`Span::new`).
            unsafe {
                job.reducer
                    .combine(&sources, piece.output, ptr::null_mut(), piece.bytes)
            };
        }
        counters.copied_out(self.rank).publish(chunk.wrapping_add(1));
        lap.file(|phases| &mut phases.reduce_ns);
        Ok(())
    }
}
