//! Layout of the memory that the ranks of a host share.
//!
//! ```text
//! life     magic, layout hash, ranks │ poison │ per rank: presence, reason
//! cycle    rung │ per rank: bell │ sequence counters │ per rank: two slots
//!          │ mail counters │ per rank: chunk
//! data     memory of the collective, page-aligned
//! ```
//!
//! Offsets follow from three numbers and from the constants below; at the rendezvous all ranks have
//! compared these numbers and the hash of these constants. Data that one rank writes often has
//! cache lines of its own. Every process set has a region of its own: ranks here are set ranks.
//!
//! A slot has room for the longest possible block. A cycle accesses only the words in use, because
//! they lie at the slot's beginning. The setup does not access the slots: a region is zero from the
//! start.

use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{Area, Counter, View};

use super::doorbell::Bell;
use super::mailbox::CHUNK_WORDS;
use super::peers::STATE_WORDS;
use super::snapshot::slot_words;

/// Two cache lines: the neighbouring-line prefetcher must not couple two ranks.
const LINE_BYTES: usize = 128;
/// The data area starts on a page.
const PAGE_BYTES: usize = 4096;
/// First word of a region.
const MAGIC: u64 = u64::from_le_bytes(*b"ronde-01");
/// Bytes before the ranks' states: a line of constants, a line for the poison word.
const HEADER_BYTES: usize = 2 * LINE_BYTES;
/// Index of the poison word.
const POISON_WORD: usize = LINE_BYTES / 8;

/// Version of the handshake and of the protocols in shared memory, for changes that the sizes below
/// do not show.
const PROTOCOL: u64 = 4;

/// Hash of all values that two ranks must have in common to share a region.
pub(super) const HASH: u64 = {
    let parts = [
        PROTOCOL,
        size_of::<Counter>() as u64,
        size_of::<Bell>() as u64,
        STATE_WORDS as u64,
        CHUNK_WORDS as u64,
        slot_words(1) as u64,
        slot_words(2) as u64,
    ];
    let mut hash = FNV_OFFSET;
    let mut index = 0;
    while index < parts.len() {
        hash = fnv1a(hash, &parts[index].to_le_bytes());
        index += 1;
    }
    hash
};

/// Start of an FNV-1a hash.
pub(super) const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, 64 bits (Fowler, Noll, Vo): the same in every build, unlike the standard library's
/// hasher.
pub(super) const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x100_0000_01b3);
        index += 1;
    }
    hash
}

/// The three numbers that determine a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of ranks.
    pub(super) size: usize,
    /// Most words of ready bits in a block.
    pub(super) cache_words: usize,
    /// Number of bytes for the collective.
    pub(super) data_bytes: usize,
}

impl Layout {
    /// Length of the region, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.data_offset() + self.data_bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Layout of the part that the cycle uses.
    pub(super) fn set(&self) -> SetLayout {
        SetLayout {
            size: self.size,
            cache_words: self.cache_words,
        }
    }

    fn set_offset(&self) -> usize {
        (HEADER_BYTES + self.size * STATE_WORDS * 8).next_multiple_of(LINE_BYTES)
    }

    fn data_offset(&self) -> usize {
        (self.set_offset() + self.set().bytes()).next_multiple_of(PAGE_BYTES)
    }

    /// Writes the layout into a new region. Called by rank 0, before another rank maps the region.
    pub(super) fn stamp(&self, region: &Area) {
        let header = region.view::<AtomicU64>(3);
        for (word, value) in header.iter().zip([MAGIC, HASH, self.size as u64]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Checks that rank 0 has stamped `region`, which has the length of this layout, with this
    /// layout. Returns the difference as an error.
    pub(super) fn check(&self, region: &Area) -> Result<(), String> {
        let header = region.view::<AtomicU64>(3);
        let found = [0, 1, 2].map(|word| header[word].load(Ordering::Relaxed));
        let expected = [MAGIC, HASH, self.size as u64];
        match found == expected {
            true => Ok(()),
            false => Err(format!(
                "it begins with the words {found:x?} instead of {expected:x?}"
            )),
        }
    }

    /// Returns the views of a region with this layout.
    ///
    /// # Panics
    /// If the region is shorter than the layout: both are this rank's own.
    pub(super) fn split(&self, region: &Area) -> Parts {
        Parts {
            poison: region.part(POISON_WORD * 8, 8).view(1),
            states: region
                .part(HEADER_BYTES, self.size * STATE_WORDS * 8)
                .view(self.size * STATE_WORDS),
            set: self
                .set()
                .split(&region.part(self.set_offset(), self.set().bytes())),
            data: region.part(self.data_offset(), self.data_bytes),
        }
    }
}

/// Views of a region.
pub(super) struct Parts {
    /// One word: the rank that ended the region for all, and the reason.
    pub(super) poison: View<AtomicU64>,
    /// [`STATE_WORDS`] words per rank.
    pub(super) states: View<AtomicU64>,
    /// Part of the cycle.
    pub(super) set: SetParts,
    /// Part of the collective.
    pub(super) data: Area,
}

/// The numbers that determine the part of one process set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetLayout {
    /// Number of members.
    pub(super) size: usize,
    /// Most words of ready bits in a block.
    pub(super) cache_words: usize,
}

impl SetLayout {
    /// Number of words of one slot, padded to whole lines.
    pub(super) fn slot_words(&self) -> usize {
        slot_words(self.cache_words).next_multiple_of(LINE_BYTES / 8)
    }

