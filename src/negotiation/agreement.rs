//! Agreement of the ranks on one cycle, computed from the blocks of all of them.
//!
//! A rank that has joined has no more data, and the others go on without it: its block does not
//! restrict the common bits. It may have submitted a tensor before it joined, and then takes part
//! in that operation as any other rank; otherwise it is *absent* from it. The ranks that have
//! joined are known from rank 0's answers, before the cycle.
//!
//! The agreement is a fold in any order and grouping, and has a bounded size whatever the number of
//! ranks: intersections, unions, minima, maxima, the newest settings, and in a small set a few
//! words of each rank ([`Partial`]). Hosts therefore combine the blocks of their ranks before they
//! exchange anything. Which rank has which tensor ready is not part of it; the cycle asks for that
//! if it needs it ([`Details`]).
//!
//! Blocks may lie in memory that other processes write. Each value is read once and checked before
//! it is used.

use super::block::{
    FACT_WORDS, InvalidBlock, READY_US_MAX, Status, attached_words, check_bits, facts, first_beyond,
};
use super::details::Details;
use super::partial::{Limits, OfHost, Partial};
use crate::hold::Hold;
use crate::settings::{Settings, Versioned};
use crate::transport::{self, Combine, RankBlock};

/// The rank that was last to submit its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    /// Set rank.
    pub(crate) rank: usize,
    /// Time since the last submission of the rank that was first, microseconds.
    pub(crate) late_us: u64,
}

/// State that all ranks share when every block of a cycle has arrived. It depends only on the
/// blocks and on the ranks that had joined before, so every rank computes the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agreement {
    state: Partial,
    limits: Limits,
    /// Whether this rank reads the ready times of blocks: to use them, or for another host.
    reads_times: bool,
    /// Ranks that have joined, ascending.
    joined: Vec<usize>,
    /// Rank that joined last; of several in one cycle, the highest.
    last_joined: Option<usize>,
    /// For each joined rank, the bits of [`joined_common`](Self::joined_common) that it has ready.
    held: Vec<u64>,
    /// Words and ready times of the block that is being added.
    incoming: Vec<u64>,
    incoming_us: Vec<u64>,
    /// Attached words of this rank's own block.
    own_attached: Vec<u64>,
}

impl Agreement {
    /// Makes an empty agreement of `size` ranks. `reads_times`: the first and last ready times are
    /// needed on this rank, if the blocks have any.
    pub(crate) fn new(size: usize, reads_times: bool) -> Self {
        let limits = Limits {
            size,
            attached_words: attached_words(size),
            ..Limits::default()
        };
        Self {
            limits,
            reads_times,
            ..Self::default()
        }
    }

    /// Prepares a cycle in which the bits of `slots` may be set: those of the cache slots in use,
    /// which are the same on every rank. Returns whether the blocks have ready times.
    pub(crate) fn prepare(&mut self, slots: &[u64]) -> bool {
        self.limits.slots.clear();
        self.limits.slots.extend_from_slice(slots);
        self.limits.version = self.state.settings.version;
        self.limits.is_timed = self.state.any.has(Status::TRACES);
        self.limits.is_timed
    }

    /// Adds the block of set rank `rank`.
    ///
    /// # Errors
    /// A block that no rank of this build sends in this cycle; the fold is then not usable.
    fn add_block(&mut self, rank: usize, block: &dyn RankBlock) -> Result<(), InvalidBlock> {
        block.read_words(&mut self.incoming);
        let facts = facts(&self.incoming);
        facts.check(rank, self.limits.version)?;
        let ready = &self.incoming[FACT_WORDS..];
        check_bits(ready, &self.limits.slots)?;
        let state = &mut self.state;
        state.any = state.any.with(facts.status);
        state.hold = state.hold.max(facts.hold);
        state.merge_settings(facts.settings, rank as u64);
        state.merge_latest(facts.latest_us, rank as u64);
        let has_joined = self.joined.binary_search(&rank).is_ok();
        if !has_joined {
            state.all = state.all.and(facts.status);
        }
        let joined = state.joined.iter_mut();
        let bits = state.common.iter_mut().zip(&mut state.some).zip(joined);
        for (((common, some), joined), ready) in bits.zip(ready) {
            *some |= ready;
            if has_joined {
                *joined |= ready;
            } else {
                *common &= ready;
            }
        }
        if facts.status.has(Status::ATTACHED) {
            block.read_attached(&mut state.attached[self.limits.of_rank(rank)]);
        }
        if self.limits.is_timed && self.reads_times {
            self.add_times(block)?;
        }
        Ok(())
    }

