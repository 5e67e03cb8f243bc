//! Agreement of the ranks on one cycle, computed from the blocks of all of them.
//!
//! A rank that has joined has no more data, and the others go on without it: its block does not
//! restrict the common bits. It may have submitted a tensor before it joined, and then takes part
//! in that operation as any other rank; otherwise it is *absent* from it.
//!
//! The fold over the words is associative: intersections, unions, maxima, the newest settings. The ready
//! times of each rank are not part of it. Rank 0's timeline and stall check need them, and they are
//! kept rank by rank if requested.
//!
//! Blocks may lie in memory that other processes write. Each value is read once and checked before
//! it is used.

use super::block::{FACT_WORDS, Facts, InvalidBlock, READY_US_MAX, Status, check_facts, facts};
use crate::hold::Hold;
use crate::settings::{Settings, Versioned};
use crate::transport::{Combine, RankBlock};

/// State that all ranks share when every block of a cycle has arrived. It is a fold over the blocks
/// in rank order. It depends only on the blocks and on the ranks that had joined in the previous
/// cycle, so every rank computes the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agreement {
    /// Bits that are ready on every rank that has not joined. Once all ranks have joined: bits that
    /// are ready on any rank. [`absent`](Self::absent) ranks contribute nothing.
    pub common: Vec<u64>,
    /// Facts that hold on at least one rank.
    pub any: Status,
    /// Facts that hold on every rank that has not joined.
    pub all: Status,
    /// Delay of cycles: of each time, the latest of all ranks.
    pub hold: Hold,
    /// Newest settings of all blocks; of equal versions, those of the first rank. Every rank
    /// computes the same settings, so all of them switch in this cycle.
    pub settings: Versioned<Settings>,
    /// Ready words of every rank (rank-major); filled only if [`details`](Self::details) asks for
    /// them.
    pub ready: Vec<u64>,
    /// Ready times of every rank in microseconds (rank-major, 64 per word), where the bit is set;
    /// filled under the same condition.
    pub ready_us: Vec<u64>,
    /// Whether to keep each rank's words and times, for the timeline, the stall inspector and the
    /// analysis.
    pub details: bool,
    /// Bits that a block may set: those of the cache slots in use, which are the same on every
    /// rank. Empty: any bit.
    pub slots: Vec<u64>,
    ranks: usize,
    /// Rank that joined last; of several in one cycle, the highest.
    last_joined: Option<usize>,
    /// Version of the settings in the previous fold.
    version_before: u64,
    /// Ranks that had joined in the previous fold.
    joined_before: Vec<usize>,
    /// Words of the block that is being added: facts, then ready words.
    incoming: Vec<u64>,
    /// Ranks that have joined, and their ready words (in the same order).
    joined: Vec<usize>,
    joined_ready: Vec<u64>,
}

impl Agreement {
    /// Makes an empty agreement; `details` as in the field.
    pub(crate) fn new(details: bool) -> Self {
        Self {
            details,
            ..Self::default()
        }
    }

    /// Starts a fold over blocks of `words` ready words.
    pub(crate) fn begin(&mut self, words: usize) {
        self.incoming.clear();
        self.incoming.resize(FACT_WORDS + words, 0);
        self.common.clear();
        self.common.resize(words, 0);
        self.any = Status::default();
        self.all = Status::ALL;
        self.hold = Hold::default();
        self.ready.clear();
        self.ready_us.clear();
        self.ranks = 0;
        self.version_before = self.settings.version;
        std::mem::swap(&mut self.joined, &mut self.joined_before);
        self.joined.clear();
        self.joined_ready.clear();
    }

    /// Adds the next rank's block.
    ///
    /// # Errors
    /// A block that no rank of this build sends in this cycle; the fold is then not usable.
    pub(crate) fn add(&mut self, block: &dyn RankBlock) -> Result<(), InvalidBlock> {
        block.read_words(&mut self.incoming);
        let facts = facts(&self.incoming);
        check_facts(self.ranks, &facts, self.version_before)?;
        let Facts {
            status,
            settings,
            hold,
        } = facts;
        self.check_slots()?;
        if status.has(Status::JOINED) {
            self.add_joined();
        } else if self.ranks == self.joined.len() {
            // The first rank that has not joined: the ranks before it do not restrict its bits.
            self.common.copy_from_slice(&self.incoming[FACT_WORDS..]);
        } else {
            for (common, ready) in self.common.iter_mut().zip(&self.incoming[FACT_WORDS..]) {
                *common &= ready;
            }
        }
        self.any = self.any.with(status);
        if !status.has(Status::JOINED) {
            self.all = self.all.and(status);
        }
        self.hold = self.hold.max(hold);
        if self.ranks == 0 || settings.version > self.settings.version {
            self.settings = settings;
        }
        if self.details {
            self.add_details(block)?;
        }
        self.ranks += 1;
        Ok(())
    }

