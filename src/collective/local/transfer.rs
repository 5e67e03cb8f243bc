//! Transfer: streams copied in by their senders and out by whom they concern. All of broadcast, allgather and alltoall.

use super::routes::Routes;
use super::stream::Stream;
use super::{Lap, LocalCollective};
use crate::error::Error;
use crate::tensor::Span;

/// What this rank receives of one peer's stream.
struct Receipt {
    from: usize,
    /// Where it begins in the peer's stream.
    start: usize,
    /// Where it goes to.
    stream: Stream,
}

/// What the rounds of one batch share.
struct Job {
    sent: Stream,
    /// From this rank to itself, past the ring.
    kept: Stream,
    receipts: Vec<Receipt>,
    /// Whether nobody else reads what this rank receives.
    is_sole_reader: bool,
    /// Chunks of the longest stream.
    rounds: usize,
}

impl LocalCollective {
    /// Moves a batch along `routes`; returns the number of the chunk after its last.
    pub(super) fn transfer(&self, spans: &[Span], routes: &Routes<'_>, lap: &mut Lap) -> Result<u32, Error> {
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
        lap.file(|phases| &mut phases.copy_out_ns);
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
        let receipts = self.peers().map(|from| {
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
        });
        let longest = match self.size {
            1 => 0,
            size => (0..size).map(|from| routes.stream_bytes(from)).max().unwrap_or(0),
        };
        Job {
            sent,
            kept,
            receipts: receipts.collect(),
            is_sole_reader: self.size == 2 || matches!(routes, Routes::Alltoall { .. }),
            rounds: longest.div_ceil(self.layout.chunk_bytes()),
        }
    }

    /// Copies chunk `index` of this rank's stream in, if it is that long, and then what this rank keeps at that place:
    /// in a broadcast or allgather the same bytes, now in cache.
    fn send(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let start = index * self.layout.chunk_bytes();
        let end = start + self.layout.chunk_bytes();
        if start < job.sent.bytes() {
            self.wait_slot(chunk, lap)?;
            let area = self.layout.slot(chunk, self.rank);
            for piece in job.sent.pieces(start..end) {
                // SAFETY: the piece is readable (`Span::new`); its place is in this rank's area, which nobody reads any
                // more (`wait_slot`) nor yet (not published).
                unsafe {
                    self.copier
                        .copy(piece.input, area.add(piece.at - start), piece.bytes)
                };
            }
            self.layout
                .counters
                .copied_in(self.rank)
                .publish(chunk.wrapping_add(1));
            lap.file(|phases| &mut phases.copy_in_ns);
        }
        self.keep(job, start, end);
        lap.file(|phases| &mut phases.copy_out_ns);
        Ok(())
    }

    /// Copies what this rank keeps, from byte `start` to byte `end` of it.
    fn keep(&self, job: &Job, start: usize, end: usize) {
        for piece in job.kept.pieces(start..end) {
            // SAFETY: disjoint, as those at the same place were skipped (`Span::new`).
            unsafe { self.copier.copy(piece.input, piece.output, piece.bytes) };
        }
    }

    /// Copies out what concerns this rank in chunk `index` of its peers' streams.
    fn receive(&self, job: &Job, index: usize, lap: &mut Lap) -> Result<(), Error> {
        let chunk = self.next.wrapping_add(index as u32);
        let counters = &self.layout.counters;
        let start = index * self.layout.chunk_bytes();
        let end = start + self.layout.chunk_bytes();
        for receipt in &job.receipts {
            // The chunk as the receipt counts.
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
                // SAFETY: in the sender's area, as the piece is in its chunk.
                let source = unsafe { area.add(receipt.start + piece.at - start) };
                // SAFETY: the sender has published the chunk and leaves it alone until `copied_out` below; the output is
                // writable and nobody else's (`Span::new`). Taken is only what nobody else reads.
                unsafe {
                    if job.is_sole_reader {
                        self.copier.take(source, piece.output, piece.bytes);
                    } else {
                        self.copier.copy(source, piece.output, piece.bytes);
                    }
                }
            }
        }
        counters.copied_out(self.rank).publish(chunk.wrapping_add(1));
        lap.file(|phases| &mut phases.copy_out_ns);
        Ok(())
    }
}
