//! Reducescatter in shared memory: every rank copies its contributions in, and the owner of each
//! share combines them.

#![allow(unsafe_code)] // reduces in memory that other processes write

use std::ops::Range;
use std::ptr;

use smallvec::SmallVec;

use super::{Lap, LocalCollective};
use crate::collective::kernels::Reducer;
use crate::collective::stream::Stream;
use crate::collective::{Phases, Reduction};
use crate::error::Error;
use crate::tensor::Span;

/// How the contributions to a batch are combined.
#[derive(Clone, Copy)]
pub(super) struct Combination {
    reduction: Reduction,
    /// Number of ranks by which an average divides.
    ranks: usize,
    /// Result of the ranks before these ones, which is combined with their contributions: as long
    /// as this rank's share, or null.
    before: *const u8,
}

impl Combination {
    /// Of the contributions of `ranks` ranks alone.
    pub(super) fn of(reduction: &Reduction, ranks: usize) -> Self {
        Self {
            reduction: *reduction,
            ranks,
            before: ptr::null(),
        }
    }
}

/// State of one batch, shared by its stages.
struct Job {
    /// Each rank's share of the batch, as this rank contributes to it; this rank's own share
    /// includes the output.
    shares: Vec<Stream>,
    /// Ranks that contribute, in order.
    present: SmallVec<[usize; 16]>,
    reducer: Reducer,
    /// See [`Combination`].
    before: *const u8,
}

impl Job {
    /// Adds the result of the ranks before these ones to the sources, for the bytes from `at` on.
    fn begin_sources(&self, at: usize) -> SmallVec<[*const u8; 16]> {
        let before = (!self.before.is_null()).then(|| self.before.wrapping_add(at));
        before.into_iter().collect()
    }
}

impl LocalCollective {
    /// Reducescatter of which each rank combines its share with `before`, the result of other ranks
    /// that come before all ranks of this collective; null for none. An average divides by `ranks`.
    /// The tables are those of [`Collective::reducescatter`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// `before` is null, or readable for the length of this rank's share, without overlapping the
    /// outputs.
    pub(crate) unsafe fn reducescatter_after(
        &mut self,
        before: *const u8,
        ranks: usize,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
    ) -> Result<Phases, Error> {
        let how = Combination {
            reduction: *reduction,
            ranks,
            before,
        };
        self.batch(|this, lap| this.reducescatter_batch(spans, bytes, &how, &[], lap))
    }

    /// Combines a batch, of which each rank gets its share; returns the number of the chunk that
    /// follows its last chunk. The tables are those of
    /// [`Collective::reducescatter`](crate::collective::Collective::reducescatter).
    pub(super) fn reducescatter_batch(
        &self,
        spans: &[Span],
        bytes: &[usize],
        how: &Combination,
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
            reducer: Reducer::new(self.level, &how.reduction, how.ranks),
            before: how.before,
        };
        if self.size == 1 {
            for piece in job.shares[0].pieces(0..longest) {
                let mut sources = job.begin_sources(piece.at);
                sources.push(piece.input);
                // SAFETY: disjoint ranges of the piece's length (`Span::new`,
                // `reducescatter_after`).
                unsafe {
                    job.reducer
                        .combine(&sources, piece.output, ptr::null_mut(), piece.bytes)
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

    /// Returns the shares of the ranks; those of absent ranks are empty.
    fn shares(&self, spans: &[Span], bytes: &[usize], absent: &[usize]) -> Vec<Stream> {
        let mut shares: Vec<Stream> = (0..self.size).map(|_| Stream::default()).collect();
        for (span, bytes) in spans.iter().zip(bytes.chunks(self.size)) {
            debug_assert_eq!(span.bytes(), bytes.iter().sum::<usize>());
            let mut offset = 0;
            for (owner, (share, bytes)) in shares.iter_mut().zip(bytes).enumerate() {
                if owner == self.rank && span.keeps_nothing() {
                    share.skip(*bytes);
                } else if !absent.contains(&owner) {
                    // The output holds this rank's share only; it is used for the owner's stream
                    // only.
                    share.push(span.input().wrapping_add(offset), span.output(), *bytes);
                }
                offset += bytes;
            }
        }
        shares
    }

    /// Returns the range of a share that chunk `index` contains.
    fn window(&self, index: usize) -> Range<usize> {
        let start = index * self.layout.part_bytes();
        start..start + self.layout.part_bytes()
    }

    /// Copies this rank's contributions to the other ranks' shares in (stage 1 of chunk `index`).
    fn contribute(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        self.wait_slot(chunk, lap)?;
        let window = self.window(index);
        for owner in self.peers() {
            let place = self.layout.part(chunk, self.rank, owner);
            for piece in job.shares[owner].pieces(window.clone()) {
                // SAFETY: the piece is readable (`Span::new`). Its place belongs to this rank for
                // this chunk: all reads of the previous chunk there have ended (`wait_slot`), and
                // this chunk is not published yet.
                unsafe {
                    self.copier
                        .copy(piece.input, place.add(piece.at - window.start), piece.bytes)
                };
            }
        }
        self.has_copied_in(chunk, lap);
        Ok(())
    }

    /// Reduces this rank's share from its private input and the peers' contributions (stage 2 of
    /// chunk `index`).
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
                // SAFETY: inside the part, which is as long as the window.
                unsafe { place.add(piece.at - window.start).cast_const() }
            };
            let mut sources = job.begin_sources(piece.at);
            sources.extend(job.present.iter().map(source));
            // SAFETY: the peers have published their contributions and do not write them before
            // `copied_out` below; input and output belong to the piece and are disjoint
            // (`Span::new`), and so is what comes before (`reducescatter_after`).
            unsafe {
                job.reducer
                    .combine(&sources, piece.output, ptr::null_mut(), piece.bytes)
            };
        }
        counters
            .copied_out(self.rank)
            .publish(chunk.wrapping_add(1));
        lap.file(|phases| &mut phases.reduce_ns);
        Ok(())
    }
}
