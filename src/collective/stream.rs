//! Stream: pieces of memory in sequence, addressed by byte offset.

#![allow(unsafe_code)] // addresses that are sent to another thread

use std::ops::Range;

use crate::tensor::Span;

/// Contiguous part of a stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) struct Piece {
    /// Address that its bytes are read from.
    pub(in crate::collective) input: *const u8,
    /// Address that its result is written to.
    pub(in crate::collective) output: *mut u8,
    /// Offset in the stream, bytes.
    pub(in crate::collective) at: usize,
    /// Length in bytes.
    pub(in crate::collective) bytes: usize,
}

// SAFETY: the addresses are used during one operation only, on the thread that runs it (`Span`).
unsafe impl Send for Piece {}

/// Sequence of pieces. The outputs of a stream that is only sent are unused, and so are the inputs
/// of one that is only received; a null address is null throughout its piece.
#[derive(Debug, Default)]
pub(in crate::collective) struct Stream {
    /// Pieces in order, none of them empty; there may be gaps between them.
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Stream {
    /// Removes all pieces; the memory is kept.
    pub(in crate::collective) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    /// Appends `bytes` bytes with input `input` and output `output`.
    pub(in crate::collective) fn push(&mut self, input: *const u8, output: *mut u8, bytes: usize) {
        if bytes > 0 {
            self.pieces.push(Piece {
                input,
                output,
                at: self.bytes,
                bytes,
            });
        }
        self.bytes += bytes;
    }

    /// Appends `bytes` bytes that this rank neither reads nor writes.
    pub(in crate::collective) fn skip(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Appends a whole span, whose output is as long as its input.
    pub(in crate::collective) fn push_span(&mut self, span: &Span) {
        if span.is_absent() {
            self.skip(span.bytes());
        } else {
            self.push(span.input(), span.output(), span.bytes());
        }
    }

    /// Length in bytes, including gaps.
    pub(in crate::collective) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of pieces.
    pub(in crate::collective) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Whether all of its bytes have an input and an output.
    pub(in crate::collective) fn is_whole(&self) -> bool {
        let mut pieces = self.pieces.iter();
        let bytes: usize = self.pieces.iter().map(|piece| piece.bytes).sum();
        bytes == self.bytes && pieces.all(|piece| !piece.input.is_null() && !piece.output.is_null())
    }

    /// Returns the pieces of `range`, in order; none is empty.
    pub(in crate::collective) fn pieces(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = Piece> + use<'_> {
        let first = self
            .pieces
            .partition_point(|piece| piece.at + piece.bytes <= range.start);
        self.pieces[first..]
            .iter()
            .take_while(move |piece| piece.at.max(range.start) < range.end)
            .map(move |piece| {
                let offset = range.start.saturating_sub(piece.at);
                let at = piece.at + offset;
                Piece {
                    // `wrapping_add`, because one of the two addresses may be unused; otherwise
                    // `offset` is inside the piece.
                    input: if piece.input.is_null() {
                        piece.input
                    } else {
                        piece.input.wrapping_add(offset)
                    },
                    output: if piece.output.is_null() {
                        piece.output
                    } else {
                        piece.output.wrapping_add(offset)
                    },
                    at,
                    bytes: (piece.at + piece.bytes).min(range.end) - at,
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns (offset in memory, offset in the stream, length) of the pieces of `range`; a
    /// negative length is a gap.
    fn places(lengths: &[isize], range: Range<usize>) -> Vec<(usize, usize, usize)> {
        let base = std::ptr::without_provenance_mut::<u8>(4096);
        let mut stream = Stream::default();
        for length in lengths {
            let place = base.wrapping_add(stream.bytes());
            match usize::try_from(*length) {
                Ok(bytes) => stream.push(place, place, bytes),
                Err(_) => stream.skip(length.unsigned_abs()),
            }
        }
        let place = |piece: Piece| {
            assert_eq!(piece.input, piece.output.cast_const());
            (piece.input.addr() - base.addr(), piece.at, piece.bytes)
        };
        stream.pieces(range).map(place).collect()
    }

    #[test]
    fn pieces_cover_the_range_and_none_is_empty() {
        let lengths = [0, 3, 0, 0, 5, 0, 2, 0];
        assert_eq!(places(&lengths, 0..10), [(0, 0, 3), (3, 3, 5), (8, 8, 2)]);
        assert_eq!(places(&lengths, 3..9), [(3, 3, 5), (8, 8, 1)]);
        assert_eq!(places(&[10], 4..6), [(4, 4, 2)]);
        assert_eq!(places(&[10], 4..4), []);
        assert_eq!(places(&[10], 10..10), []);
        assert_eq!(places(&[], 0..0), []);
        assert_eq!(places(&[0, 0], 0..0), []);
    }

    #[test]
    fn gaps_have_a_length_and_no_pieces() {
        assert_eq!(places(&[2, -3, 4], 1..7), [(1, 1, 1), (5, 5, 2)]);
        assert_eq!(places(&[2, -3, 4], 2..5), []);
        assert_eq!(places(&[-3], 0..3), []);
    }
}
