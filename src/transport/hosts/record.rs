//! A block as it travels: prefix, head and bits; behind them, for rank 0 alone, the details.

use crate::transport::block::{PREFIX_WORDS, Prefix, each_bit};
use crate::transport::{Contribution, RankBlock};

/// Writes `block`, this rank's for `cycle`, to `own`, and its details behind it; where these begin.
pub(super) fn write(cycle: u64, block: &Contribution<'_>, own: &mut Vec<u8>) -> usize {
    let prefix = Prefix::new(cycle, block).to_words();
    let words = prefix.iter().chain(&block.head).chain(block.bits);
    own.clear();
    own.extend(
        words
            .chain(block.details)
            .flat_map(|word| word.to_le_bytes()),
    );
    8 * (PREFIX_WORDS + block.words())
}

/// A rank's block as it came.
pub(super) struct Record<'a> {
    block: &'a [u8],
    /// None but on rank 0.
    details: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn new(block: &'a [u8], details: &'a [u8]) -> Self {
        Self { block, details }
    }

    /// Checks that it is of the cycle, version and length that `block`, this rank's for `cycle`, has.
    pub(super) fn check(&self, cycle: u64, block: &Contribution<'_>) -> Result<(), String> {
        let is_whole = self.block.len() == 8 * (PREFIX_WORDS + block.words());
        let prefix = match is_whole {
            true => Prefix::from_words(std::array::from_fn(|index| number(self.block, index))),
            false => Prefix::default(),
        };
        prefix.check(Prefix::new(cycle, block))
    }
}

impl RankBlock for Record<'_> {
    fn read_words(&self, to: &mut [u64]) {
        for (index, to) in to.iter_mut().enumerate() {
            *to = number(self.block, PREFIX_WORDS + index);
        }
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| {
            let bytes = self.details.get(8 * index..).and_then(<[u8]>::first_chunk);
            to[index] = bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        });
    }
}

fn number(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * index..][..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn a_block_arrives_as_it_was() {
        let bits = [1 | 1 << 5, 1 << 63];
        let mut details = vec![3; 128];
        (details[0], details[127]) = (11, u64::MAX);
        let block = Contribution {
            version: 4,
            head: smallvec![7, 8],
            bits: &bits,
            details: &details,
        };
        let mut own = vec![1; 3];
        let begin = write(9, &block, &mut own);
        let (block_bytes, detail_bytes) = own.split_at(begin);
        assert_eq!(
            (block_bytes.len(), detail_bytes.len()),
            (8 * (PREFIX_WORDS + 4), 8 * 128)
        );
        let record = Record::new(block_bytes, detail_bytes);
        assert_eq!(record.check(9, &block), Ok(()));
        let refused = record.check(8, &block).unwrap_err();
        assert_eq!(
            refused,
            "a block of cycle 9, version 4, 4 words, where this rank has a block of cycle 8, version 4, 4 words"
        );
        let mut words = [0; 4];
        record.read_words(&mut words);
        assert_eq!(words, [7, 8, bits[0], bits[1]]);
        let read = |record: &Record<'_>| {
            let mut details = vec![0; 128];
            record.read_details(&bits, &mut details);
            [0, 1, 5, 127].map(|index| details[index])
        };
        assert_eq!(read(&record), [11, 0, 3, u64::MAX]);
        assert_eq!(read(&Record::new(block_bytes, &[])), [0; 4]);
        assert!(Record::new(&[], &[]).check(9, &block).is_err());
        assert!(
            Record::new(&block_bytes[8..], detail_bytes)
                .check(9, &block)
                .is_err()
        );
    }
}