    /// Adds the time of each bit that is set in the block.
    fn add_times(&mut self, block: &dyn RankBlock) -> Result<(), InvalidBlock> {
        let ready = &self.incoming[FACT_WORDS..];
        self.incoming_us.resize(64 * ready.len(), 0);
        block.read_details(ready, &mut self.incoming_us);
        let (first_us, last_us) = (&mut self.state.first_us, &mut self.state.last_us);
        let mut invalid = None;
        transport::each_bit(ready, |slot| {
            let ready_us = self.incoming_us[slot];
            if ready_us > READY_US_MAX {
                invalid = Some(InvalidBlock::ReadyTime { slot, ready_us });
            }
            first_us[slot] = first_us[slot].min(ready_us);
            last_us[slot] = last_us[slot].max(ready_us);
        });
        invalid.map_or(Ok(()), Err)
    }

    /// Takes the combination of all ranks' blocks in `words`, after a comparison with the block
    /// `own` of this rank.
    fn adopt_words(
        &mut self,
        words: &[u64],
        rank: usize,
        own: &dyn RankBlock,
    ) -> Result<(), InvalidBlock> {
        let state = Partial::read(words, &self.limits)?;
        let bits = self.limits.slots.len();
        self.incoming.resize(FACT_WORDS + bits, 0);
        own.read_words(&mut self.incoming);
        let ready = &self.incoming[FACT_WORDS..];
        let has_joined = self.joined.binary_search(&rank).is_ok();
        let contradiction = if has_joined {
            first_beyond(ready, &state.joined)
        } else {
            first_beyond(ready, &state.some).or_else(|| first_beyond(&state.common, ready))
        };
        self.state = state;
        if let Some(slot) = contradiction {
            return Err(InvalidBlock::OwnBits(slot));
        }
        let status = facts(&self.incoming).status;
        let is_in_all = has_joined || status.has(self.state.all);
        if !(self.state.any.has(status) && is_in_all) {
            return Err(InvalidBlock::OwnStatus(status.0));
        }
        if status.has(Status::ATTACHED) {
            self.own_attached.resize(self.limits.attached_words, 0);
            own.read_attached(&mut self.own_attached);
            if self.state.attached[self.limits.of_rank(rank)] != self.own_attached[..] {
                return Err(InvalidBlock::OwnInputs);
            }
        }
        Ok(())
    }

    /// Called when the state has the blocks of all ranks.
    pub(crate) fn conclude(&mut self) {
        if self.all_joined() {
            self.state.common.clone_from(&self.state.joined);
        }
        self.held.clear();
    }

    /// Bits that are ready on every rank that has not joined. Once all ranks have joined: bits that
    /// are ready on any rank. [`absent`](Self::absent) ranks contribute nothing.
    pub(crate) fn common(&self) -> &[u64] {
        &self.state.common
    }

    /// Removes a bit from the common ones.
    pub(crate) fn remove(&mut self, slot: usize) {
        if let Some(common) = self.state.common.get_mut(slot / 64) {
            *common &= !(1 << (slot % 64));
        }
    }

    /// Whether `slot` is ready on some rank.
    pub(crate) fn is_held(&self, slot: usize) -> bool {
        has(&self.state.some, slot)
    }

    /// Attached words of all ranks, by rank, if each rank has attached the inputs of the same
    /// tensors, and no rank has joined: the tensors of the [`common`](Self::common) bits.
    pub(crate) fn attached(&self) -> Option<&[u64]> {
        let is_complete = self.state.all.has(Status::ATTACHED)
            && self.joined.is_empty()
            && self.state.some == self.state.common;
        is_complete.then_some(&self.state.attached)
    }

    /// Bits that are ready on some ranks and not common.
    pub(crate) fn outstanding(&self) -> Vec<u64> {
        let bits = self.state.some.iter().zip(&self.state.common);
        bits.map(|(some, common)| some & !common).collect()
    }

    /// Common bits that some joined ranks have ready, and maybe not all of them.
    pub(crate) fn joined_common(&self) -> Vec<u64> {
        let bits = self.state.joined.iter().zip(&self.state.common);
        bits.map(|(joined, common)| joined & common).collect()
    }

