//! Broadcast: the root's chunks, copied in by it and out by everyone else.

use super::batch::Batch;
use super::{Lap, LocalCollective};
use crate::error::Error;

impl LocalCollective {
    /// Copies the root's inputs to everyone's outputs; returns the number of the chunk after the batch's last.
    pub(super) fn broadcast_batch(
        &self,
        batch: Batch<'_>,
        total_bytes: usize,
        root: usize,
        lap: &mut Lap,
    ) -> Result<u32, Error> {
        assert!(root < self.size, "root {root} of {} ranks", self.size);
        if self.rank == root {
            for piece in batch.pieces(0..total_bytes) {
                if piece.input != piece.output.cast_const() {
                    // SAFETY: disjoint, or the same and skipped (`Span::new`).
                    unsafe { self.copier.copy(piece.input, piece.output, piece.bytes) };
                }
            }
            lap.file(|phases| &mut phases.copy_out_ns);
            if self.size == 1 {
                return Ok(self.next);
            }
        }
        let cut = self.layout.cut(total_bytes);
        let counters = &self.layout.counters;
        for index in 0..cut.chunks() {
            let chunk = self.next.wrapping_add(index as u32);
            let range = cut.chunk(index);
            let start = range.start;
            let area = self.layout.slot(chunk, root);
            if self.rank == root {
                self.wait_slot(chunk, lap)?;
                for piece in batch.pieces(range) {
                    // SAFETY: the piece is readable (`Span::new`); its place is in the root's area, which nobody
                    // reads any more (`wait_slot`) nor yet (not published).
                    unsafe {
                        self.copier
                            .copy(piece.input, area.add(piece.at - start), piece.bytes)
                    };
                }
                counters.copied_in(root).publish(chunk.wrapping_add(1));
                lap.file(|phases| &mut phases.copy_in_ns);
            } else {
                self.wait(counters.copied_in(root), chunk.wrapping_add(1), root, lap)?;
                for piece in batch.pieces(range) {
                    // SAFETY: the root has published the chunk and leaves it alone until `copied_out` below; the
                    // output is writable and nobody else's (`Span::new`).
                    unsafe {
                        self.copier
                            .copy(area.add(piece.at - start), piece.output, piece.bytes)
                    };
                }
                counters.copied_out(self.rank).publish(chunk.wrapping_add(1));
                lap.file(|phases| &mut phases.copy_out_ns);
            }
        }
        Ok(self.next.wrapping_add(cut.chunks() as u32))
    }
}
