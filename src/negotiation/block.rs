//! Block of a rank for one cycle: ready bits of cached tensors, status, settings, hold, the time of
//! its last submission, and attached inputs.

use smallvec::smallvec;

use crate::hold::Hold;
use crate::settings::{Settings, Versioned};
use crate::transport::{ATTACHED_WORDS_MAX, Contribution, RankBlock};

/// Status of a rank that the others must know, one bit for each fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status(pub u32);

impl Status {
    /// The rank has requests that are not in the response cache or, on rank 0, commands or the end
    /// of a join: this cycle exchanges requests and responses.
    pub(crate) const UNCACHED: Self = Self(1);

    /// Rank 0 starts a measurement of the clock offsets in this cycle.
    pub(crate) const COMPARE_CLOCKS: Self = Self(2);

    /// The rank has submitted all tensors of the step that it knows, and none of the next.
    pub(crate) const BETWEEN_STEPS: Self = Self(4);

    /// Rank 0 records: it needs each rank's ready times of this cycle's common tensors.
    pub(crate) const RECORDS: Self = Self(8);

    /// Rank 0 traces: from the next cycle on it needs the first and the last ready time of each
    /// tensor.
    pub(crate) const TRACES: Self = Self(16);

    /// Rank 0 reports stalled tensors: it needs the ranks that have them.
    pub(crate) const STALLED: Self = Self(32);

    /// The block has the inputs of all tensors that are ready on the rank.
    pub(crate) const ATTACHED: Self = Self(64);

    /// Facts that need details of the cycle.
    pub(super) const WANT_DETAILS: Self = Self::RECORDS.with(Self::STALLED);

    /// Facts that only rank 0 publishes.
    const OF_RANK_0: Self = Self::COMPARE_CLOCKS
        .with(Self::RECORDS)
        .with(Self::TRACES)
        .with(Self::STALLED);

    /// All bits that have a meaning.
    pub(super) const KNOWN: Self = Self::UNCACHED
        .with(Self::BETWEEN_STEPS)
        .with(Self::ATTACHED)
        .with(Self::OF_RANK_0);

    /// Decodes a word; an impossible one becomes an unknown status.
    pub(super) fn of_word(word: u64) -> Self {
        Self(u32::try_from(word).unwrap_or(u32::MAX))
    }

    /// Whether all bits of `other` are set.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits that both sets have.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the union of both sets of bits.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Data that one rank publishes for one cycle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Status of the rank.
    pub status: Status,
    /// Newest settings that this rank knows.
    pub settings: Versioned<Settings>,
    /// Delay of cycles that this rank computes from its last step.
    pub hold: Hold,
    /// When this rank submitted the last of its tensors that are not executed, microseconds on rank
    /// 0's clock; 0 if there is none.
    pub latest_us: u64,
    /// One bit for each slot of the response cache: the tensor is ready here. Every rank has the
    /// same number of words in the same cycle.
    pub ready: Vec<u64>,
    /// For each bit, the microsecond (on rank 0's clock) at which the tensor was submitted;
    /// unspecified where the bit is 0.
    pub ready_us: Vec<u64>,
    /// Inputs of the tensors that are ready here, if [`Status::ATTACHED`] is set; unspecified
    /// otherwise. Every rank has the same number of words, [`attached_words`].
    pub attached: Vec<u64>,
}

/// Most attached words of all ranks together: their messages between hosts stay short.
const ATTACHED_WORDS_OF_ALL: usize = 64;

/// Attached words of each of `size` ranks.
pub(crate) fn attached_words(size: usize) -> usize {
    match size {
        1 => 0, // nothing to exchange
        _ => (ATTACHED_WORDS_OF_ALL / size).min(ATTACHED_WORDS_MAX),
    }
}

impl Block {
    /// Makes an empty block for `words` 64-bit words.
    pub(crate) fn new(words: usize) -> Self {
        Self {
            ready: vec![0; words],
            ready_us: vec![0; words * 64],
            ..Self::default()
        }
    }

