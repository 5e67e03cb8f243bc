//! Snapshot: every rank publishes an immutable block for a cycle, and all ranks fold the same
//! blocks.
//!
//! Live counters would not do: two ranks that read them a microsecond apart would see different
//! sets of ready tensors and run different collectives. So a rank writes its block for cycle *k*
//! into slot *k* mod 2 of its own part, publishes sequence *k*, waits until every rank has
//! published *k*, and only then reads. No rank can overwrite slot *k* mod 2 before all ranks have
//! read it: a rank writes it again for cycle *k* + 2, which it enters after all ranks have
//! published *k* + 1, and they do that after they have read *k*.
//!
//! ```text
//! rank 0   write slot 1 ─ seq 1 ─ wait ─ read slots 1 ─ write slot 0 ─ seq 2 ─ wait ─ …
//! rank 1        write slot 1 ─ seq 1 ─ read slots 1 ─ write slot 0 ──── seq 2 ─ …
//! ```

use std::ops::Deref;
use std::time::Duration;

use crate::error::{Error, PeerError};
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{Counter, View, Watch};
use crate::transport::block::{PREFIX_WORDS, Prefix, each_bit};
use crate::transport::{
    ATTACHED_WORDS_MAX, BLOCK_HEAD_WORDS_MAX, Combine, Contribution, RankBlock,
};

/// Words of a slot for blocks of up to `bits_words` words of bits: prefix, head, bits, attached
/// words, and a detail for each bit.
pub(super) const fn slot_words(bits_words: usize) -> usize {
    PREFIX_WORDS + BLOCK_HEAD_WORDS_MAX + bits_words + ATTACHED_WORDS_MAX + 64 * bits_words
}

/// Access of one rank to the snapshot slots of a process set.
pub(super) struct Snapshot<W = View<AtomicU64>, C = View<Counter>> {
    rank: usize,
    /// Number of words from one slot to the next.
    stride: usize,
    /// Most words of bits in a block.
    bits_words: usize,
    slots: W,
    sequence: C,
    /// Last cycle exchanged.
    cycle: u64,
    spin: Duration,
}

impl<W, C> Snapshot<W, C>
where
    W: Deref<Target = [AtomicU64]>,
    C: Deref<Target = [Counter]>,
{
    /// `slots` has two slots of `stride` words for each of the ranks, `sequence` a counter for
    /// each.
    pub(super) fn new(
        rank: usize,
        bits_words: usize,
        stride: usize,
        slots: W,
        sequence: C,
        spin: Duration,
    ) -> Self {
        assert!(stride >= slot_words(bits_words), "slots too short");
        assert!(slots.len() >= 2 * stride * sequence.len(), "too few slots");
        Self {
            rank,
            stride,
            bits_words,
            slots,
            sequence,
            cycle: 0,
            spin,
        }
    }

    /// Publishes `block` for `cycle` and folds the blocks of all ranks. `members` has the job rank
    /// of each rank, for errors.
    ///
    /// # Errors
    /// The error of `watch` about a rank that does not publish; a block that cannot belong to this
    /// cycle.
    pub(super) fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        members: &[usize],
        combine: &mut dyn Combine,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        assert_eq!(cycle, self.cycle + 1, "cycles follow one another");
        assert!(
            block.head.len() <= BLOCK_HEAD_WORDS_MAX,
            "head longer than its slot"
        );
        assert!(
            block.bits.len() <= self.bits_words,
            "block longer than its slot"
        );
        assert!(
            block.attached.len() <= ATTACHED_WORDS_MAX,
            "more attached words than a slot has"
        );
        let own = Prefix::new(cycle, block);
        self.cycle = cycle;

        freeze(self.slot(self.rank, cycle), own, block);
        self.sequence[self.rank].publish(cycle as u32);
        for (rank, sequence) in self.sequence.iter().enumerate() {
            sequence.wait(cycle as u32, self.spin, rank, watch)?;
        }

        combine.start(block.fact_words());
        for (rank, sequence) in self.sequence.iter().enumerate() {
            let invalid = |problem: String| {
                Error::Peer(PeerError::InvalidData {
                    rank: members[rank],
                    problem,
                })
            };
            let combined = if rank == self.rank {
                combine.add(rank, block) // another process may have overwritten its slot
            } else {
                let peer = SlotView::new(self.slot(rank, cycle), block);
                let checked = peer.prefix().check(own);
                checked.and_then(|()| combine.add(rank, &peer))
            };
            combined.map_err(invalid)?;
            let ahead = sequence.value().wrapping_sub(cycle as u32);
            if ahead > 1 {
                return Err(invalid(format!(
                    "it is {ahead} cycles ahead of a rank it waits for"
                )));
            }
        }
        Ok(())
    }

    fn slot(&self, rank: usize, cycle: u64) -> &[AtomicU64] {
        let index = 2 * rank + (cycle % 2) as usize;
        &self.slots[index * self.stride..][..self.stride]
    }
}

/// Writes `block` into this rank's own slot. Only details that are present are written: no rank
/// reads the others.
fn freeze(slot: &[AtomicU64], prefix: Prefix, block: &Contribution<'_>) {
    let words = prefix.to_words();
    let words = words.iter().chain(&block.head).chain(block.bits);
    for (to, value) in slot.iter().zip(words.chain(block.attached)) {
        to.store(*value, Ordering::Relaxed);
    }
    if block.details.is_empty() {
        return;
    }
    let details = &slot[PREFIX_WORDS + block.fact_words() + block.attached.len()..];
    each_bit(block.bits, |index| {
        details[index].store(block.details[index], Ordering::Relaxed)
    });
}

