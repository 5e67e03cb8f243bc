//! Details of one cycle: for some tensors of the response cache, on which ranks they are ready, and
//! since when.
//!
//! Rank 0 asks for them while it records and before it reports a stalled tensor; and if a joined
//! rank has a common tensor ready, which need not hold for all joined ranks. Every rank sends them
//! to rank 0 in the order of the bits: zero for a tensor that is not ready, otherwise its ready
//! time in microseconds on rank 0's clock, plus one.

use super::block::{Block, InvalidBlock, READY_US_MAX};
use crate::transport::each_bit;

/// The ready times, on each rank, of the tensors that rank 0 has asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    /// The tensors.
    slots: Vec<u64>,
    /// For each word of `slots`, the number of tensors before it.
    before: Vec<usize>,
    count: usize,
    /// Words of the ranks so far, rank after rank; on rank 0.
    words: Vec<u64>,
}

impl Details {
    /// Begins with the details of a cycle: those of `slots`.
    pub(crate) fn begin(&mut self, slots: Vec<u64>) {
        self.before.clear();
        self.count = 0;
        for word in &slots {
            self.before.push(self.count);
            self.count += word.count_ones() as usize;
        }
        self.slots = slots;
        self.words.clear();
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes those of this rank, which publishes `block`.
    pub(crate) fn write(&self, block: &Block, frame: &mut Vec<u8>) {
        frame.clear();
        each_bit(&self.slots, |slot| {
            let is_ready = block.ready[slot / 64] >> (slot % 64) & 1 == 1;
            let word = if is_ready {
                block.ready_us[slot] + 1
            } else {
                0
            };
            frame.extend(word.to_le_bytes());
        });
    }

    /// Adds those of the next rank.
    ///
    /// # Errors
    /// Reason why no correct rank can have sent them.
    pub(crate) fn add(&mut self, frame: &[u8]) -> Result<(), String> {
        let (numbers, rest) = frame.as_chunks();
        if !rest.is_empty() || numbers.len() != self.count {
            return Err(format!(
                "{} bytes about its ready tensors, where {} are expected",
                frame.len(),
                8 * self.count
            ));
        }
        let begin = self.words.len();
        let numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        self.words.extend(numbers);
        let mut beyond = None;
        let mut words = self.words[begin..].iter();
        each_bit(&self.slots, |slot| {
            let word = words.next().copied().unwrap_or_default();
            if word > READY_US_MAX + 1 {
                beyond = Some((slot, word - 1));
            }
        });
        match beyond {
            Some((slot, ready_us)) => Err(InvalidBlock::ReadyTime { slot, ready_us }.to_string()),
            None => Ok(()),
        }
    }

    /// Whether they tell on which ranks `slot` is ready; on rank 0.
    pub(crate) fn has(&self, slot: usize) -> bool {
        self.place(slot).is_some() && !self.words.is_empty()
    }

    /// Returns the time (microseconds) since which `slot` is ready on `rank`; `None` if it is not,
    /// or not [known](Self::has).
    pub(crate) fn ready_on(&self, rank: usize, slot: usize) -> Option<u64> {
        let word = self.words.get(rank * self.count + self.place(slot)?)?;
        word.checked_sub(1)
    }

    fn place(&self, slot: usize) -> Option<usize> {
        let word = *self.slots.get(slot / 64)?;
        let below = word & ((1 << (slot % 64)) - 1);
        (word >> (slot % 64) & 1 == 1).then(|| self.before[slot / 64] + below.count_ones() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ready: &[(usize, u64)]) -> Block {
        let mut block = Block::new(2);
        ready.iter().for_each(|&(bit, at_us)| block.set(bit, at_us));
        block
    }

    #[test]
    fn details_arrive_as_they_were() {
        let blocks = [
            block(&[(3, 0), (70, 9)]),
            block(&[(70, READY_US_MAX), (71, 5)]),
        ];
        let mut details = Details::default();
        details.begin(vec![1 << 3, 1 << 6]);
        assert!(!details.has(3));
        let mut frame = Vec::new();
        for block in &blocks {
            details.write(block, &mut frame);
            assert_eq!(frame.len(), 16);
            details.add(&frame).unwrap();
        }
        let of = |slot| [0, 1].map(|rank| details.ready_on(rank, slot));
        assert_eq!(of(3), [Some(0), None]);
        assert_eq!(of(70), [Some(9), Some(READY_US_MAX)]);
        assert_eq!(of(71), [None, None]);
        assert_eq!(
            [3, 70, 71, 500].map(|slot| details.has(slot)),
            [true, true, false, false]
        );
        details.begin(vec![0, 0]);
        assert!(details.is_empty() && !details.has(3));
    }

    #[test]
    fn details_that_no_rank_sends_are_refused() {
        let mut details = Details::default();
        details.begin(vec![1 << 3, 0]);
        for frame in [&[][..], &[1; 7], &[1; 9], &[1; 16]] {
            let error = details.add(frame).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "{} bytes about its ready tensors, where 8 are expected",
                    frame.len()
                )
            );
        }
        assert_eq!(
            details.add(&[255; 8]).unwrap_err(),
            format!(
                "slot 3 of the response cache is ready since microsecond {}",
                u64::MAX - 1
            )
        );
    }
}