    /// Marks `bit` ready since `at_us`.
    pub(crate) fn set(&mut self, bit: usize, at_us: u64) {
        self.ready[bit / 64] |= 1 << (bit % 64);
        self.ready_us[bit] = at_us;
    }

    /// Returns the words that the transport sends: status, settings, hold and the last submission,
    /// then the ready bits and the attached words; if `is_timed`, with the ready times as details.
    pub(crate) fn contribution(&self, is_timed: bool) -> Contribution<'_> {
        let mut head = smallvec![u64::from(self.status.0), self.settings.version];
        head.extend(settings_words(&self.settings));
        head.extend([self.hold.first_ns, self.hold.from_ns, self.hold.until_ns]);
        head.push(self.latest_us);
        Contribution {
            version: BLOCK_VERSION,
            head,
            bits: &self.ready,
            attached: &self.attached,
            details: if is_timed { &self.ready_us } else { &[] },
        }
    }

    /// Returns the block that `contribution` was made of.
    #[cfg(test)]
    pub(crate) fn of(contribution: &Contribution<'_>) -> Self {
        let Facts {
            status,
            settings,
            hold,
            latest_us,
        } = facts(&contribution.head);
        Self {
            status,
            settings,
            hold,
            latest_us,
            ready: contribution.bits.to_vec(),
            attached: contribution.attached.to_vec(),
            ready_us: match contribution.details {
                [] => vec![0; 64 * contribution.bits.len()],
                details => details.to_vec(),
            },
        }
    }

    /// Clears `bit`.
    pub(crate) fn clear(&mut self, bit: usize) {
        self.ready[bit / 64] &= !(1 << (bit % 64));
    }
}

/// Latest ready time of a block: the last microsecond that [`Nanos`](crate::clock::Nanos) can hold.
pub(crate) const READY_US_MAX: u64 = u64::MAX / 1_000;

/// Reason why a block or partial state cannot come from a correct rank of this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidBlock {
    /// A status bit without a meaning, or one that only rank 0 sets.
    #[error("status bits {0:#x}")]
    Status(u32),
    /// Settings of a version far beyond the version of the last cycle.
    #[error("settings of version {found}, after version {version}")]
    Version {
        /// Version in the block.
        found: u64,
        /// Version in the last cycle.
        version: u64,
    },
    /// Settings outside of their range.
    #[error("{0}")]
    Settings(String),
    /// A hold that no rank computes.
    #[error("{0}")]
    Hold(String),
    /// A ready bit for a slot of the response cache that holds no tensor.
    #[error("slot {0} of the response cache is ready and holds no tensor")]
    EmptySlot(usize),
    /// A partial state of another length.
    #[error("a partial state of {found} words, where {expected} are expected")]
    Length {
        /// Its words.
        found: usize,
        /// Words of each state in this cycle.
        expected: usize,
    },
    /// A partial state whose settings come from no rank.
    #[error("settings of rank {0}, which does not exist")]
    SettingsRank(u64),
    /// A combination that does not fit this rank's own block.
    #[error("a combination of all blocks that does not fit this rank's, in slot {0}")]
    OwnBits(usize),
    /// A combination whose facts do not fit those of this rank's own block.
    #[error("a combination of all blocks that does not fit this rank's status bits {0:#x}")]
    OwnStatus(u32),
    /// A combination with other attached words than those of this rank's own block.
    #[error("a combination of all blocks with other inputs of this rank than it attached")]
    OwnInputs,
    /// A time of the last submission that is out of range.
    #[error("a last tensor that was submitted at microsecond {0}")]
    Latest(u64),
    /// A ready time that is out of range.
    #[error("slot {slot} of the response cache is ready since microsecond {ready_us}")]
    ReadyTime {
        /// The cache slot.
        slot: usize,
        /// The ready time.
        ready_us: u64,
    },
}

/// Version of the format of [`Block::contribution`] and of partial states.
const BLOCK_VERSION: u64 = 4;

/// Number of words before the ready bits.
pub(super) const FACT_WORDS: usize = 10;