/// View of a block in a slot.
struct SlotView<'a> {
    prefix: &'a [AtomicU64],
    words: &'a [AtomicU64],
    attached: &'a [AtomicU64],
    details: &'a [AtomicU64],
}

impl<'a> SlotView<'a> {
    /// Makes a view of the block in `slot`, which has the parts of this rank's block `own`.
    fn new(slot: &'a [AtomicU64], own: &Contribution<'_>) -> Self {
        let (prefix, block) = slot.split_at(PREFIX_WORDS);
        let (words, rest) = block.split_at(own.fact_words());
        let (attached, details) = rest.split_at(own.attached.len());
        Self {
            prefix,
            words,
            attached,
            details,
        }
    }

    fn prefix(&self) -> Prefix {
        Prefix::from_words(std::array::from_fn(|index| {
            self.prefix[index].load(Ordering::Relaxed)
        }))
    }
}

impl RankBlock for SlotView<'_> {
    fn read_words(&self, to: &mut [u64]) {
        read(self.words, to);
    }

    fn read_attached(&self, to: &mut [u64]) {
        read(self.attached, to);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| {
            to[index] = self.details[index].load(Ordering::Relaxed)
        });
    }
}

fn read(words: &[AtomicU64], to: &mut [u64]) {
    for (to, word) in to.iter_mut().zip(words) {
        *to = word.load(Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::negotiation::{Agreement, Block, Status};

    /// Prefix, status, settings, hold and last submission.
    const HEAD_WORDS: usize = PREFIX_WORDS + 10;

    struct Nobody;

    impl Watch for Nobody {
        fn check(&self, on: usize, _waited: Duration) -> Result<(), Error> {
            panic!("waited for {on}")
        }
    }

    /// Runs rank 0's first exchange of an empty block with rank 1 and returns the error. Rank 1's
    /// slot begins with `head`, and rank 1 has published `sequence`. Job ranks are 4 and 6.
    fn exchanged(head: [u64; HEAD_WORDS], sequence: u32) -> Result<(), Error> {
        let stride = slot_words(1);
        let slots: Vec<AtomicU64> = (0..4 * stride).map(|_| AtomicU64::new(0)).collect();
        let of_rank_1 = &slots[3 * stride..]; // for odd cycles
        for (word, value) in of_rank_1.iter().zip(head) {
            word.store(value, Ordering::Relaxed);
        }
        let counters = vec![Counter::default(), Counter::default()];
        counters[1].publish(sequence);
        let mut snapshot = Snapshot::new(0, 1, stride, &slots[..], counters, Duration::ZERO);
        let block = Block::new(0);
        snapshot.exchange(
            1,
            &block.contribution(false),
            &[4, 6],
            &mut Agreement::new(2, true),
            &Nobody,
        )
    }

    #[test]
    fn an_invalid_slot_of_a_peer_is_an_error_that_names_it() {
        let block = Block::new(0);
        let block = block.contribution(false);
        let mut good = [0; HEAD_WORDS];
        good[..PREFIX_WORDS].copy_from_slice(&Prefix::new(1, &block).to_words());
        good[PREFIX_WORDS..].copy_from_slice(&block.head);
        assert!(exchanged(good, 1).is_ok());
        let spoiled = |word: usize, value: u64| {
            let mut head = good;
            head[word] = value;
            head
        };
        let cases = [
            (
                spoiled(0, 3),
                1,
                "a block of cycle 3, version 4, 10 words, where this rank has a block of cycle 1, version 4, 10 words",
            ),
            (
                spoiled(1, 2),
                1,
                "a block of cycle 1, version 2, 10 words, where",
            ),
            (
                spoiled(2, u64::MAX),
                1,
                "a block of cycle 1, version 4, 18446744073709551615 words",
            ),
            (spoiled(3, 1 << 40), 1, "status bits 0xffffffff"),
            (spoiled(6, u64::MAX), 1, "a cycle time of"),
            (good, 9, "it is 8 cycles ahead of a rank it waits for"),
        ];
        for (head, sequence, expected) in cases {
            match exchanged(head, sequence) {
                Err(Error::Peer(PeerError::InvalidData { rank: 6, problem })) => {
                    assert!(problem.starts_with(expected), "{problem}");
                }
                outcome => panic!("{outcome:?}"),
            }
        }
    }

    /// The bound on the response cache costs address space; only the words in use cost time.
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
        let mut agreed = Agreement::new(1, true);
        for (cycle, words) in [(1, 1), (2, 3), (3, 2)] {
            let mut block = Block::new(words);
            (0..64 * words).for_each(|bit| block.set(bit, cycle * 1000 + bit as u64));
            if cycle == 1 {
                block.status = Status::TRACES; // the second block has ready times
            }
            let is_timed = agreed.prepare(&vec![u64::MAX; words]);
            assert_eq!(is_timed, cycle == 2);
            let own = block.contribution(is_timed);
            snapshot
                .exchange(cycle, &own, &[0], &mut agreed, &Nobody)
                .unwrap();
            assert_eq!(agreed.common(), vec![u64::MAX; words]);
        }
        for (slot, words) in [(0, 65 * 3), (1, 2)] {
            let slot = &slots[slot * stride..][..stride];
            let written = slot
                .iter()
                .take_while(|word| word.load(Ordering::Relaxed) != UNTOUCHED)
                .count();
            assert_eq!(written, HEAD_WORDS + words);
            assert!(
                slot[written..]
                    .iter()
                    .all(|word| word.load(Ordering::Relaxed) == UNTOUCHED)
            );
        }
        assert_eq!(stride, 16_663, "133 KB for 16384 tensors");
    }
}