    /// The bits of which it must be known on which ranks they are ready; no words if there are
    /// none.
    pub(crate) fn wanted_details(&self) -> Vec<u64> {
        if self.joined.is_empty() && self.state.any.and(Status::WANT_DETAILS) == Status::default() {
            return Vec::new();
        }
        let mut wanted = self.joined_common();
        if self.state.any.has(Status::RECORDS) {
            wanted.clone_from(&self.state.common);
        }
        if self.state.any.has(Status::STALLED) {
            let outstanding = self.outstanding();
            let words = wanted.iter_mut().zip(outstanding);
            words.for_each(|(wanted, outstanding)| *wanted |= outstanding);
        }
        wanted
    }

    /// Facts that hold on at least one rank.
    pub(crate) fn any(&self) -> Status {
        self.state.any
    }

    /// Facts that hold on every rank that has not joined.
    pub(crate) fn all(&self) -> Status {
        self.state.all
    }

    /// Delay of cycles: of each time, the latest of all ranks.
    pub(crate) fn hold(&self) -> Hold {
        self.state.hold
    }

    /// Newest settings of all blocks; of equal versions, those of the lowest rank. Every rank
    /// computes the same settings, so all of them switch in this cycle.
    pub(crate) fn settings(&self) -> Versioned<Settings> {
        self.state.settings
    }

    /// The rank whose last submission is the last of all ranks'; `None` if no rank waits for a
    /// tensor.
    pub(crate) fn last(&self) -> Option<Last> {
        let latest = self.state.latest;
        (latest.at_us > 0).then(|| Last {
            rank: latest.rank.0 as usize,
            late_us: latest.at_us - self.state.earliest_us,
        })
    }

    /// First and last time (microseconds on rank 0's clock) since which `slot` is ready on a rank;
    /// `None` if the blocks had no times or this rank does not read them.
    pub(crate) fn ready_us(&self, slot: usize) -> Option<(u64, u64)> {
        let (first_us, last_us) = (
            self.state.first_us.get(slot)?,
            self.state.last_us.get(slot)?,
        );
        (first_us <= last_us).then_some((*first_us, *last_us))
    }

    /// Ranks that have joined, ascending.
    pub(crate) fn joined(&self) -> &[usize] {
        &self.joined
    }

    /// Whether all ranks have joined.
    pub(crate) fn all_joined(&self) -> bool {
        !self.joined.is_empty() && self.joined.len() == self.limits.size
    }

    /// Rank that joined last; of several in one cycle, the highest. `None` before any rank has
    /// joined.
    pub(crate) fn last_joined(&self) -> Option<usize> {
        self.last_joined
    }

    /// Adds ranks that have joined, as rank 0 says: the next agreement does not wait for them.
    ///
    /// # Errors
    /// Reason why a correct rank 0 cannot have said so; `own` is this rank, and `own_joined`
    /// whether it has joined.
    pub(crate) fn join(
        &mut self,
        ranks: &[u32],
        own: usize,
        own_joined: bool,
    ) -> Result<(), String> {
        for &rank in ranks {
            let rank = rank as usize;
            match self.joined.binary_search(&rank) {
                Err(place) if rank < self.limits.size => self.joined.insert(place, rank),
                _ => return Err(format!("rank {rank} as one that has joined")),
            }
        }
        let last = ranks.iter().max().map(|&rank| rank as usize);
        self.last_joined = last.or(self.last_joined);
        if self.joined.binary_search(&own).is_ok() == own_joined {
            return Ok(());
        }
        let joined = if own_joined {
            "has joined"
        } else {
            "has not joined"
        };
        Err(format!(
            "{:?} as the ranks that have joined, where this rank {joined}",
            self.joined
        ))
    }

    /// All ranks have joined and begin again.
    pub(crate) fn rejoin(&mut self) {
        self.joined.clear();
    }

    /// Ranks that have joined and do not have `slot` ready, ascending. If the bit is common, its
    /// tensor is reduced without them.
    pub(crate) fn absent(&self, slot: usize) -> impl Iterator<Item = usize> {
        let words = self.state.common.len();
        let lacks = move |place: usize| {
            let held = self.held.get(place * words..(place + 1) * words);
            !has(held.unwrap_or_default(), slot)
        };
        let joined = self.joined.iter().enumerate();
        joined.filter_map(move |(place, &rank)| lacks(place).then_some(rank))
    }

