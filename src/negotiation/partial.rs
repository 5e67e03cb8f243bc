//! Partial state of an agreement: the combination of the blocks of some ranks.
//!
//! Every part is the least upper bound of the blocks' parts in some order: intersections, unions,
//! minima, maxima, the newest settings. So merging is associative, commutative and idempotent. The
//! attached words of a rank have a place of their own, which is 0 in the states of other ranks.

use std::cmp::Reverse;
use std::ops::Range;

use super::block::{
    InvalidBlock, READY_US_MAX, SETTINGS_WORDS, Status, check_bits, check_hold, check_latest,
    check_settings, settings_of, settings_words,
};
use crate::hold::Hold;
use crate::settings::{Settings, Versioned};
use crate::transport;

/// Values that valid states of one cycle have in common: the same on all ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    /// Number of ranks.
    pub(super) size: usize,
    /// Bits that may be set: those of the slots of the response cache that hold a tensor.
    pub(super) slots: Vec<u64>,
    /// Whether the blocks have ready times.
    pub(super) is_timed: bool,
    /// Version of the settings in the last cycle.
    pub(super) version: u64,
    /// Attached words of each rank.
    pub(super) attached_words: usize,
}

impl Limits {
    /// Attached words of all ranks.
    fn attached(&self) -> usize {
        self.size * self.attached_words
    }

    /// Place of the attached words of `rank`.
    pub(super) fn of_rank(&self, rank: usize) -> Range<usize> {
        rank * self.attached_words..(rank + 1) * self.attached_words
    }
}

/// Words before the bits: facts of any and all ranks, version and rank of the settings, hold, the
/// first and the last of the ranks' last submissions.
const HEAD_WORDS: usize = 4 + SETTINGS_WORDS + 3 + 3;

/// The last of the ranks' last submissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Latest {
    /// Microseconds on rank 0's clock; 0 if no rank has submitted anything.
    pub(super) at_us: u64,
    /// The rank; of several, the lowest.
    pub(super) rank: Reverse<u64>,
}

/// Combination of the blocks of some ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partial {
    /// Facts that hold on at least one rank.
    pub(super) any: Status,
    /// Facts that hold on every rank that has not joined.
    pub(super) all: Status,
    /// Of each time, the latest of all ranks.
    pub(super) hold: Hold,
    /// Newest settings; of equal versions, those of the lowest rank.
    pub(super) settings: Versioned<Settings>,
    /// The rank that published them; `u64::MAX` in a state without ranks.
    pub(super) settings_rank: u64,
    /// The first of the ranks' last submissions, microseconds on rank 0's clock; `u64::MAX` if no
    /// rank has submitted anything.
    pub(super) earliest_us: u64,
    pub(super) latest: Latest,
    /// Bits that are ready on every rank that has not joined.
    pub(super) common: Vec<u64>,
    /// Bits that are ready on some rank.
    pub(super) some: Vec<u64>,
    /// Bits that are ready on some joined rank.
    pub(super) joined: Vec<u64>,
    /// For each bit, the first and the last time, microseconds on rank 0's clock, since which it
    /// is ready on a rank that has it ready; empty in a cycle without ready times.
    pub(super) first_us: Vec<u64>,
    pub(super) last_us: Vec<u64>,
    /// Attached words of all ranks, by rank; 0 for ranks that have attached nothing.
    pub(super) attached: Vec<u64>,
}

impl Default for Partial {
    fn default() -> Self {
        Self {
            any: Status::default(),
            all: Status::KNOWN,
            hold: Hold::default(),
            settings: Versioned::default(),
            settings_rank: u64::MAX,
            earliest_us: u64::MAX,
            latest: Latest::default(),
            common: Vec::new(),
            some: Vec::new(),
            joined: Vec::new(),
            first_us: Vec::new(),
            last_us: Vec::new(),
            attached: Vec::new(),
        }
    }
}

