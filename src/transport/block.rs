//! The block that a rank freezes for a cycle.

use crate::settings::Settings;

/// Facts about a rank that the others must know, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The rank has requests that are not in the response cache, or, on rank 0, orders: this cycle takes the slow path.
    pub const UNCACHED: Self = Self(1);

    /// The rank has joined: it has no more data, and the others go on without it. What it submitted before is in
    /// its ready words as ever.
    pub const JOINED: Self = Self(2);

    /// Rank 0 has the ranks compare their clocks in this cycle.
    pub const COMPARE_CLOCKS: Self = Self(4);

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
    /// For each bit, the microsecond (on rank 0's clock) at which the tensor was submitted; meaningless where the bit is 0.
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

    /// What travels before the ready words.
    pub(super) fn head(&self, cycle: u64) -> [u64; HEAD_WORDS] {
        let Settings {
            version,
            fusion_threshold_bytes,
            cycle_time_ns,
            ..
        } = self.settings;
        [
            cycle,
            self.ready.len() as u64,
            u64::from(self.status.0),
            version,
            fusion_threshold_bytes,
            cycle_time_ns,
            self.settings.switches(),
        ]
    }

    /// Takes `bit` back.
    pub fn clear(&mut self, bit: usize) {
        self.ready[bit / 64] &= !(1 << (bit % 64));
    }
}

/// Words of a block's [head](Block::head): cycle, number of ready words, status, four of settings.
pub(super) const HEAD_WORDS: usize = 7;

/// The status in a head of which `word` gives one word.
pub(super) fn head_status(word: impl Fn(usize) -> u64) -> Status {
    Status(word(2) as u32)
}

/// The settings in it.
pub(super) fn head_settings(word: impl Fn(usize) -> u64) -> Settings {
    Settings {
        version: word(3),
        fusion_threshold_bytes: word(4),
        cycle_time_ns: word(5),
        ..Settings::default()
    }
    .with_switches(word(6))
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