    /// Writes for each joined rank which of the [`joined_common`](Self::joined_common) bits it has
    /// ready. Called on rank 0, which has the details of these.
    pub(crate) fn write_held(&self, details: &Details, frame: &mut Vec<u8>) {
        let common = self.joined_common();
        frame.clear();
        for &rank in &self.joined {
            let mut held = vec![0_u64; common.len()];
            transport::each_bit(&common, |slot| {
                if details.ready_on(rank, slot).is_some() {
                    held[slot / 64] |= 1 << (slot % 64);
                }
            });
            frame.extend(held.iter().flat_map(|word| word.to_le_bytes()));
        }
    }

    /// Reads what [`write_held`](Self::write_held) has written; `ready` are the bits of this rank,
    /// number `own`.
    ///
    /// # Errors
    /// Reason why a correct rank 0 cannot have sent it.
    pub(crate) fn read_held(
        &mut self,
        frame: &[u8],
        own: usize,
        ready: &[u64],
    ) -> Result<(), String> {
        let common = self.joined_common();
        let (numbers, rest) = frame.as_chunks();
        if !rest.is_empty() || numbers.len() != common.len() * self.joined.len() {
            return Err(format!(
                "{} bytes about the tensors of {} joined ranks",
                frame.len(),
                self.joined.len()
            ));
        }
        self.held.clear();
        self.held
            .extend(numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        let mut by_any = vec![0; common.len()];
        let words = common.len().max(1);
        for (&rank, held) in self.joined.iter().zip(self.held.chunks_exact(words)) {
            let mut bits = held.iter().zip(&common).zip(ready);
            let is_right = match rank == own {
                true => bits.all(|((held, common), ready)| *held == common & ready),
                false => bits.all(|((held, common), _)| held & !common == 0),
            };
            if !is_right {
                return Err(format!(
                    "other tensors of joined rank {rank} than it has ready"
                ));
            }
            by_any
                .iter_mut()
                .zip(held)
                .for_each(|(any, held)| *any |= held);
        }
        if self.all_joined() {
            // A rank that denies what its block says is absent; nobody is left for such a tensor.
            self.state.common = by_any;
        }
        Ok(())
    }
}

fn has(bits: &[u64], slot: usize) -> bool {
    bits.get(slot / 64)
        .is_some_and(|word| word >> (slot % 64) & 1 == 1)
}

impl Combine for Agreement {
    fn start(&mut self, words: usize) {
        let bits = words.saturating_sub(FACT_WORDS);
        self.limits.slots.resize(bits, u64::MAX); // as prepared, if it is
        self.incoming.clear();
        self.incoming.resize(FACT_WORDS + bits, 0);
        self.state.clear(&self.limits);
    }

    fn add(&mut self, rank: usize, block: &dyn RankBlock) -> Result<(), String> {
        self.add_block(rank, block)
            .map_err(|problem| problem.to_string())
    }

    fn partial(&mut self) -> Box<dyn transport::Partial> {
        Box::new(OfHost {
            state: std::mem::take(&mut self.state),
            limits: self.limits.clone(),
        })
    }