impl Partial {
    /// Makes this the state of no rank.
    pub(super) fn clear(&mut self, limits: &Limits) {
        let words = limits.slots.len();
        let mut cleared = Self {
            common: std::mem::take(&mut self.common),
            some: std::mem::take(&mut self.some),
            joined: std::mem::take(&mut self.joined),
            first_us: std::mem::take(&mut self.first_us),
            last_us: std::mem::take(&mut self.last_us),
            attached: std::mem::take(&mut self.attached),
            ..Self::default()
        };
        cleared.common.clone_from(&limits.slots);
        for bits in [&mut cleared.some, &mut cleared.joined] {
            bits.clear();
            bits.resize(words, 0);
        }
        let times = if limits.is_timed { 64 * words } else { 0 };
        cleared.first_us.clear();
        cleared.first_us.resize(times, u64::MAX);
        cleared.last_us.clear();
        cleared.last_us.resize(times, 0);
        cleared.attached.clear();
        cleared.attached.resize(limits.attached(), 0);
        *self = cleared;
    }

    /// Merges the settings that `rank` has published.
    pub(super) fn merge_settings(&mut self, settings: Versioned<Settings>, rank: u64) {
        let order = |settings: &Versioned<Settings>, rank: u64| {
            // Different settings of one version and rank are invalid, and ordered nevertheless.
            (settings.version, Reverse(rank), settings_words(settings))
        };
        if order(&settings, rank) > order(&self.settings, self.settings_rank) {
            (self.settings, self.settings_rank) = (settings, rank);
        }
    }

    /// Merges the time at which `rank` submitted its last tensor.
    pub(super) fn merge_latest(&mut self, at_us: u64, rank: u64) {
        if at_us > 0 {
            self.earliest_us = self.earliest_us.min(at_us);
            self.latest = self.latest.max(Latest {
                at_us,
                rank: Reverse(rank),
            });
        }
    }

    /// Merges another state of this cycle.
    pub(super) fn merge(&mut self, other: &Self) {
        self.any = self.any.with(other.any);
        self.all = self.all.and(other.all);
        self.hold = self.hold.max(other.hold);
        self.merge_settings(other.settings, other.settings_rank);
        self.earliest_us = self.earliest_us.min(other.earliest_us);
        self.latest = self.latest.max(other.latest);
        fold(&mut self.common, &other.common, |own, other| own & other);
        fold(&mut self.some, &other.some, |own, other| own | other);
        fold(&mut self.joined, &other.joined, |own, other| own | other);
        fold(&mut self.first_us, &other.first_us, u64::min);
        fold(&mut self.last_us, &other.last_us, u64::max);
        fold(&mut self.attached, &other.attached, |own, other| {
            own | other
        });
    }

    /// Appends the words that [`read`](Self::read) reads.
    pub(super) fn write(&self, to: &mut Vec<u64>) {
        to.extend([u64::from(self.any.0), u64::from(self.all.0)]);
        to.extend([self.settings.version, self.settings_rank]);
        to.extend(settings_words(&self.settings));
        to.extend([self.hold.first_ns, self.hold.from_ns, self.hold.until_ns]);
        to.extend([self.earliest_us, self.latest.at_us, self.latest.rank.0]);
        for bits in [&self.common, &self.some, &self.joined] {
            to.extend(bits);
        }
        to.extend(self.first_us.iter().chain(&self.last_us));
        to.extend(&self.attached);
    }

    /// Reads a state with at least one rank.
    ///
    /// # Errors
    /// Words that are no combination of valid blocks.
    pub(super) fn read(words: &[u64], limits: &Limits) -> Result<Self, InvalidBlock> {
        let bits = limits.slots.len();
        let times = if limits.is_timed { 64 * bits } else { 0 };
        let expected = HEAD_WORDS + 3 * bits + 2 * times + limits.attached();
        if words.len() != expected {
            let found = words.len();
            return Err(InvalidBlock::Length { found, expected });
        }
        let (head, mut rest) = words.split_at(HEAD_WORDS);
        let mut part = |words: usize| {
            let (part, behind) = rest.split_at(words);
            rest = behind;
            part.to_vec()
        };
        let state = Self {
            any: Status::of_word(head[0]),
            all: Status::of_word(head[1]),
            settings: settings_of(head[2], &head[4..8]),
            settings_rank: head[3],
            hold: Hold {
                first_ns: head[8],
                from_ns: head[9],
                until_ns: head[10],
            },
            earliest_us: head[11],
            latest: Latest {
                at_us: head[12],
                rank: Reverse(head[13]),
            },
            common: part(bits),
            some: part(bits),
            joined: part(bits),
            first_us: part(times),
            last_us: part(times),
            attached: part(limits.attached()),
        };
        state.check(limits)?;
        Ok(state)
    }