    /// Checks that no bit is set for an empty slot.
    fn check_slots(&self) -> Result<(), InvalidBlock> {
        for (index, (ready, slots)) in self.incoming[FACT_WORDS..]
            .iter()
            .zip(&self.slots)
            .enumerate()
        {
            let unknown = ready & !slots;
            if unknown != 0 {
                let slot = index * 64 + unknown.trailing_zeros() as usize;
                return Err(InvalidBlock::EmptySlot(slot));
            }
        }
        Ok(())
    }

    /// Keeps the words of the block, and the time of each bit that is set.
    fn add_details(&mut self, block: &dyn RankBlock) -> Result<(), InvalidBlock> {
        let ready = &self.incoming[FACT_WORDS..];
        let base = self.ready_us.len();
        self.ready_us.resize(base + ready.len() * 64, 0);
        self.ready.extend_from_slice(ready);
        let times = &mut self.ready_us[base..];
        block.read_details(ready, times);
        // Times without a bit are 0.
        match times.iter().position(|&ready_us| ready_us > READY_US_MAX) {
            Some(slot) => Err(InvalidBlock::ReadyTime {
                slot,
                ready_us: times[slot],
            }),
            None => Ok(()),
        }
    }

    /// Adds the ready words of a rank that has joined: they count only while all other ranks have
    /// joined too.
    #[cold]
    fn add_joined(&mut self) {
        if self.ranks == self.joined.len() {
            for (common, ready) in self.common.iter_mut().zip(&self.incoming[FACT_WORDS..]) {
                *common |= ready;
            }
        }
        self.joined_ready
            .extend_from_slice(&self.incoming[FACT_WORDS..]);
        self.joined.push(self.ranks);
        if !self.joined_before.contains(&self.ranks) {
            self.last_joined = Some(self.ranks);
        }
    }

    /// Number of blocks added.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Ranks that have joined, ascending.
    pub(crate) fn joined(&self) -> &[usize] {
        &self.joined
    }

    /// Rank that joined last; of several in one cycle, the highest. `None` before any rank has
    /// joined.
    pub(crate) fn last_joined(&self) -> Option<usize> {
        self.last_joined
    }

    /// Ranks that have joined and do not have `bit` ready, ascending. If the bit is common, its
    /// tensor is reduced without them.
    ///
    /// # Panics
    /// If the blocks have no such bit.
    pub(crate) fn absent(&self, bit: usize) -> impl Iterator<Item = usize> {
        let words = self.common.len();
        let lacks = move |joined: usize| {
            self.joined_ready[joined * words + bit / 64] >> (bit % 64) & 1 == 0
        };
        let joined = self.joined.iter().enumerate();
        joined.filter_map(move |(index, &rank)| lacks(index).then_some(rank))
    }

    /// With details: the time (microseconds) since which `bit` was ready on `rank`; `None` if it
    /// was not.
    pub(crate) fn ready_on(&self, rank: usize, bit: usize) -> Option<u64> {
        let words = self.common.len();
        let word = *self.ready.get(rank * words + bit / 64)?;
        (word >> (bit % 64) & 1 == 1).then(|| self.ready_us[rank * words * 64 + bit])
    }
}

impl Combine for Agreement {
    fn start(&mut self, words: usize) {
        self.begin(words.saturating_sub(FACT_WORDS));
    }