    fn adopt(&mut self, words: &[u64], rank: usize, own: &dyn RankBlock) -> Result<(), String> {
        let adopted = self.adopt_words(words, rank, own);
        adopted.map_err(|problem| problem.to_string())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::negotiation::Block;

    /// A block with these bits of its one word ready.
    fn block(status: Status, bits: &[usize]) -> Block {
        let mut block = Block::new(1);
        block.status = status;
        bits.iter()
            .for_each(|&bit| block.set(bit, 100 + bit as u64));
        block
    }

    fn active(bits: &[usize]) -> Block {
        block(Status::default(), bits)
    }

    /// Has all `blocks` added in a cycle that has been prepared.
    fn fold(agreed: &mut Agreement, blocks: &[Block]) -> Result<(), String> {
        agreed.start(FACT_WORDS + blocks[0].ready.len());
        for (rank, block) in blocks.iter().enumerate() {
            agreed.add(rank, block)?;
        }
        agreed.conclude();
        Ok(())
    }

    /// The agreement of `blocks`, of which those of `joined` have joined.
    fn agree(blocks: &[Block], joined: &[u32]) -> Agreement {
        let mut agreed = Agreement::new(blocks.len(), true);
        agreed.join(joined, 0, joined.contains(&0)).unwrap();
        fold(&mut agreed, blocks).unwrap();
        agreed
    }

    /// Has the ranks exchange which tensors joined ranks hold, as rank 0 and `rank` see it.
    fn tell_held(agreed: &mut Agreement, blocks: &[Block], rank: usize) {
        let mut details = Details::default();
        details.begin(agreed.wanted_details());
        let mut frame = Vec::new();
        for block in blocks {
            details.write(block, &mut frame);
            details.add(&frame).unwrap();
        }
        agreed.write_held(&details, &mut frame);
        agreed.read_held(&frame, rank, &blocks[rank].ready).unwrap();
    }

    fn absent(agreed: &Agreement, slot: usize) -> Vec<usize> {
        agreed.absent(slot).collect()
    }

    #[test]
    fn common_bits_are_those_of_every_rank_and_settings_the_newest() {
        let versioned = |version: u64, cycle_time_ns: u64| Versioned {
            version,
            value: Settings {
                cycle_time_ns,
                ..Settings::default()
            },
        };
        let [mut a, mut b, mut c] = [0; 3].map(|_| Block::new(2));
        (a.settings, b.settings, c.settings) = (versioned(3, 1), versioned(4, 2), versioned(4, 3));
        a.set(3, 10);
        a.set(70, 11);
        b.status = Status::UNCACHED;
        b.set(70, 20);
        b.set(71, 21);
        c.set(70, 15);
        let agreed = agree(&[a, b, c], &[]);
        assert_eq!(agreed.common(), [0, 1 << 6]);
        assert_eq!(agreed.outstanding(), [1 << 3, 1 << 7]);
        assert!(agreed.is_held(71) && !agreed.is_held(72));
        assert!(agreed.any().has(Status::UNCACHED) && !agreed.all().has(Status::UNCACHED));
        assert_eq!(agreed.settings(), versioned(4, 2), "the lowest rank's");
        assert_eq!(agreed.ready_us(70), None);
    }

    #[test]
    fn the_first_and_last_ready_times_come_a_cycle_after_rank_0_wants_them() {
        let mut agreed = Agreement::new(2, true);
        let blocks = |status: Status, late_us: u64| {
            let mut blocks = [block(status, &[4]), active(&[4, 5])];
            blocks[1].set(4, 104 + late_us);
            blocks
        };
        assert!(!agreed.prepare(&[u64::MAX]));
        fold(&mut agreed, &blocks(Status::TRACES, 1)).unwrap();
        assert_eq!(agreed.ready_us(4), None);
        assert!(agreed.prepare(&[u64::MAX]));
        fold(&mut agreed, &blocks(Status::default(), 6)).unwrap();
        assert_eq!(agreed.ready_us(4), Some((104, 110)));
        assert_eq!(agreed.ready_us(5), Some((105, 105)));
        assert_eq!(agreed.ready_us(6), None);
        assert!(!agreed.prepare(&[u64::MAX]));
        let mut of_other = Agreement::new(2, false);
        of_other.prepare(&[u64::MAX]);
        fold(&mut of_other, &blocks(Status::TRACES, 1)).unwrap();
        of_other.prepare(&[u64::MAX]);
        fold(&mut of_other, &blocks(Status::TRACES, 1)).unwrap();
        assert_eq!(of_other.ready_us(4), None, "it does not read them");
    }

    #[test]
    fn a_joined_rank_does_not_restrict_bits_and_is_absent_where_it_has_no_data() {
        // Bit 2 is ready on all ranks, 3 on those that have data left, 4 on one of these, 5 only on
        // the joined rank.
        let orders = [
            [active(&[2, 5]), active(&[2, 3]), active(&[2, 3, 4])],
            [active(&[2, 3]), active(&[2, 5]), active(&[2, 3, 4])],
            [active(&[2, 3]), active(&[2, 3, 4]), active(&[2, 5])],
        ];
        for (rank, blocks) in orders.into_iter().enumerate() {
            let mut agreed = agree(&blocks, &[rank as u32]);
            assert_eq!(agreed.common(), [1 << 2 | 1 << 3], "rank {rank} has joined");
            assert_eq!(agreed.joined(), [rank]);
            assert_eq!(agreed.wanted_details(), [1 << 2]);
            tell_held(&mut agreed, &blocks, rank);
            assert!(absent(&agreed, 2).is_empty());
            assert_eq!(absent(&agreed, 3), [rank]);
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
        let joined = held(Status::default(), 0, 0);
        let agreed = agree(&[held(between, 3, 5), joined, held(between, 2, 7)], &[1]);
        assert!(agreed.all().has(between));
        assert_eq!((agreed.hold().first_ns, agreed.hold().until_ns), (3, 7));
        let agreed = agree(&[held(between, 0, 0), held(Status::UNCACHED, 0, 0)], &[]);
        assert!(!agreed.all().has(between) && agreed.any().has(between));
    }

    #[test]
    fn when_all_have_joined_a_bit_of_any_rank_is_common() {
        let blocks = [&[][..], &[7], &[7, 9]].map(active);
        let mut agreed = agree(&blocks, &[0, 1, 2]);
        assert!(agreed.all_joined());
        assert_eq!(agreed.common(), [1 << 7 | 1 << 9]);
        tell_held(&mut agreed, &blocks, 1);
        assert_eq!(
            (absent(&agreed, 7), absent(&agreed, 9)),
            (vec![0], vec![0, 1])
        );
        let idle = agree(&[active(&[]), active(&[])], &[0, 1]);
        assert_eq!((idle.common(), idle.wanted_details()), (&[0][..], vec![0]));
    }

    #[test]
    fn the_last_joined_rank_is_known_until_all_have_joined_and_begin_again() {
        let mut agreed = Agreement::new(3, true);
        assert_eq!(agreed.last_joined(), None);
        agreed.join(&[2, 1], 1, true).unwrap();
        assert_eq!(
            (agreed.last_joined(), agreed.joined()),
            (Some(2), &[1, 2][..])
        );
        agreed.join(&[], 1, true).unwrap();
        assert!(!agreed.all_joined());
        agreed.join(&[0], 1, true).unwrap();
        assert_eq!((agreed.last_joined(), agreed.all_joined()), (Some(0), true));
        agreed.rejoin();
        assert_eq!((agreed.last_joined(), agreed.joined()), (Some(0), &[][..]));
        fold(&mut agreed, &[active(&[3, 4]), active(&[4]), active(&[4])]).unwrap();
        assert_eq!(agreed.common(), [1 << 4]);
    }

    #[test]
    fn false_claims_about_joined_ranks_are_refused() {
        let mut agreed = Agreement::new(3, true);
        let text = agreed.join(&[3], 0, false).unwrap_err();
        assert_eq!(text, "rank 3 as one that has joined");
        let text = agreed.join(&[1, 1], 0, false).unwrap_err();
        assert_eq!(text, "rank 1 as one that has joined");
        let mut agreed = Agreement::new(3, true);
        let text = agreed.join(&[1], 1, false).unwrap_err();
        assert_eq!(
            text,
            "[1] as the ranks that have joined, where this rank has not joined"
        );
        let text = agreed.join(&[], 0, true).unwrap_err();
        assert_eq!(
            text,
            "[1] as the ranks that have joined, where this rank has joined"
        );

        let blocks = [active(&[2, 3]), active(&[2, 3]), active(&[])];
        let mut agreed = agree(&blocks, &[1, 2]);
        let mut read = |held: [u64; 2], own: usize| {
            let frame: Vec<u8> = held.iter().flat_map(|word| word.to_le_bytes()).collect();
            agreed.read_held(&frame, own, &blocks[own].ready)
        };
        read([1 << 2 | 1 << 3, 0], 1).unwrap();
        read([1 << 2, 0], 0).unwrap();
        let error = read([1 << 2, 0], 1).unwrap_err();
        assert_eq!(error, "other tensors of joined rank 1 than it has ready");
        let error = read([1 << 2, 1 << 3], 2).unwrap_err();
        assert_eq!(error, "other tensors of joined rank 2 than it has ready");
        assert!(read([1 << 4, 0], 0).is_err());
        for bytes in [0, 8, 15, 17, 24] {
            let error = agreed.read_held(&vec![0; bytes], 0, &[0]).unwrap_err();
            assert_eq!(
                error,
                format!("{bytes} bytes about the tensors of 2 joined ranks")
            );
        }
    }

    #[test]
    fn a_tensor_that_every_joined_rank_denies_is_not_executed() {
        let mut agreed = agree(&[active(&[]), active(&[5])], &[0, 1]);
        assert_eq!(agreed.common(), [1 << 5]);
        agreed.read_held(&[0; 16], 0, &[0]).unwrap();
        assert_eq!(agreed.common(), [0]);
    }

    #[test]
    fn a_combination_that_does_not_fit_a_ranks_own_block_is_refused() {
        let blocks = [active(&[2]), active(&[2, 3])];
        let mut agreed = Agreement::new(2, true);
        agreed.start(FACT_WORDS + 1);
        (0..2).for_each(|rank| agreed.add(rank, &blocks[rank]).unwrap());
        let mut words = Vec::new();
        agreed.partial().write(&mut words);
        let adopt = |rank: usize, bits: &[usize], joined: &[u32]| {
            let mut agreed = Agreement::new(2, true);
            agreed
                .join(joined, rank, joined.contains(&(rank as u32)))
                .unwrap();
            agreed.prepare(&[u64::MAX]);
            agreed.adopt(&words, rank, &active(bits))
        };
        assert_eq!(adopt(0, &[2], &[]), Ok(()));
        assert_eq!(adopt(1, &[2, 3], &[]), Ok(()));
        let text = |slot: usize| {
            format!("a combination of all blocks that does not fit this rank's, in slot {slot}")
        };
        assert_eq!(
            adopt(0, &[], &[]),
            Err(text(2)),
            "common without this rank's"
        );
        assert_eq!(
            adopt(0, &[2, 9], &[]),
            Err(text(9)),
            "this rank's is missing"
        );
        assert_eq!(adopt(1, &[2, 3], &[1]), Err(text(2)), "it has joined");
        assert_eq!(adopt(1, &[], &[1]), Ok(()));
    }

    #[test]
    fn inputs_are_those_of_all_ranks_if_each_has_attached_the_same_tensors() {
        let words = attached_words(2);
        let attaching = |bits: &[usize], input: u64| Block {
            attached: vec![input; words],
            ..block(Status::ATTACHED, bits)
        };
        let both = [attaching(&[2], 5), attaching(&[2], 6)];
        let inputs = [vec![5; words], vec![6; words]].concat();
        assert_eq!(agree(&both, &[]).attached(), Some(&inputs[..]));
        assert_eq!(agree(&both, &[1]).attached(), None, "rank 1 has joined");
        let [first, _] = both.clone();
        let other = [first.clone(), attaching(&[2, 3], 6)];
        assert_eq!(agree(&other, &[]).attached(), None, "rank 1 has more");
        let other = [first, active(&[2])];
        assert_eq!(agree(&other, &[]).attached(), None, "rank 1 has none");

        let mut agreed = Agreement::new(2, true);
        agreed.start(FACT_WORDS + 1);
        (0..2).for_each(|rank| agreed.add(rank, &both[rank]).unwrap());
        let mut words = Vec::new();
        agreed.partial().write(&mut words);
        let mut adopt = |own: &Block| {
            agreed.prepare(&[u64::MAX]);
            agreed.adopt(&words, 1, own)
        };
        assert_eq!(adopt(&attaching(&[2], 6)), Ok(()));
        let text =
            "a combination of all blocks that does not fit this rank's status bits 0x0".to_owned();
        assert_eq!(adopt(&active(&[2])), Err(text));
        let text = "a combination of all blocks with other inputs of this rank than it attached"
            .to_owned();
        assert_eq!(adopt(&attaching(&[2], 7)), Err(text));
    }

    #[test]
    fn small_sets_attach_a_few_words_and_large_ones_none() {
        let words = [1, 2, 8, 9, 16, 64, 65, 10_240].map(attached_words);
        assert_eq!(words, [0, 8, 8, 7, 4, 1, 0, 0]);
    }

    #[test]
    fn a_block_that_no_rank_sends_is_refused() {
        let refused = |rank: usize, slots: u64, change: &dyn Fn(&mut Block)| {
            let mut agreed = Agreement::new(2, true);
            agreed.prepare(&[slots]);
            fold(&mut agreed, &[block(Status::TRACES, &[3]), active(&[3])]).unwrap();
            agreed.prepare(&[slots]);
            let mut blocks = [active(&[3]), active(&[3])];
            change(&mut blocks[rank]);
            fold(&mut agreed, &blocks).unwrap_err()
        };
        let text = refused(1, u64::MAX, &|block| block.status = Status::COMPARE_CLOCKS);
        assert_eq!(text, "status bits 0x2");
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
}