    /// Lengths of the set's pieces, in order, bytes; each is a multiple of [`LINE_BYTES`].
    fn pieces(&self) -> [usize; 7] {
        let counters = self.size * size_of::<Counter>();
        [
            LINE_BYTES,
            self.size * size_of::<Bell>(),
            counters,
            self.size * 2 * self.slot_words() * 8,
            counters,
            2 * counters,
            self.size * CHUNK_WORDS * 8,
        ]
    }

    /// Length of the set's part, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.pieces().iter().sum()
    }

    fn split(&self, area: &Area) -> SetParts {
        let mut offset = 0;
        let [rung, bells, sequence, slots, sent, taken, chunks] = self.pieces().map(|bytes| {
            let piece = area.part(offset, bytes);
            offset += bytes;
            piece
        });
        SetParts {
            rung: rung.view(1),
            bells: bells.view(self.size),
            sequence: sequence.view(self.size),
            slots: slots.view(self.size * 2 * self.slot_words()),
            sent: sent.view(self.size),
            taken: taken.view(2 * self.size),
            chunks: chunks.view(self.size * CHUNK_WORDS),
        }
    }
}

/// Views of the part of one process set.
pub(super) struct SetParts {
    /// One word: the highest cycle that a member has requested.
    pub(super) rung: View<AtomicU64>,
    /// One bell per member.
    pub(super) bells: View<Bell>,
    /// Last cycle for which each member has published a block.
    pub(super) sequence: View<Counter>,
    /// Two slots of [`SetLayout::slot_words`] words per member.
    pub(super) slots: View<AtomicU64>,
    /// Number of chunks that each member has sent.
    pub(super) sent: View<Counter>,
    /// Number of chunks taken: by rank 0 from each member, then by each member from rank 0.
    pub(super) taken: View<Counter>,
    /// [`CHUNK_WORDS`] words per member.
    pub(super) chunks: View<AtomicU64>,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shm::Region;

    #[test]
    fn fnv1a_gives_the_published_values() {
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn pieces_do_not_overlap_and_fill_the_region() {
        for size in [1, 2, 3, 64] {
            let layout = Layout {
                size,
                cache_words: 16,
                data_bytes: 5000,
            };
            let (region, _file) = Region::create("ronde-test", layout.bytes()).unwrap();
            let region = Area::whole(Arc::new(region));
            layout.stamp(&region);
            let parts = layout.split(&region);
            // Every word of every view gets its own number, and must still have it in the end.
            let words: Vec<&AtomicU64> = parts
                .poison
                .iter()
                .chain(parts.states.iter())
                .chain(parts.set.rung.iter())
                .chain(parts.set.slots.iter())
                .chain(parts.set.chunks.iter())
                .collect();
            for (number, word) in words.iter().enumerate() {
                word.store(number as u64, Ordering::Relaxed);
            }
            for counters in [&parts.set.sequence, &parts.set.sent, &parts.set.taken] {
                for counter in counters.iter() {
                    counter.publish(u32::MAX);
                }
            }
            for (number, word) in words.iter().enumerate() {
                assert_eq!(word.load(Ordering::Relaxed), number as u64);
            }
            assert_eq!(parts.data.bytes(), 5000);
            assert_eq!(parts.data.address().addr() % PAGE_BYTES, 0);
            layout.check(&region).unwrap(); // the stamp is still there
            let other = Layout {
                size: size + 1,
                ..layout
            };
            assert!(
                other
                    .check(&region)
                    .unwrap_err()
                    .contains("begins with the words")
            );
        }
    }
}
