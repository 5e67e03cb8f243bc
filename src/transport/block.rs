//! Block of words that every rank publishes in a cycle, and the traits that combine the blocks of
//! all ranks.
//!
//! The transport sends words and compares cycle, version and length. The caller defines the meaning
//! of the words, and provides the implementations of [`Combine`] and [`Partial`].

use smallvec::SmallVec;

/// Most words of [`Contribution::head`].
pub(crate) const BLOCK_HEAD_WORDS_MAX: usize = 12;
/// Most words of [`Contribution::attached`].
pub(crate) const ATTACHED_WORDS_MAX: usize = 8;

/// Block of this rank for one cycle. In a cycle the blocks of all ranks have the same version and
/// size.
#[derive(Clone, Debug)]
pub(crate) struct Contribution<'a> {
    /// Version of the block's format.
    pub version: u64,
    /// The first words, at most [`BLOCK_HEAD_WORDS_MAX`].
    pub head: SmallVec<[u64; BLOCK_HEAD_WORDS_MAX]>,
    /// Words after the head. Each bit tells whether the detail with the same index is present.
    pub bits: &'a [u64],
    /// Words after the bits, at most [`ATTACHED_WORDS_MAX`]: data that is passed on as it is.
    pub attached: &'a [u64],
    /// Details, one word for each bit; empty in a cycle without details.
    pub details: &'a [u64],
}

impl Contribution<'_> {
    /// Number of words of the block: the head, the bits, the attached words and the details.
    pub(crate) fn words(&self) -> usize {
        self.fact_words() + self.attached.len() + self.details.len()
    }

    /// Number of words that [`RankBlock::read_words`] reads: the head and the bits.
    pub(crate) fn fact_words(&self) -> usize {
        self.head.len() + self.bits.len()
    }
}

/// Block of one rank, for [`Combine`]. Another process may still write to it: each read may return
/// another value, so values are read once, then checked, then used.
pub(crate) trait RankBlock {
    /// Reads the head and the bits. `to` has exactly their number of words.
    fn read_words(&self, to: &mut [u64]);

    /// Reads the attached words. `to` has exactly their number of words.
    fn read_attached(&self, to: &mut [u64]);

    /// Reads the details whose bit in `bits` is set, to the same index of `to`. Not called in a
    /// cycle without details.
    fn read_details(&self, bits: &[u64], to: &mut [u64]);
}

impl RankBlock for Contribution<'_> {
    fn read_words(&self, to: &mut [u64]) {
        let (head, bits) = to.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        bits.copy_from_slice(self.bits);
    }

    fn read_attached(&self, to: &mut [u64]) {
        to.copy_from_slice(self.attached);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| to[index] = self.details[index]);
    }
}

/// Combines the blocks of all ranks in a cycle. Every rank gets the same result.
///
/// A transport adds the blocks of all ranks; or those of the ranks of one host, merges their
/// [`Partial`] state with those of the other hosts, and adopts the result.
pub(crate) trait Combine {
    /// Starts without a block. The heads and bits of the following blocks have `words` words
    /// together.
    fn start(&mut self, words: usize);

    /// Adds the block of set rank `rank`.
    ///
    /// # Errors
    /// Reason why no correct rank can have sent this block. The result is then not usable.
    fn add(&mut self, rank: usize, block: &dyn RankBlock) -> Result<(), String>;

    /// Returns the combination of the blocks that were added.
    fn partial(&mut self) -> Box<dyn Partial>;

    /// Takes `words`, the combination of all ranks' blocks, as the result. `own` is the block that
    /// this rank, number `rank`, has published.
    ///
    /// # Errors
    /// Reason why the words cannot be the combination of valid blocks, including `own`.
    fn adopt(&mut self, words: &[u64], rank: usize, own: &dyn RankBlock) -> Result<(), String>;
}

/// Combination of the blocks of some ranks.
///
/// Merging is associative, commutative and idempotent: the result depends only on which ranks are
/// in it, and not on how often.
pub(crate) trait Partial: Send {
    /// Appends its words. Their number is the same on all ranks in a cycle.
    fn write(&self, to: &mut Vec<u64>);

    /// Merges the words of another partial state into this one.
    ///
    /// # Errors
    /// Reason why the words cannot be a combination of valid blocks.
    fn merge(&mut self, words: &[u64]) -> Result<(), String>;
}

/// Iterates over the indices of the bits that are set, ascending.
pub(crate) fn bit_indices(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(index, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| index * 64 + left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            bit
        })
    })
}

/// Calls `visit` with the index of each bit that is set.
pub(crate) fn each_bit(bits: &[u64], visit: impl FnMut(usize)) {
    bit_indices(bits).for_each(visit);
}

/// Number of words before a block or partial state in a message: cycle, version, number of words.
pub(super) const PREFIX_WORDS: usize = 3;

/// Words before a block or partial state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    cycle: u64,
    version: u64,
    words: u64,
}

impl Prefix {
    pub(crate) fn new(cycle: u64, block: &Contribution<'_>) -> Self {
        Self {
            cycle,
            version: block.version,
            words: block.words() as u64,
        }
    }

    /// Returns the prefix of `words` words in the same cycle and version.
    pub(super) fn of_length(self, words: usize) -> Self {
        Self {
            words: words as u64,
            ..self
        }
    }

    /// Cycle of the block.
    #[cfg(test)]
    pub(super) fn cycle(self) -> u64 {
        self.cycle
    }

    pub(super) fn to_words(self) -> [u64; PREFIX_WORDS] {
        [self.cycle, self.version, self.words]
    }

    pub(super) fn from_words([cycle, version, words]: [u64; PREFIX_WORDS]) -> Self {
        Self {
            cycle,
            version,
            words,
        }
    }

    /// Compares the prefix of a peer's block with that of this rank's own.
    ///
    /// # Errors
    /// A block of another cycle, version or length.
    pub(super) fn check(self, own: Self) -> Result<(), String> {
        if self == own {
            return Ok(());
        }
        Err(format!("{self}, where this rank has {own}"))
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            cycle,
            version,
            words,
        } = self;
        write!(
            f,
            "a block of cycle {cycle}, version {version}, {words} words"
        )
    }
}
