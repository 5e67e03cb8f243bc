//! A block as it travels: a head of fixed length and the ready words; behind them, for rank 0 alone, the ready times.

use crate::settings::Settings;
use crate::transport::block::{HEAD_WORDS, InvalidBlock, check_head, head_settings, head_status};
use crate::transport::{Block, BlockView, Status};

/// Writes `block`, this rank's for `cycle`, to `own`, and its ready times behind it; where these begin.
pub(super) fn write(cycle: u64, block: &Block, own: &mut Vec<u8>) -> usize {
    let head = block.head(cycle);
    let bytes = 8 * (head.len() + block.ready.len());
    let numbers = head.iter().chain(&block.ready).chain(&block.ready_us);
    own.clear();
    own.extend(numbers.flat_map(|number| number.to_le_bytes()));
    bytes
}

/// A rank's block as it came.
pub(super) struct Record<'a> {
    block: &'a [u8],
    /// None but on rank 0.
    times: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn new(block: &'a [u8], times: &'a [u8]) -> Self {
        Self { block, times }
    }

    /// Checks that it is of `cycle` and has `words` words.
    pub(super) fn check(&self, cycle: u64, words: usize) -> Result<(), InvalidBlock> {
        let is_whole = self.block.len() == 8 * (HEAD_WORDS + words);
        check_head(
            cycle,
            words,
            |index| if is_whole { number(self.block, index) } else { 0 },
        )
    }
}

impl BlockView for Record<'_> {
    fn status(&self) -> Status {
        head_status(|index| number(self.block, index))
    }

    fn settings(&self) -> Settings {
        head_settings(|index| number(self.block, index))
    }

    fn ready(&self, index: usize) -> u64 {
        number(self.block, HEAD_WORDS + index)
    }

    fn ready_us(&self, bit: usize) -> u64 {
        let bytes = self.times.get(8 * bit..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

fn number(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * index..][..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_arrives_as_it_was() {
        let mut block = Block::new(2);
        block.status = Status::UNCACHED.with(Status::JOINED);
        block.settings = Settings {
            version: 7,
            fusion_threshold_bytes: 1 << 40,
            cycle_time_ns: 2_500_000,
            cache: false,
            hierarchical_allreduce: true,
            hierarchical_allgather: false,
        };
        block.set(0, 11);
        block.set(127, u64::MAX);
        let mut own = vec![1; 3];
        let (block_bytes, times) = {
            let begin = write(9, &block, &mut own);
            own.split_at(begin)
        };
        assert_eq!((block_bytes.len(), times.len()), (8 * (HEAD_WORDS + 2), 8 * 128));
        let record = Record::new(block_bytes, times);
        assert_eq!(record.check(9, 2), Ok(()));
        let refused = record.check(8, 2).unwrap_err().to_string();
        assert_eq!(
            refused,
            "a block of cycle 9 with 2 ready words, in cycle 8 with 2"
        );
        assert_eq!(
            (record.status(), record.settings()),
            (block.status, block.settings)
        );
        assert_eq!((record.ready(0), record.ready(1)), (1, 1 << 63));
        assert_eq!((record.ready_us(0), record.ready_us(127)), (11, u64::MAX));
        assert_eq!(Record::new(block_bytes, &[]).ready_us(127), 0);
        assert!(Record::new(&[], &[]).check(9, 2).is_err());
        assert!(Record::new(&block_bytes[8..], times).check(9, 2).is_err());
    }
}