    fn add(&mut self, block: &dyn RankBlock) -> Result<(), String> {
        Self::add(self, block).map_err(|problem| problem.to_string())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::negotiation::Block;

    fn settings(version: u64) -> Versioned<Settings> {
        Versioned {
            version,
            ..Versioned::default()
        }
    }

    #[test]
    fn common_bits_are_those_of_every_rank_and_settings_the_newest() {
        let mut a = Block::new(2);
        a.settings = settings(4);
        a.set(3, 10);
        a.set(70, 11);
        let mut b = Block::new(2);
        b.settings = settings(3);
        b.status = Status::UNCACHED;
        b.set(70, 20);
        b.set(71, 21);
        let mut agreed = Agreement {
            details: true,
            ..Agreement::default()
        };
        agreed.begin(2);
        agreed.add(&a).unwrap();
        agreed.add(&b).unwrap();
        assert_eq!(agreed.common, [0, 1 << 6]);
        assert!(agreed.any.has(Status::UNCACHED));
        assert_eq!(agreed.settings.version, 4);
        assert_eq!(
            (agreed.ready_on(0, 3), agreed.ready_on(1, 3)),
            (Some(10), None)
        );
        assert_eq!(agreed.ready_on(1, 70), Some(20));
    }

    /// A block with these bits of its one word ready.
    fn block(status: Status, bits: &[usize]) -> Block {
        let mut block = Block::new(1);
        block.status = status;
        bits.iter()
            .for_each(|&bit| block.set(bit, 100 + bit as u64));
        block
    }

    fn agree(details: bool, blocks: &[Block]) -> Agreement {
        let mut agreed = Agreement::new(details);
        agreed.begin(1);
        blocks.iter().for_each(|block| agreed.add(block).unwrap());
        agreed
    }

    fn absent(agreed: &Agreement, bit: usize) -> Vec<usize> {
        agreed.absent(bit).collect()
    }

    #[test]
    fn a_joined_rank_does_not_restrict_bits_and_is_absent_where_it_has_no_data() {
        // Bit 2 is ready on all ranks, 3 on those that have data left, 4 on one of these, 5 only on
        // a joined rank.
        let joined = |bits: &[usize]| block(Status::JOINED, bits);
        let active = |bits: &[usize]| block(Status::default(), bits);
        let orders = [
            [joined(&[2, 5]), active(&[2, 3]), active(&[2, 3, 4])],
            [active(&[2, 3]), joined(&[2, 5]), active(&[2, 3, 4])],
            [active(&[2, 3]), active(&[2, 3, 4]), joined(&[2, 5])],
        ];
        for (rank, blocks) in orders.into_iter().enumerate() {
            let agreed = agree(true, &blocks);
            assert_eq!(agreed.common, [1 << 2 | 1 << 3], "rank {rank} has joined");
            assert_eq!(agreed.joined(), [rank]);
            assert!(absent(&agreed, 2).is_empty());
            assert_eq!(absent(&agreed, 3), [rank]);
            assert_eq!(
                (agreed.ready_on(rank, 2), agreed.ready_on(rank, 3)),
                (Some(102), None)
            );
            assert!(agreed.any.has(Status::JOINED));
        }
    }

    #[test]
    fn facts_of_all_leave_joined_ranks_out_and_the_latest_hold_counts() {
        let between = Status::BETWEEN_STEPS;
        let held = |status: Status, first_ns: u64, until_ns: u64| {
            let mut block = block(status, &[]);
            (block.hold.first_ns, block.hold.until_ns) = (first_ns, until_ns);
            block
        };
        let joined = held(Status::JOINED, 0, 0);
        let agreed = agree(false, &[held(between, 3, 5), joined, held(between, 2, 7)]);
        assert!(agreed.all.has(between));
        assert_eq!((agreed.hold.first_ns, agreed.hold.until_ns), (3, 7));
        let agreed = agree(false, &[held(between, 0, 0), held(Status::UNCACHED, 0, 0)]);
        assert!(!agreed.all.has(between) && agreed.any.has(between));
    }

    #[test]
    fn when_all_have_joined_a_bit_of_any_rank_is_common() {
        let blocks = [&[][..], &[7], &[7, 9]].map(|bits| block(Status::JOINED, bits));
        let agreed = agree(false, &blocks);
        assert_eq!(agreed.common, [1 << 7 | 1 << 9]);
        assert_eq!(agreed.joined(), [0, 1, 2]);
        assert_eq!(
            (absent(&agreed, 7), absent(&agreed, 9)),
            (vec![0], vec![0, 1])
        );
        let idle = agree(
            false,
            &[block(Status::JOINED, &[]), block(Status::JOINED, &[])],
        );
        assert_eq!(idle.common, [0]);
    }

    #[test]
    fn the_last_joined_rank_is_known_until_all_have_joined_and_begin_again() {
        let mut agreed = Agreement::default();
        let mut fold = |joined: [bool; 3]| {
            agreed.begin(0);
            for joined in joined {
                let status = if joined {
                    Status::JOINED
                } else {
                    Status::default()
                };
                agreed
                    .add(&Block {
                        status,
                        ..Block::new(0)
                    })
                    .unwrap();
            }
            agreed.last_joined()
        };
        assert_eq!(fold([false, false, false]), None);
        assert_eq!(fold([false, true, true]), Some(2));
        assert_eq!(fold([false, true, true]), Some(2));
        assert_eq!(fold([true, true, true]), Some(0));
        assert_eq!(fold([false, false, false]), Some(0));
        assert_eq!(fold([false, true, false]), Some(1));
    }

    #[test]
    fn the_next_fold_forgets_the_joined_ranks() {
        let mut agreed = agree(
            false,
            &[block(Status::JOINED, &[1]), block(Status::JOINED, &[])],
        );
        agreed.begin(1);
        agreed.add(&block(Status::default(), &[3, 4])).unwrap();
        agreed.add(&block(Status::default(), &[4])).unwrap();
        assert_eq!(agreed.common, [1 << 4]);
        assert_eq!((agreed.joined(), absent(&agreed, 4)), (&[][..], vec![]));
        agreed.begin(0);
        agreed.add(&Block::new(0)).unwrap();
        assert_eq!(agreed.ranks(), 1);
    }

    #[test]
    fn a_block_that_no_rank_sends_is_refused() {
        let refused = |rank: usize, slots: u64, change: &dyn Fn(&mut Block)| {
            let mut agreed = Agreement::new(true);
            agreed.slots = vec![slots];
            agreed.begin(1);
            for _ in 0..rank {
                agreed.add(&block(Status::default(), &[3])).unwrap();
            }
            let mut found = block(Status::default(), &[3]);
            change(&mut found);
            agreed.add(&found).unwrap_err().to_string()
        };
        let text = refused(1, u64::MAX, &|block| block.status = Status::COMPARE_CLOCKS);
        assert_eq!(text, "status bits 0x4");
        let text = refused(0, u64::MAX, &|block| block.status = Status(1 << 9));
        assert_eq!(text, "status bits 0x200");
        let text = refused(1, u64::MAX, &|block| block.settings.version = u64::MAX);
        assert_eq!(
            text,
            format!("settings of version {}, after version 0", u64::MAX)
        );
        let text = refused(0, u64::MAX, &|block| {
            block.settings.value.cycle_time_ns = u64::MAX
        });
        assert!(text.ends_with("ms is more than 60000 ms"), "{text}");
        let text = refused(1, u64::MAX, &|block| block.hold.until_ns = u64::MAX);
        assert!(text.starts_with("a hold of 0, 0 and"), "{text}");
        let text = refused(1, 1 << 3, &|block| block.set(5, 0));
        assert_eq!(
            text,
            "slot 5 of the response cache is ready and holds no tensor"
        );
        let text = refused(1, u64::MAX, &|block| block.set(3, u64::MAX));
        assert_eq!(
            text,
            format!(
                "slot 3 of the response cache is ready since microsecond {}",
                u64::MAX
            )
        );
    }

    proptest! {
        /// Definition of the fold: AND over the ranks, with all ones for joined ranks, masked by
        /// the OR of all ready words.
        #[test]
        fn the_fold_is_its_definition(ranks in prop::collection::vec((any::<bool>(), any::<u64>()), 1..9)) {
            let mut agreed = Agreement::default();
            agreed.begin(1);
            for &(joined, ready) in &ranks {
                let status = if joined { Status::JOINED } else { Status::default() };
                agreed.add(&Block { status, ready: vec![ready], ..Block::new(1) }).unwrap();
            }
            let every = ranks.iter().fold(u64::MAX, |all, &(joined, ready)| if joined { all } else { all & ready });
            let some = ranks.iter().fold(0, |any, &(_, ready)| any | ready);
            prop_assert_eq!(&agreed.common, &[every & some]);
            for bit in 0..64 {
                let expected = (0..ranks.len()).filter(|&rank| ranks[rank].0 && ranks[rank].1 >> bit & 1 == 0);
                prop_assert_eq!(absent(&agreed, bit), expected.collect::<Vec<_>>());
            }
        }
    }
}
