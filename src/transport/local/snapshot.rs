//! The snapshot: every rank freezes a block for a cycle, and all fold the same blocks.
//!
//! Why not look at live counters? Two ranks that look a microsecond apart would see different sets of ready
//! tensors and run different collectives. So a rank writes its block for cycle *k* into slot *k* mod 2 of its own
//! part, publishes sequence *k*, waits until every rank has published *k*, and only then reads. Nobody can change
//! slot *k* mod 2 before everyone has read it: a rank writes it again for cycle *k* + 2, which it enters after all
//! have published *k* + 1, and they do that after they have read *k*.
//!
//! ```text
//! rank 0   write slot 1 ─ seq 1 ─ wait ─ read slots 1 ─ write slot 0 ─ seq 2 ─ wait ─ …
//! rank 1        write slot 1 ─ seq 1 ─ read slots 1 ─ write slot 0 ──── seq 2 ─ …
//! ```

use std::ops::Deref;
use std::time::Duration;

use crate::error::Error;
use crate::settings::Settings;
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{Counter, View, Watch};
use crate::transport::block::{HEAD_WORDS, head_settings, head_status};
use crate::transport::{Agreement, Block, BlockView, Status};

/// Words of a slot for blocks of up to `cache_words` words: the head, the ready words, a time for each bit.
pub(super) const fn slot_words(cache_words: usize) -> usize {
    HEAD_WORDS + cache_words + 64 * cache_words
}

/// One rank's hold on the snapshot slots of a process set.
pub(super) struct Snapshot<W = View<AtomicU64>, C = View<Counter>> {
    rank: usize,
    /// Words from one slot to the next.
    stride: usize,
    /// Most words a block can have.
    cache_words: usize,
    slots: W,
    sequence: C,
    /// The last cycle exchanged.
    cycle: u64,
    spin: Duration,
}

impl<W, C> Snapshot<W, C>
where
    W: Deref<Target = [AtomicU64]>,
    C: Deref<Target = [Counter]>,
{
    /// `slots` holds two slots of `stride` words for each of the ranks, `sequence` a counter for each.
    pub(super) fn new(
        rank: usize,
        cache_words: usize,
        stride: usize,
        slots: W,
        sequence: C,
        spin: Duration,
    ) -> Self {
        assert!(stride >= slot_words(cache_words), "slots too short");
        assert!(slots.len() >= 2 * stride * sequence.len(), "too few slots");
        Self {
            rank,
            stride,
            cache_words,
            slots,
            sequence,
            cycle: 0,
            spin,
        }
    }

    /// Publishes `block` for `cycle` and folds everyone's.
    ///
    /// # Errors
    /// What `watch` says of a rank that does not publish.
    pub(super) fn exchange(
        &mut self,
        cycle: u64,
        block: &Block,
        agreed: &mut Agreement,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        assert_eq!(cycle, self.cycle + 1, "cycles follow one another");
        let words = block.ready.len();
        assert!(words <= self.cache_words, "block longer than its slot");
        self.cycle = cycle;

        freeze(self.slot(self.rank, cycle), cycle, block);
        self.sequence[self.rank].publish(cycle as u32);
        for (rank, sequence) in self.sequence.iter().enumerate() {
            sequence.wait(cycle as u32, self.spin, rank, watch)?;
        }

        agreed.begin(words);
        for (rank, sequence) in self.sequence.iter().enumerate() {
            let slot = self.slot(rank, cycle);
            assert_eq!(
                slot[0].load(Ordering::Relaxed),
                cycle,
                "set rank {rank}: slot of another cycle"
            );
            assert_eq!(
                slot[1].load(Ordering::Relaxed),
                words as u64,
                "set rank {rank}: block of another length"
            );
            agreed.add(&SlotView { slot, words });
            let ahead = sequence.value().wrapping_sub(cycle as u32);
            assert!(
                ahead <= 1,
                "set rank {rank} is {ahead} cycles ahead of a rank it waits for"
            );
        }
        Ok(())
    }

    fn slot(&self, rank: usize, cycle: u64) -> &[AtomicU64] {
        let index = 2 * rank + (cycle % 2) as usize;
        &self.slots[index * self.stride..][..self.stride]
    }
}

/// Writes `block` into this rank's own slot. Times are written for set bits alone: nobody reads others.
fn freeze(slot: &[AtomicU64], cycle: u64, block: &Block) {
    let words = block.ready.len();
    let head = block.head(cycle);
    for (to, value) in slot.iter().zip(head.iter().chain(&block.ready)) {
        to.store(*value, Ordering::Relaxed);
    }
    let times = &slot[HEAD_WORDS + words..];
    for (index, &ready) in block.ready.iter().enumerate() {
        let mut left = ready;
        while left != 0 {
            let bit = index * 64 + left.trailing_zeros() as usize;
            times[bit].store(block.ready_us[bit], Ordering::Relaxed);
            left &= left - 1;
        }
    }
}

/// A block as it lies in a slot.
struct SlotView<'a> {
    slot: &'a [AtomicU64],
    words: usize,
}

impl SlotView<'_> {
    fn word(&self, index: usize) -> u64 {
        self.slot[index].load(Ordering::Relaxed)
    }
}

impl BlockView for SlotView<'_> {
    fn status(&self) -> Status {
        head_status(|index| self.word(index))
    }

    fn settings(&self) -> Settings {
        head_settings(|index| self.word(index))
    }

    fn ready(&self, index: usize) -> u64 {
        debug_assert!(index < self.words);
        self.word(HEAD_WORDS + index)
    }

    fn ready_us(&self, bit: usize) -> u64 {
        self.word(HEAD_WORDS + self.words + bit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Nobody;

    impl Watch for Nobody {
        fn check(&self, on: usize, _waited: Duration) -> Result<(), Error> {
            panic!("waited for {on}")
        }
    }

    /// The bound on the response cache costs address space; the words in use cost time.
    #[test]
    fn a_cycle_writes_as_far_into_its_slot_as_the_words_in_use() {
        const BOUND: usize = 256;
        const UNTOUCHED: u64 = 0xfeed;
        let stride = slot_words(BOUND);
        let slots: Vec<AtomicU64> = (0..2 * stride).map(|_| AtomicU64::new(UNTOUCHED)).collect();
        let mut snapshot = Snapshot::new(
            0,
            BOUND,
            stride,
            &slots[..],
            vec![Counter::default()],
            Duration::ZERO,
        );
        let mut agreed = Agreement::new(true);
        for (cycle, words) in [(1, 1), (2, 3), (3, 2)] {
            let mut block = Block::new(words);
            (0..64 * words).for_each(|bit| block.set(bit, cycle * 1000 + bit as u64));
            snapshot.exchange(cycle, &block, &mut agreed, &Nobody).unwrap();
            assert_eq!(agreed.common, vec![u64::MAX; words]);
            assert_eq!(
                agreed.ready_on(0, 64 * words - 1),
                Some(cycle * 1000 + 64 * words as u64 - 1)
            );
        }
        for (slot, words) in [(0, 3), (1, 2)] {
            let slot = &slots[slot * stride..][..stride];
            let written = slot
                .iter()
                .take_while(|word| word.load(Ordering::Relaxed) != UNTOUCHED)
                .count();
            assert_eq!(written, HEAD_WORDS + 65 * words);
            assert!(
                slot[written..]
                    .iter()
                    .all(|word| word.load(Ordering::Relaxed) == UNTOUCHED)
            );
        }
        assert_eq!(stride, 16_647, "133 KB for 16384 tensors");
    }
}
