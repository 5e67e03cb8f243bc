//! The block of words that every rank brings to a cycle, and the function that combines the blocks
//! of all ranks.
//!
//! The transport moves words and compares cycle, version and length. What the words mean is up to
//! the caller, who also supplies the function: see [`Combine`].

use smallvec::SmallVec;

/// Words of [`Contribution::head`], at most.
pub(crate) const BLOCK_HEAD_WORDS_MAX: usize = 8;

/// The block that this rank brings to a cycle. In one cycle the blocks of all ranks have the same
/// version and size.
#[derive(Clone, Debug)]
pub(crate) struct Contribution<'a> {
    /// Version of the block's format.
    pub version: u64,
    /// The first words, at most [`BLOCK_HEAD_WORDS_MAX`].
    pub head: SmallVec<[u64; BLOCK_HEAD_WORDS_MAX]>,
    /// The words after them. Each bit says whether the detail of the same index is present.
    pub bits: &'a [u64],
    /// Details, one word for each bit. They are moved where they are present and where a rank wants
    /// to read them: rank 0 can always.
    pub details: &'a [u64],
}

impl Contribution<'_> {
    /// Words that every rank reads: the head and the bits.
    pub(crate) fn words(&self) -> usize {
        self.head.len() + self.bits.len()
    }
}

/// The block of one rank, for [`Combine`]. Another process may still write to it: each read may
/// give another value, so values are read once, then checked, then used.
pub(crate) trait RankBlock {
    /// Reads the head and the bits. The length of `to` is the number of both.
    fn read_words(&self, to: &mut [u64]);

    /// Reads the details whose bit in `bits` is set, to the same index of `to`. They are 0 on a
    /// rank that this transport does not move them to.
    fn read_details(&self, bits: &[u64], to: &mut [u64]);
}

impl RankBlock for Contribution<'_> {
    fn read_words(&self, to: &mut [u64]) {
        let (head, bits) = to.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        bits.copy_from_slice(self.bits);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| to[index] = self.details[index]);
    }
}

/// Combines the blocks of all ranks of a cycle. Every rank combines the same blocks, in rank order,
/// and comes to the same result.
///
/// The result for the words must not depend on how the ranks are split into consecutive groups that
/// are combined first (it is associative). An implementation may also keep a view of each rank,
/// such as its details.
pub(crate) trait Combine {
    /// Starts with no block. The blocks to come have `words` words: the head and the bits.
    fn start(&mut self, words: usize);

    /// Adds the block of the next rank.
    ///
    /// # Errors
    /// Why no rank that works can have sent this block. The result is then of no use.
    fn add(&mut self, block: &dyn RankBlock) -> Result<(), String>;
}

/// Calls `visit` with the index of each bit that is set.
pub(super) fn each_bit(bits: &[u64], mut visit: impl FnMut(usize)) {
    for (index, &word) in bits.iter().enumerate() {
        let mut left = word;
        while left != 0 {
            visit(index * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

/// Words in front of a block where it is moved: cycle, version, number of words.
pub(super) const PREFIX_WORDS: usize = 3;

/// What stands in front of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    cycle: u64,
    version: u64,
    words: u64,
}

impl Prefix {
    pub(super) fn new(cycle: u64, block: &Contribution<'_>) -> Self {
        Self {
            cycle,
            version: block.version,
            words: block.words() as u64,
        }
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

    /// Compares what a peer has sent with what this rank has sent itself.
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
        write!(f, "a block of cycle {cycle}, version {version}, {words} words")
    }
}
