//! Chunk of an allreduce that is cut into a part per rank.

use std::ops::Range;

use ronde_net::part_range;
use smallvec::SmallVec;

use super::super::PART_ALIGN;
use crate::collective::stream::Piece;

/// Position of a chunk in its batch, with this rank's part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) range: Range<usize>,
    /// Length of a part; the last ones may be shorter.
    pub(super) part: usize,
    /// This rank's part, within the chunk.
    pub(super) own: Range<usize>,
}

impl Cut {
    pub(super) fn new(range: Range<usize>, rank: usize, size: usize) -> Self {
        let part = range.len().div_ceil(size).next_multiple_of(PART_ALIGN);
        let own = part_range(rank, part, range.len());
        Self { range, part, own }
    }

    /// This rank's part, within the batch.
    pub(super) fn own_of_batch(&self) -> Range<usize> {
        self.range.start + self.own.start..self.range.start + self.own.end
    }

    /// Ranges before and after this rank's part, within the batch.
    pub(super) fn others(&self) -> [Range<usize>; 2] {
        let own = self.own_of_batch();
        [self.range.start..own.start, own.end..self.range.end]
    }

    /// Addresses of what the ranks `present` contribute to `piece` of this rank's part, in rank
    /// order: rank `rank` has it in the piece, and the others have sent it: `received` holds the
    /// parts of all ranks but this one.
    pub(super) fn contributions(
        &self,
        piece: &Piece,
        received: &[u8],
        rank: usize,
        present: &[usize],
    ) -> SmallVec<[*const u8; 16]> {
        let own = self.own_of_batch();
        let source = |&from: &usize| match from {
            from if from == rank => piece.input,
            from => received[(from - usize::from(from > rank)) * own.len()..]
                [piece.at - own.start..][..piece.bytes]
                .as_ptr(),
        };
        present.iter().map(source).collect()
    }
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
