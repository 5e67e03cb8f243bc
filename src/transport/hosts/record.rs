//! A block as a rank brings it to the first rank of its host: prefix, head, bits, attached words
//! and details.

use crate::transport::block::{PREFIX_WORDS, Prefix, each_bit};
use crate::transport::{Contribution, RankBlock};

/// Writes `block`, this rank's for `cycle`, to `own`.
pub(super) fn write(cycle: u64, block: &Contribution<'_>, own: &mut Vec<u8>) {
    let prefix = Prefix::new(cycle, block).to_words();
    let words = prefix.iter().chain(&block.head).chain(block.bits);
    own.clear();
    let words = words.chain(block.attached).chain(block.details);
    own.extend(words.flat_map(|word| word.to_le_bytes()));
}

/// A rank's block as it came.
pub(super) struct Record<'a> {
    /// Head and bits.
    words: &'a [[u8; 8]],
    attached: &'a [[u8; 8]],
    details: &'a [[u8; 8]],
}

impl<'a> Record<'a> {
    /// Reads the block in `brought`, after a comparison with this rank's own, which has the prefix
    /// `own`.
    ///
    /// # Errors
    /// A block of another cycle, version or length.
    pub(super) fn read(
        brought: &'a [u8],
        own: Prefix,
        block: &Contribution<'_>,
    ) -> Result<Self, String> {
        let (numbers, rest) = brought.as_chunks();
        let prefix = std::array::from_fn(|index| numbers.get(index).map_or(0, number));
        Prefix::from_words(prefix).check(own)?;
        if !rest.is_empty() || numbers.len() != PREFIX_WORDS + block.words() {
            return Err(format!("a block of {} bytes", brought.len()));
        }
        let (words, rest) = numbers[PREFIX_WORDS..].split_at(block.fact_words());
        let (attached, details) = rest.split_at(block.attached.len());
        Ok(Self {
            words,
            attached,
            details,
        })
    }
}

impl RankBlock for Record<'_> {
    fn read_words(&self, to: &mut [u64]) {
        read(self.words, to);
    }

    fn read_attached(&self, to: &mut [u64]) {
        read(self.attached, to);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| to[index] = number(&self.details[index]));
    }
}

fn read(words: &[[u8; 8]], to: &mut [u64]) {
    for (to, bytes) in to.iter_mut().zip(words) {
        *to = number(bytes);
    }
}

fn number(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
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
        let timed = Contribution {
            version: 4,
            head: smallvec![7, 8],
            bits: &bits,
            attached: &[21, 22],
            details: &details,
        };
        let plain = Contribution {
            details: &[],
            ..timed.clone()
        };
        let mut own = vec![1; 3];
        for (block, words) in [(&timed, 134), (&plain, 6)] {
            write(9, block, &mut own);
            assert_eq!(own.len(), 8 * (PREFIX_WORDS + words));
            let record = Record::read(&own, Prefix::new(9, block), block).unwrap();
            let mut read = [0; 4];
            record.read_words(&mut read);
            assert_eq!(read, [7, 8, bits[0], bits[1]]);
            let mut attached = [0; 2];
            record.read_attached(&mut attached);
            assert_eq!(attached, [21, 22]);
        }
        let refused = Record::read(&own, Prefix::new(8, &plain), &plain).err();
        assert_eq!(
            refused.unwrap(),
            "a block of cycle 9, version 4, 6 words, where this rank has a block of cycle 8, version 4, 6 words"
        );
        write(9, &timed, &mut own);
        let read = |own: &[u8]| Record::read(own, Prefix::new(9, &timed), &timed).err();
        let record = Record::read(&own, Prefix::new(9, &timed), &timed).unwrap();
        let mut times = vec![0; 128];
        record.read_details(&bits, &mut times);
        assert_eq!(
            [0, 1, 5, 127].map(|index| times[index]),
            [11, 0, 3, u64::MAX]
        );
        for bytes in [0, 8, 24, own.len() - 8, own.len() - 1] {
            assert!(read(&own[..bytes]).is_some(), "{bytes} bytes");
        }
        assert!(Record::read(&own, Prefix::new(9, &plain), &plain).is_err());
    }
}
