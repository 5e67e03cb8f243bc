//! Block of a rank for one cycle: ready bits of cached tensors, status, settings and hold.

use smallvec::smallvec;

use crate::hold::Hold;
use crate::settings::{Settings, Versioned};
use crate::transport::{Contribution, RankBlock};

/// Status of a rank that the others must know, one bit for each fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status(pub u32);

impl Status {
    /// The rank has requests that are not in the response cache or, on rank 0, timeline commands:
    /// this cycle exchanges requests and responses.
    pub(crate) const UNCACHED: Self = Self(1);

    /// The rank has joined: it has no more data, and the others go on without it. Its ready words
    /// still have the tensors that it submitted before.
    pub(crate) const JOINED: Self = Self(2);

    /// Rank 0 starts a measurement of the clock offsets in this cycle.
    pub(crate) const COMPARE_CLOCKS: Self = Self(4);

    /// The rank has submitted all tensors of the step that it knows, and none of the next.
    pub(crate) const BETWEEN_STEPS: Self = Self(8);

    /// Every status.
    pub(super) const ALL: Self = Self(u32::MAX);

    /// Whether all bits of `other` are set.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All bits that have a meaning.
    const KNOWN: Self = Self::UNCACHED
        .with(Self::JOINED)
        .with(Self::COMPARE_CLOCKS)
        .with(Self::BETWEEN_STEPS);

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
    /// One bit for each slot of the response cache: the tensor is ready here. Every rank has the
    /// same number of words in the same cycle.
    pub ready: Vec<u64>,
    /// For each bit, the microsecond (on rank 0's clock) at which the tensor was submitted;
    /// unspecified where the bit is 0.
    pub ready_us: Vec<u64>,
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

    /// Returns the words that the transport sends: status, settings and hold, then the ready bits,
    /// with the ready times as details.
    pub(crate) fn contribution(&self) -> Contribution<'_> {
        Contribution {
            version: BLOCK_VERSION,
            head: smallvec![
                u64::from(self.status.0),
                self.settings.version,
                self.settings.fusion_threshold_bytes,
                self.settings.cycle_time_ns,
                self.settings.switches(),
                self.settings.gpu_fusion_threshold_bytes,
                self.hold.first_ns,
                self.hold.from_ns,
                self.hold.until_ns,
            ],
            bits: &self.ready,
            details: &self.ready_us,
        }
    }

    /// Returns the block that `contribution` was made of.
    #[cfg(test)]
    pub(crate) fn of(contribution: &Contribution<'_>) -> Self {
        let Facts {
            status,
            settings,
            hold,
        } = facts(&contribution.head);
        Self {
            status,
            settings,
            hold,
            ready: contribution.bits.to_vec(),
            ready_us: contribution.details.to_vec(),
        }
    }

    /// Clears `bit`.
    pub(crate) fn clear(&mut self, bit: usize) {
        self.ready[bit / 64] &= !(1 << (bit % 64));
    }
}

/// Latest ready time of a block: the last microsecond that [`Nanos`](crate::clock::Nanos) can hold.
pub(crate) const READY_US_MAX: u64 = u64::MAX / 1_000;

/// Reason why a block cannot come from a correct rank of this build.
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
    /// A ready time that is out of range.
    #[error("slot {slot} of the response cache is ready since microsecond {ready_us}")]
    ReadyTime {
        /// The cache slot.
        slot: usize,
        /// The ready time.
        ready_us: u64,
    },
}

/// Version of the format of [`Block::contribution`].
const BLOCK_VERSION: u64 = 2;

/// Number of words before the ready bits.
pub(super) const FACT_WORDS: usize = 9;

/// First words of a block.
pub(super) struct Facts {
    pub(super) status: Status,
    pub(super) settings: Versioned<Settings>,
    pub(super) hold: Hold,
}

/// Decodes the first words of a block.
pub(super) fn facts(words: &[u64]) -> Facts {
    let status = Status(u32::try_from(words[0]).unwrap_or(u32::MAX)); // an unknown status
    let settings = Settings {
        fusion_threshold_bytes: words[2],
        cycle_time_ns: words[3],
        gpu_fusion_threshold_bytes: words[5],
        ..Settings::default()
    };
    let settings = Versioned {
        version: words[1],
        value: settings.with_switches(words[4]),
    };
    let hold = Hold {
        first_ns: words[6],
        from_ns: words[7],
        until_ns: words[8],
    };
    Facts {
        status,
        settings,
        hold,
    }
}

/// Largest difference of a settings version from that of the last cycle: more changes than a job
/// makes, and far from overflow.
const VERSIONS_MAX: u64 = 1 << 32;

/// Checks the first words of set rank `rank`'s block. `version` is the version of the last cycle's
/// settings.
pub(super) fn check_facts(rank: usize, facts: &Facts, version: u64) -> Result<(), InvalidBlock> {
    let Facts {
        status,
        settings,
        hold,
    } = facts;
    let is_rank_0s = status.has(Status::COMPARE_CLOCKS);
    if !Status::KNOWN.has(*status) || (is_rank_0s && rank > 0) {
        return Err(InvalidBlock::Status(status.0));
    }
    if settings.version > version.saturating_add(VERSIONS_MAX) {
        return Err(InvalidBlock::Version {
            found: settings.version,
            version,
        });
    }
    if let Some(problem) = settings.problem() {
        return Err(InvalidBlock::Settings(problem));
    }
    hold.problem()
        .map_or(Ok(()), |problem| Err(InvalidBlock::Hold(problem)))
}

impl RankBlock for Block {
    fn read_words(&self, to: &mut [u64]) {
        self.contribution().read_words(to);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        self.contribution().read_details(bits, to);
    }
}
