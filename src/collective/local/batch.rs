//! A batch: spans laid end to end, addressed by byte.

use std::ops::Range;

use crate::tensor::Span;

/// A piece of a batch that lies within one span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Where its contribution is read.
    pub(super) input: *const u8,
    /// Where its result is written.
    pub(super) output: *mut u8,
    /// Its place in the batch, bytes.
    pub(super) at: usize,
    /// Its length.
    pub(super) bytes: usize,
}

/// Spans laid end to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    spans: &'a [Span],
    starts: &'a [usize],
}

impl<'a> Batch<'a> {
    /// Lays out `spans`; `starts` is memory to keep their places in, reused from batch to batch. Returns the batch
    /// and its length in bytes.
    pub(super) fn new(spans: &'a [Span], starts: &'a mut Vec<usize>) -> (Self, usize) {
        starts.clear();
        let mut total_bytes = 0;
        starts.extend(spans.iter().map(|span| {
            let start = total_bytes;
            total_bytes += span.bytes();
            start
        }));
        (Self { spans, starts }, total_bytes)
    }

    /// The pieces of `range`, in order; none is empty.
    pub(super) fn pieces(self, range: Range<usize>) -> impl Iterator<Item = Piece> + 'a {
        // The last span that starts at or before the range: of several at one place, the only one not empty.
        let first = self
            .starts
            .partition_point(|start| *start <= range.start)
            .saturating_sub(1);
        let mut at = range.start;
        self.spans[first.min(self.spans.len())..]
            .iter()
            .zip(&self.starts[first.min(self.spans.len())..])
            .map_while(move |(span, start)| {
                if at >= range.end {
                    return None;
                }
                let offset = at - start;
                let bytes = (span.bytes() - offset).min(range.end - at);
                let piece = Piece {
                    // `wrapping_add` as an empty span's address may be anything; `offset` is inside of the span.
                    input: span.input().wrapping_add(offset),
                    output: span.output().wrapping_add(offset),
                    at,
                    bytes,
                };
                at += bytes;
                Some(piece)
            })
            .filter(|piece| piece.bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(lengths: &[usize], range: Range<usize>) -> Vec<(usize, usize, usize)> {
        let mut memory = vec![0_u8; lengths.iter().sum()];
        let base = memory.as_mut_ptr();
        let mut at = 0;
        let spans: Vec<Span> = lengths
            .iter()
            .map(|bytes| {
                // SAFETY: never read or written here.
                let span = unsafe { Span::new(base.wrapping_add(at), base.wrapping_add(at), *bytes) };
                at += bytes;
                span
            })
            .collect();
        let mut starts = Vec::new();
        let (batch, total_bytes) = Batch::new(&spans, &mut starts);
        assert_eq!(total_bytes, memory.len());
        batch
            .pieces(range)
            .map(|piece| (piece.input as usize - base as usize, piece.at, piece.bytes))
            .collect()
    }

    #[test]
    fn pieces_cover_the_range_and_skip_empty_spans() {
        assert_eq!(
            places(&[0, 3, 0, 0, 5, 0, 2, 0], 0..10),
            [(0, 0, 3), (3, 3, 5), (8, 8, 2)]
        );
        assert_eq!(places(&[0, 3, 0, 0, 5, 0, 2, 0], 3..9), [(3, 3, 5), (8, 8, 1)]);
        assert_eq!(places(&[10], 4..6), [(4, 4, 2)]);
        assert_eq!(places(&[10], 4..4), []);
        assert_eq!(places(&[], 0..0), []);
        assert_eq!(places(&[0, 0], 0..0), []);
    }
}