    fn check(&self, limits: &Limits) -> Result<(), InvalidBlock> {
        for status in [self.any, self.all] {
            if !Status::KNOWN.has(status) {
                return Err(InvalidBlock::Status(status.0));
            }
        }
        if self.settings_rank >= limits.size as u64 {
            return Err(InvalidBlock::SettingsRank(self.settings_rank));
        }
        check_settings(&self.settings, limits.version)?;
        check_hold(&self.hold)?;
        check_latest(self.latest.at_us)?;
        let is_none = (self.earliest_us, self.latest) == (u64::MAX, Latest::default());
        let is_some = self.earliest_us <= self.latest.at_us;
        if !(is_none || is_some && self.latest.rank.0 < limits.size as u64) {
            return Err(InvalidBlock::Latest(self.earliest_us));
        }
        for bits in [&self.common, &self.some] {
            check_bits(bits, &limits.slots)?;
        }
        check_bits(&self.joined, &self.some)?;
        let times = self.first_us.iter().zip(&self.last_us);
        for (slot, (&first_us, &last_us)) in times.enumerate() {
            let is_absent = (first_us, last_us) == (u64::MAX, 0);
            if !is_absent && (first_us > last_us || last_us > READY_US_MAX) {
                let ready_us = first_us.max(last_us);
                return Err(InvalidBlock::ReadyTime { slot, ready_us });
            }
        }
        Ok(())
    }
}

/// State for the exchange with other hosts.
pub(super) struct OfHost {
    pub(super) state: Partial,
    pub(super) limits: Limits,
}

impl transport::Partial for OfHost {
    fn write(&self, to: &mut Vec<u64>) {
        self.state.write(to);
    }

    fn merge(&mut self, words: &[u64]) -> Result<(), String> {
        let other = Partial::read(words, &self.limits).map_err(|problem| problem.to_string())?;
        self.state.merge(&other);
        Ok(())
    }
}

