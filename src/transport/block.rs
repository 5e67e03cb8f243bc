//! The block that a rank freezes for a cycle.

use crate::settings::Settings;

/// Facts about a rank that the others must know, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The rank has requests that are not in the response cache, or, on rank 0, commands: this cycle takes the slow path.
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

    /// All bits that have a meaning.
    const KNOWN: Self = Self::UNCACHED.with(Self::JOINED).with(Self::COMPARE_CLOCKS);

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

/// Latest ready time of a block: the last microsecond that [`Nanos`](crate::clock::Nanos) can hold.
pub const READY_US_MAX: u64 = u64::MAX / 1_000;

/// Why a block cannot come from a rank of this build that does what this one does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBlock {
    /// It is of another cycle, or has another number of ready words.
    #[error("a block of cycle {found_cycle} with {found_words} ready words, in cycle {cycle} with {words}")]
    Head {
        /// The cycle that it names.
        found_cycle: u64,
        /// The ready words that it names.
        found_words: u64,
        /// The cycle that runs.
        cycle: u64,
        /// The ready words of this rank.
        words: usize,
    },
    /// A status bit without a meaning, or one that only rank 0 sets.
    #[error("status bits {0:#x}")]
    Status(u32),
    /// Settings of a version far beyond that of the last cycle.
    #[error("settings of version {found}, after version {version}")]
    Version {
        /// The version.
        found: u64,
        /// That of the last cycle.
        version: u64,
    },
    /// Settings outside of their range.
    #[error("{0}")]
    Settings(String),
    /// A ready bit for a slot of the response cache that holds no tensor.
    #[error("slot {0} of the response cache is ready and holds no tensor")]
    EmptySlot(usize),
    /// A ready time that no clock shows.
    #[error("slot {slot} of the response cache is ready since microsecond {ready_us}")]
    ReadyTime {
        /// The slot.
        slot: usize,
        /// The time.
        ready_us: u64,
    },
}

/// Compares cycle and length in a block's head, of which `word` gives one word, with those of this rank.
pub(super) fn check_head(cycle: u64, words: usize, word: impl Fn(usize) -> u64) -> Result<(), InvalidBlock> {
    let (found_cycle, found_words) = (word(0), word(1));
    if (found_cycle, found_words) == (cycle, words as u64) {
        return Ok(());
    }
    Err(InvalidBlock::Head {
        found_cycle,
        found_words,
        cycle,
        words,
    })
}

/// Words of a block's [head](Block::head): cycle, number of ready words, status, four of settings.
pub(super) const HEAD_WORDS: usize = 7;

/// The status in a head of which `word` gives one word.
pub(super) fn head_status(word: impl Fn(usize) -> u64) -> Status {
    Status(u32::try_from(word(2)).unwrap_or(u32::MAX)) // which is not known
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

/// Versions by which settings may be ahead of those of the last cycle: more changes than a job makes, and far from overflow.
const VERSIONS_MAX: u64 = 1 << 32;

/// Checks the status and the settings of set rank `rank`'s block. `version`: that of the settings of the last cycle.
pub(super) fn check_facts(
    rank: usize,
    status: Status,
    settings: &Settings,
    version: u64,
) -> Result<(), InvalidBlock> {
    let is_rank_0s = status.has(Status::COMPARE_CLOCKS);
    if !Status::KNOWN.has(status) || (is_rank_0s && rank > 0) {
        return Err(InvalidBlock::Status(status.0));
    }
    if settings.version > version.saturating_add(VERSIONS_MAX) {
        return Err(InvalidBlock::Version {
            found: settings.version,
            version,
        });
    }
    settings
        .problem()
        .map_or(Ok(()), |problem| Err(InvalidBlock::Settings(problem)))
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