/// First words of a block.
pub(super) struct Facts {
    pub(super) status: Status,
    pub(super) settings: Versioned<Settings>,
    pub(super) hold: Hold,
    pub(super) latest_us: u64,
}

/// Decodes the first words of a block.
pub(super) fn facts(words: &[u64]) -> Facts {
    Facts {
        status: Status::of_word(words[0]),
        settings: settings_of(words[1], &words[2..6]),
        hold: Hold {
            first_ns: words[6],
            from_ns: words[7],
            until_ns: words[8],
        },
        latest_us: words[9],
    }
}

/// Number of [`settings_words`].
pub(super) const SETTINGS_WORDS: usize = 4;

/// Encodes settings, without their version.
pub(super) fn settings_words(settings: &Settings) -> [u64; SETTINGS_WORDS] {
    [
        settings.fusion_threshold_bytes,
        settings.cycle_time_ns,
        settings.switches(),
        settings.gpu_fusion_threshold_bytes,
    ]
}

/// Decodes [`settings_words`].
pub(super) fn settings_of(version: u64, words: &[u64]) -> Versioned<Settings> {
    let settings = Settings {
        fusion_threshold_bytes: words[0],
        cycle_time_ns: words[1],
        gpu_fusion_threshold_bytes: words[3],
        ..Settings::default()
    };
    Versioned {
        version,
        value: settings.with_switches(words[2]),
    }
}

/// Largest difference of a settings version from that of the last cycle: more changes than a job
/// makes, and far from overflow.
const VERSIONS_MAX: u64 = 1 << 32;

impl Facts {
    /// Checks the facts of set rank `rank`. `version` is the version of the last cycle's settings.
    pub(super) fn check(&self, rank: usize, version: u64) -> Result<(), InvalidBlock> {
        let is_rank_0s = self.status.0 & Status::OF_RANK_0.0 != 0;
        if !Status::KNOWN.has(self.status) || (is_rank_0s && rank > 0) {
            return Err(InvalidBlock::Status(self.status.0));
        }
        check_settings(&self.settings, version)?;
        check_hold(&self.hold)?;
        check_latest(self.latest_us)
    }
}

/// Checks a time at which a rank submitted its last tensor.
pub(super) fn check_latest(latest_us: u64) -> Result<(), InvalidBlock> {
    if latest_us <= READY_US_MAX {
        return Ok(());
    }
    Err(InvalidBlock::Latest(latest_us))
}

/// Checks settings; `version` is the version of the last cycle's.
pub(super) fn check_settings(
    settings: &Versioned<Settings>,
    version: u64,
) -> Result<(), InvalidBlock> {
    if settings.version > version.saturating_add(VERSIONS_MAX) {
        return Err(InvalidBlock::Version {
            found: settings.version,
            version,
        });
    }
    let problem = settings.problem().map(InvalidBlock::Settings);
    problem.map_or(Ok(()), Err)
}

pub(super) fn check_hold(hold: &Hold) -> Result<(), InvalidBlock> {
    let problem = hold.problem().map(InvalidBlock::Hold);
    problem.map_or(Ok(()), Err)
}

/// Checks that no bit is set for an empty slot.
pub(super) fn check_bits(bits: &[u64], slots: &[u64]) -> Result<(), InvalidBlock> {
    first_beyond(bits, slots).map_or(Ok(()), |slot| Err(InvalidBlock::EmptySlot(slot)))
}

/// Returns the first bit of `bits` that `slots` does not have.
pub(super) fn first_beyond(bits: &[u64], slots: &[u64]) -> Option<usize> {
    let words = bits.iter().zip(slots).enumerate();
    let mut beyond = words.filter_map(|(index, (bits, slots))| {
        let beyond = bits & !slots;
        (beyond != 0).then(|| index * 64 + beyond.trailing_zeros() as usize)
    });
    beyond.next()
}

impl RankBlock for Block {
    fn read_words(&self, to: &mut [u64]) {
        self.contribution(true).read_words(to);
    }

    fn read_attached(&self, to: &mut [u64]) {
        self.contribution(true).read_attached(to);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        self.contribution(true).read_details(bits, to);
    }
}
