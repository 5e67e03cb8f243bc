//! Broadcast, allgather and alltoall in shared memory: senders copy their streams in, receivers
//! copy them out.
//!
//! Long streams and outputs bypass the caches. For outputs, that saves reading every line before it
//! is written. For the ring, it costs a detour through memory where the cores share a cache. Where
//! they do not, a sender must invalidate the readers' copies of every line before it can write it,
//! one round trip after another, and memory is faster than that. Memory is also faster than readers
//! that take the lines (`Copier::take`), which only a sole reader may do. Between two cores of an
//! EPYC 9004 whose hypervisor migrates them, 64 MB, ms:
//!
//! | to the ring; to the outputs | common cache: broadcast | alltoall | none: broadcast | alltoall |
//! | --- | --- | --- | --- | --- |
//! | through the caches; through | 4.0 | 7.7 | 26.3 | 19.0 |
//! | through; through, and taken | 4.1 | 9.5 | 6.2 | 9.5 |
//! | through; past | 3.8 | 6.3 | 26.4 | 17.5 |
//! | through; past, and taken | 4.1 | 7.9 | 6.1 | 9.3 |
//! | past; past | 4.8 | 7.3 | 3.3 | 5.8 |

#![allow(unsafe_code)] // copies from and to shared memory

use super::routes::Routes;
use super::{Lap, LocalCollective};
use crate::collective::kernels::Copier;
use crate::collective::stream::Stream;
use crate::error::Error;
use crate::tensor::Span;

/// Length from which a rank's stream or outputs bypass the caches: little of it would still be
/// cached when it is read. (Between the two cores above, 8 MB that both ranks have in cache take
/// 0.3 to 0.7 ms through the caches and 0.6 to 0.9 ms past them; 2 MB take 0.06 and 0.15 to 0.2
/// ms.)
pub(super) const LONG_BYTES: usize = 8 << 20;

/// Bytes that this rank receives of one peer's stream.
struct Receipt {
    from: usize,
    /// Start of these bytes in the peer's stream.
    start: usize,
    /// Outputs that they are copied to.
    stream: Stream,
}

/// State of one batch, shared by its rounds.
struct Job {
    sent: Stream,
    /// Bytes that this rank sends to itself, which bypass the ring.
    kept: Stream,
    receipts: Vec<Receipt>,
    /// Whether no other rank reads the bytes that this rank receives.
    is_sole_reader: bool,
    /// Number of chunks of the longest stream.
    rounds: usize,
    /// Copier to the ring.
    copier_in: Copier,
    /// Copier to the outputs.
    copier_out: Copier,
}

impl LocalCollective {
    /// Moves a batch along `routes`; returns the number of the chunk that follows its last chunk.
    pub(super) fn transfer(
        &self,
        spans: &[Span],
        routes: &Routes<'_>,
        lap: &mut Lap,
    ) -> Result<u32, Error> {
        let job = self.transfer_job(spans, routes);
        for iteration in 0..=job.rounds {
            if iteration < job.rounds {
                self.send(&job, iteration, lap)?;
            }
            if iteration >= 1 {
                self.receive(&job, iteration - 1, lap)?;
            }
        }
        self.keep(&job, job.rounds * self.layout.chunk_bytes(), usize::MAX);
        lap.copied_out(true);
        Ok(self.next.wrapping_add(job.rounds as u32))
    }

