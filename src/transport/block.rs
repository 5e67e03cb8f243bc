//! The block that a rank freezes for a cycle, and what the ranks agree on by intersecting all of them.

use crate::settings::Settings;

/// Facts about a rank that the others must know, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The rank has requests that are not in the response cache: this cycle takes the slow path.
    pub const UNCACHED: Self = Self(1);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What one rank brings to one cycle.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Facts about the rank.
    pub status: Status,
    /// The newest settings this rank knows.
    pub settings: Settings,
    /// One bit for each slot of the response cache: the tensor is ready here. Every rank has the same number of
    /// words in the same cycle.
    pub ready: Vec<u64>,
    /// For each bit, the microsecond (job clock) at which the tensor was submitted; meaningless where the bit is 0.
    pub ready_us: Vec<u64>,
}

impl Block {
    /// An empty block for `words` 64-bit words.
    pub fn new(words: usize) -> Self {
        Self {
            ready: vec![0; words],
            ready_us: vec![0; words * 64],
            ..Self::default()
        }
    }

    /// Marks `bit` ready since `at_us`.
    pub fn set(&mut self, bit: usize, at_us: u64) {
        self.ready[bit / 64] |= 1 << (bit % 64);
        self.ready_us[bit] = at_us;
    }

    /// Takes `bit` back.
    pub fn clear(&mut self, bit: usize) {
        self.ready[bit / 64] &= !(1 << (bit % 64));
    }
}

/// One rank's block as the transport shows it while folding: words and times are read on demand, since they may
/// lie in another process's memory.
pub trait BlockView {
    /// The rank's facts.
    fn status(&self) -> Status;
    /// The newest settings the rank knows.
    fn settings(&self) -> Settings;
    /// Word `index` of the ready bits.
    fn ready(&self, index: usize) -> u64;
    /// Time of bit `bit`, microseconds.
    fn ready_us(&self, bit: usize) -> u64;
}

impl BlockView for Block {
    fn status(&self) -> Status {
        self.status
    }
    fn settings(&self) -> Settings {
        self.settings
    }
    fn ready(&self, index: usize) -> u64 {
        self.ready[index]
    }
    fn ready_us(&self, bit: usize) -> u64 {
        self.ready_us[bit]
    }
}

/// What all ranks know alike once every block of a cycle is in. A pure fold over the blocks in rank order, so
/// every rank computes the same.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Bits ready on every rank.
    pub common: Vec<u64>,
    /// Facts that hold on at least one rank.
    pub any: Status,
    /// The newest settings that any rank brought, the first rank's among equals. Every rank sees the same, values
    /// included, so all switch to them in this cycle.
    pub settings: Settings,
    /// Ready words of every rank (rank-major); filled only if [`details`](Self::details) asks for them.
    pub ready: Vec<u64>,
    /// Ready times in microseconds of every rank (rank-major, 64 per word), where the bit is set; likewise.
    pub ready_us: Vec<u64>,
    /// Whether to keep each rank's words and times: the timeline, the stall inspector and the analysis want them.
    pub details: bool,
    ranks: usize,
}

impl Agreement {
    /// An empty agreement; `details` as in the field.
    pub fn new(details: bool) -> Self {
        Self {
            details,
            ..Self::default()
        }
    }

    /// Starts a fold over blocks of `words` words.
    pub fn begin(&mut self, words: usize) {
        self.common.clear();
        self.common.resize(words, u64::MAX);
        self.any = Status::default();
        self.ready.clear();
        self.ready_us.clear();
        self.ranks = 0;
    }

    /// Folds in the next rank's block.
    pub fn add(&mut self, block: &impl BlockView) {
        let words = self.common.len();
        for (index, common) in self.common.iter_mut().enumerate() {
            *common &= block.ready(index);
        }
        self.any = self.any.with(block.status());
        let settings = block.settings();
        if self.ranks == 0 || settings.version > self.settings.version {
            self.settings = settings;
        }
        if self.details {
            let base = self.ready_us.len();
            self.ready_us.resize(base + words * 64, 0);
            for index in 0..words {
                let mut word = block.ready(index);
                self.ready.push(word);
                while word != 0 {
                    let bit = index * 64 + word.trailing_zeros() as usize;
                    self.ready_us[base + bit] = block.ready_us(bit);
                    word &= word - 1;
                }
            }
        }
        self.ranks += 1;
    }

    /// Number of blocks folded in.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// With details: whether `bit` was ready on `rank`, and since when (microseconds).
    pub fn ready_on(&self, rank: usize, bit: usize) -> Option<u64> {
        let words = self.common.len();
        let word = *self.ready.get(rank * words + bit / 64)?;
        (word >> (bit % 64) & 1 == 1).then(|| self.ready_us[rank * words * 64 + bit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(version: u64) -> Settings {
        Settings {
            version,
            ..Settings::default()
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
        agreed.add(&a);
        agreed.add(&b);
        assert_eq!(agreed.common, [0, 1 << 6]);
        assert!(agreed.any.has(Status::UNCACHED));
        assert_eq!(agreed.settings.version, 4);
        assert_eq!((agreed.ready_on(0, 3), agreed.ready_on(1, 3)), (Some(10), None));
        assert_eq!(agreed.ready_on(1, 70), Some(20));
    }
}