fn fold(own: &mut [u64], other: &[u64], merge: impl Fn(u64, u64) -> u64) {
    debug_assert_eq!(own.len(), other.len());
    for (own, other) in own.iter_mut().zip(other) {
        *own = merge(*own, *other);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::negotiation::agreement::Agreement;
    use crate::negotiation::block::{FACT_WORDS, attached_words};
    use crate::negotiation::{Block, Last, Status};
    use crate::transport::Combine;

    const RANKS: usize = 8;
    const WORDS: usize = 2;

    fn blocks() -> impl Strategy<Value = Vec<Block>> {
        let bits = || any::<[u64; WORDS]>();
        let block = (0..8_u32, bits(), bits(), 0..3_u64, 0..4_u64, 0..9_u64);
        let block = block.prop_map(|(status, ready, or, version, cycle_ms, hold_ns)| {
            let mut block = Block::new(WORDS);
            block.status = Status(status & !Status::COMPARE_CLOCKS.0);
            block.attached = vec![ready[0]; attached_words(RANKS)];
            if or[0] % 2 == 0 {
                block.status = block.status.with(Status::ATTACHED);
            }
            block.settings.version = version;
            block.settings.value.cycle_time_ns = 1_000_000 * cycle_ms;
            block.hold.from_ns = hold_ns;
            block.latest_us = hold_ns / 2;
            for bit in 0..64 * WORDS {
                // Most bits are ready, so that some are common.
                if (ready[bit / 64] | or[bit / 64]) >> (bit % 64) & 1 == 1 {
                    block.set(bit, ready[bit / 64] >> (bit % 32) & 0xffff);
                }
            }
            block
        });
        prop::collection::vec(block, RANKS)
    }

    /// An agreement in a cycle with ready times, in which the ranks of `joined` have joined.
    fn agreement(joined: u8) -> Agreement {
        let mut agreed = Agreement::new(RANKS, true);
        let joined: Vec<u32> = (0..RANKS as u32)
            .filter(|rank| joined >> rank & 1 == 1)
            .collect();
        agreed.join(&joined, 0, joined.contains(&0)).expect("valid");
        let mut first = Block::new(WORDS);
        first.status = Status::TRACES;
        agreed.start(FACT_WORDS + WORDS);
        agreed.add(0, &first).expect("valid");
        assert!(agreed.prepare(&[u64::MAX; WORDS]));
        agreed
    }

    /// The combination of the blocks of `ranks`, in that order.
    fn combined(blocks: &[Block], joined: u8, ranks: &[usize]) -> Box<dyn transport::Partial> {
        let mut agreed = agreement(joined);
        agreed.start(FACT_WORDS + WORDS);
        for &rank in ranks {
            agreed.add(rank, &blocks[rank]).expect("valid");
        }
        agreed.partial()
    }

    fn words(partial: &dyn transport::Partial) -> Vec<u64> {
        let mut words = Vec::new();
        partial.write(&mut words);
        words
    }

    /// Merges the states of these ranks one after another.
    fn merged(blocks: &[Block], joined: u8, parts: &[&[usize]]) -> Vec<u64> {
        let mut own = combined(blocks, joined, parts[0]);
        for part in &parts[1..] {
            own.merge(&words(&*combined(blocks, joined, part)))
                .expect("valid");
        }
        words(&*own)
    }

    proptest! {
        #[test]
        fn merging_is_associative_commutative_and_idempotent(
            blocks in blocks(), joined in any::<u8>(), order in Just(Vec::from_iter(0..RANKS)).prop_shuffle(),
            (first, second) in (1..RANKS, 1..RANKS),
        ) {
            let in_order = Vec::from_iter(0..RANKS);
            let all = words(&*combined(&blocks, joined, &in_order));
            prop_assert_eq!(&words(&*combined(&blocks, joined, &order)), &all);
            // Two groups that overlap, in both orders, and one of them twice.
            let (begin, end) = (&order[..first.max(second)], &order[first.min(second)..]);
            for parts in [&[begin, end][..], &[end, begin], &[begin, end, begin, end]] {
                prop_assert_eq!(&merged(&blocks, joined, parts), &all);
            }
            let mut left = combined(&blocks, joined, &order[..1]);
            left.merge(&merged(&blocks, joined, &[&order[1..first + 1], &order[first..]])).expect("valid");
            prop_assert_eq!(&words(&*left), &all);
        }

        /// Definition of the combination, rank by rank.
        #[test]
        fn the_combination_is_its_definition(blocks in blocks(), joined in any::<u8>()) {
            let mut agreed = agreement(joined);
            agreed.start(FACT_WORDS + WORDS);
            for (rank, block) in blocks.iter().enumerate() {
                agreed.add(rank, block).expect("valid");
            }
            agreed.conclude();
            let has_joined = |rank: &usize| joined >> rank & 1 == 1;
            for slot in 0..64 * WORDS {
                let has = |rank: &usize| blocks[*rank].ready[slot / 64] >> (slot % 64) & 1 == 1;
                let mut active = (0..RANKS).filter(|rank| !has_joined(rank)).peekable();
                let is_held = (0..RANKS).any(|rank| has(&rank));
                let is_common = match active.peek() {
                    None => is_held,
                    Some(_) => active.all(|rank| has(&rank)),
                };
                prop_assert_eq!(agreed.common()[slot / 64] >> (slot % 64) & 1 == 1, is_common);
                prop_assert_eq!(agreed.is_held(slot), is_held);
                let times = (0..RANKS).filter(has).map(|rank| blocks[rank].ready_us[slot]);
                let range = times.clone().min().zip(times.max());
                prop_assert_eq!(agreed.ready_us(slot), range);
            }
            let is_same = blocks.iter().all(|block| block.ready == blocks[0].ready);
            let have = blocks.iter().all(|block| block.status.has(Status::ATTACHED));
            let is_attached = joined == 0 && is_same && have;
            let inputs: Vec<u64> = blocks.iter().flat_map(|block| block.attached.clone()).collect();
            prop_assert_eq!(agreed.attached(), is_attached.then_some(&inputs[..]));
            let submitted = blocks.iter().map(|block| block.latest_us).enumerate().filter(|(_, at_us)| *at_us > 0);
            let last = submitted.clone().map(|(rank, at_us)| (at_us, Reverse(rank))).max();
            let first = submitted.map(|(_, at_us)| at_us).min();
            let late = last.zip(first).map(|((last_us, rank), first_us)| Last { rank: rank.0, late_us: last_us - first_us });
            prop_assert_eq!(agreed.last(), late);
            let newest = blocks.iter().map(|block| block.settings.version).max();
            let first = blocks.iter().find(|block| Some(block.settings.version) == newest);
            prop_assert_eq!(Some(agreed.settings()), first.map(|block| block.settings));
        }

        #[test]
        fn words_of_any_peer_are_refused_or_give_a_valid_state(
            blocks in blocks(), joined in any::<u8>(), at in any::<prop::sample::Index>(),
            value in prop_oneof![any::<u64>(), 0..70_u64, Just(u64::MAX), (0..64_u32).prop_map(|bit| 1 << bit)],
            more in prop::collection::vec(any::<u64>(), 0..3), fewer in 0..3_usize,
        ) {
            let mut own = combined(&blocks, joined, &[0, 1, 2]);
            let mut peer = words(&*combined(&blocks, joined, &[3, 4]));
            let length = peer.len();
            let place = at.index(length);
            peer[place] = value;
            peer.truncate(length - fewer);
            peer.extend(more);
            let merged = own.merge(&peer);
            if peer.len() != length {
                let text = format!("a partial state of {} words, where {length} are expected", peer.len());
                prop_assert_eq!(merged, Err(text));
            } else if merged.is_ok() {
                let state = words(&*own);
                let mut other = combined(&blocks, joined, &[0]);
                prop_assert_eq!(other.merge(&state), Ok(()), "what was accepted is valid");
            }
        }
    }

    #[test]
    fn words_that_no_host_sends_are_refused() {
        let blocks = vec![Block::new(WORDS); RANKS];
        let good = words(&*combined(&blocks, 0, &[3]));
        let refused = |changes: &[(usize, u64)]| {
            let mut peer = good.clone();
            changes.iter().for_each(|&(at, value)| peer[at] = value);
            let mut own = combined(&blocks, 0, &[0]);
            own.merge(&peer).unwrap_err()
        };
        assert_eq!(refused(&[(0, 1 << 40)]), "status bits 0xffffffff");
        assert_eq!(refused(&[(1, 128)]), "status bits 0x80");
        assert_eq!(
            refused(&[(2, u64::MAX)]),
            format!("settings of version {}, after version 0", u64::MAX)
        );
        for rank in [RANKS as u64, u64::MAX] {
            assert_eq!(
                refused(&[(3, rank)]),
                format!("settings of rank {rank}, which does not exist")
            );
        }
        assert!(refused(&[(5, u64::MAX)]).starts_with("a cycle time of"));
        assert!(refused(&[(10, u64::MAX)]).starts_with("a hold of"));
        for (changes, named) in [
            (&[(12, u64::MAX)][..], u64::MAX),
            (&[(11, 6), (12, 5)], 6),
            (&[(11, 4), (12, 5), (13, RANKS as u64)], 4),
            (&[(13, 1)], u64::MAX),
        ] {
            let text = format!("a last tensor that was submitted at microsecond {named}");
            assert_eq!(refused(changes), text);
        }
        let joined = HEAD_WORDS + 2 * WORDS;
        assert_eq!(
            refused(&[(joined, 1 << 7)]),
            "slot 7 of the response cache is ready and holds no tensor"
        );
        let first_us = HEAD_WORDS + 3 * WORDS;
        let last_us = first_us + 64 * WORDS;
        for (first, last, named) in [(5, 4, 5), (5, u64::MAX, u64::MAX), (u64::MAX, 4, u64::MAX)] {
            assert_eq!(
                refused(&[(first_us + 9, first), (last_us + 9, last)]),
                format!("slot 9 of the response cache is ready since microsecond {named}")
            );
        }
    }
}