    fn transfer_job(&self, spans: &[Span], routes: &Routes<'_>) -> Job {
        let (mut sent, mut kept) = (Stream::default(), Stream::default());
        if self.size > 1 {
            for leg in routes.sent(self.rank) {
                sent.push(
                    spans[leg.tensor].input().wrapping_add(leg.offset),
                    std::ptr::null_mut(),
                    leg.bytes,
                );
            }
        }
        for (source, target) in routes.kept(self.rank) {
            let span = &spans[source.tensor];
            let input = span.input().wrapping_add(source.offset);
            let output = span.output().wrapping_add(target.offset);
            if input == output.cast_const() || span.keeps_nothing() {
                kept.skip(source.bytes);
            } else {
                kept.push(input, output, source.bytes);
            }
        }
        let receipt = |from| {
            let mut stream = Stream::default();
            for leg in routes.received(from, self.rank) {
                let span = &spans[leg.tensor];
                if span.keeps_nothing() {
                    stream.skip(leg.bytes);
                } else {
                    let output = span.output().wrapping_add(leg.offset);
                    stream.push(std::ptr::null(), output, leg.bytes);
                }
            }
            Receipt {
                from,
                start: routes.start(from, self.rank),
                stream,
            }
        };
        let receipts: Vec<Receipt> = self.peers().map(receipt).collect();
        let longest = match self.size {
            1 => 0,
            size => (0..size)
                .map(|from| routes.stream_bytes(from))
                .max()
                .unwrap_or(0),
        };
        let received = receipts.iter().map(|receipt| receipt.stream.bytes());
        let output_bytes = kept.bytes() + received.sum::<usize>();
        Job {
            copier_in: self.copier_of(sent.bytes()),
            copier_out: self.copier_of(output_bytes),
            sent,
            kept,
            receipts,
            is_sole_reader: self.size == 2 || matches!(routes, Routes::Alltoall { .. }),
            rounds: longest.div_ceil(self.layout.chunk_bytes()),
        }
    }

    /// Returns the faster copier for a stream of `bytes` bytes.
    fn copier_of(&self, bytes: usize) -> Copier {
        if bytes >= LONG_BYTES {
            Copier::streaming()
        } else {
            self.copier
        }
    }

    /// Copies chunk `index` of this rank's stream in, if the stream is that long, and then the
    /// bytes for itself at that position: in a broadcast or allgather the same bytes, which are now
    /// in the cache.
    fn send(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let start = index * self.layout.chunk_bytes();
        let end = start + self.layout.chunk_bytes();
        if start < job.sent.bytes() {
            self.wait_slot(chunk, lap)?;
            let area = self.layout.slot(chunk, self.rank);
            for piece in job.sent.pieces(start..end) {
                // SAFETY: the piece is readable (`Span::new`). Its place is in this rank's area:
                // all reads of the previous chunk there have ended (`wait_slot`), and this chunk is
                // not published yet.
                unsafe {
                    job.copier_in
                        .copy(piece.input, area.add(piece.at - start), piece.bytes)
                };
            }
            self.has_copied_in(chunk, lap);
        }
        self.keep(job, start, end);
        lap.copied_out(false);
        Ok(())
    }

    /// Copies the bytes that this rank sends to itself, from byte `start` to byte `end`.
    fn keep(&self, job: &Job, start: usize, end: usize) {
        for piece in job.kept.pieces(start..end) {
            // SAFETY: disjoint, because pieces whose input and output are the same memory were
            // skipped (`Span::new`).
            unsafe { job.copier_out.copy(piece.input, piece.output, piece.bytes) };
        }
    }

    /// Copies out this rank's bytes of chunk `index` of its peers' streams.
    fn receive(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let counters = &self.layout.counters;
        let start = index * self.layout.chunk_bytes();
        let end = start + self.layout.chunk_bytes();
        for receipt in &job.receipts {
            // Range of the chunk within the receipt.
            let window = start.saturating_sub(receipt.start)..end.saturating_sub(receipt.start);
            let mut pieces = receipt.stream.pieces(window).peekable();
            if pieces.peek().is_none() {
                continue;
            }
            self.wait(
                counters.copied_in(receipt.from),
                chunk.wrapping_add(1),
                receipt.from,
                lap,
            )?;
            let area = self.layout.slot(chunk, receipt.from);
            for piece in pieces {
                // SAFETY: inside the sender's area, because the piece is inside its chunk.
                let source = unsafe { area.add(receipt.start + piece.at - start) };
                // SAFETY: the sender has published the chunk and does not write it before
                // `copied_out` below; the output is writable and not aliased (`Span::new`). Bytes
                // are taken only if no other rank reads them.
                unsafe {
                    if job.is_sole_reader {
                        job.copier_out.take(source, piece.output, piece.bytes);
                    } else {
                        job.copier_out.copy(source, piece.output, piece.bytes);
                    }
                }
            }
        }
        counters
            .copied_out(self.rank)
            .publish(chunk.wrapping_add(1));
        lap.copied_out(index + 1 == job.rounds);
        Ok(())
    }
}
