//! Layout of the shared memory (counters, slots and areas), and division of a batch into chunks and
//! parts.
//!
//! ```text
//! counters      slot 0                            slot 1
//! 3 × size      rank 0 │ rank 1 │ … │ rank n-1    rank 0 │ …
//! ```

#![allow(unsafe_code)] // addresses in shared memory

use std::ops::Range;

use crate::shm::{Area, Counter, View};

/// Chunks in flight. A chunk passes through three stages, one iteration each; the fourth slot lets
/// a rank run ahead of a peer that is still copying out.
pub(super) const SLOTS: usize = 4;
const _: () = assert!(SLOTS.is_power_of_two(), "chunk numbers wrap at 2³²");

/// Largest chunk. The chunks of all ranks and slots have to stay in cache between the write of one
/// core and the read of another; in smaller chunks the cost of synchronization dominates.
const CHUNK_BYTES_MAX: usize = 512 << 10;

/// Largest ring: the shared memory of a process set of any size.
const RING_BYTES_MAX: usize = 64 << 20;

/// Smallest chunk: one page. More than 4096 ranks therefore exceed [`RING_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 4 << 10;

/// Alignment of parts and chunks: two cache lines, because the processor fetches them in pairs.
const LINE_BYTES: usize = 128;

/// Largest tiny batch, in bytes × ranks: every rank reads and reduces all of it.
const TINY_BYTES: usize = 64 << 10;

/// Returns the bytes of a chunk in the ring for `size` ranks.
pub(super) fn chunk_bytes(size: usize) -> usize {
    let fair = RING_BYTES_MAX / (SLOTS * size) / CHUNK_BYTES_MIN * CHUNK_BYTES_MIN;
    fair.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
}

fn counters_bytes(size: usize) -> usize {
    (3 * size * size_of::<Counter>()).next_multiple_of(4 << 10)
}

/// Returns the bytes of shared memory for `size` ranks.
pub(super) fn required_bytes(size: usize) -> usize {
    counters_bytes(size) + SLOTS * size * chunk_bytes(size)
}

/// Progress of all ranks, in chunks since the start.
#[derive(Debug)]
pub(super) struct Counters {
    view: View<Counter>,
    size: usize,
}

impl Counters {
    /// Number of chunks that rank `rank` has copied to its area.
    pub(super) fn copied_in(&self, rank: usize) -> &Counter {
        &self.view[rank]
    }

    /// Number of chunks of which rank `rank` has reduced its part.
    pub(super) fn reduced(&self, rank: usize) -> &Counter {
        &self.view[self.size + rank]
    }

    /// Number of chunks that rank `rank` no longer reads.
    pub(super) fn copied_out(&self, rank: usize) -> &Counter {
        &self.view[2 * self.size + rank]
    }
}

/// Addresses of the counters and the ring in the shared memory.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) counters: Counters,
    ring: Area,
    size: usize,
    chunk_bytes: usize,
}

impl Layout {
    /// # Panics
    /// If the area is smaller than [`required_bytes`].
    pub(super) fn new(area: &Area, size: usize) -> Self {
        let counters = Counters {
            view: area.view(3 * size),
            size,
        };
        let chunk_bytes = chunk_bytes(size);
        Self {
            counters,
            ring: area.part(counters_bytes(size), SLOTS * size * chunk_bytes),
            size,
            chunk_bytes,
        }
    }

    /// Returns the address of rank `rank`'s area in the slot of chunk `chunk`.
    pub(super) fn slot(&self, chunk: u32, rank: usize) -> *mut u8 {
        let slot = chunk as usize % SLOTS;
        let offset = (slot * self.size + rank) * self.chunk_bytes;
        debug_assert!(rank < self.size && offset < self.ring.bytes());
        // SAFETY: inside of the ring, by the assertion.
        unsafe { self.ring.address().add(offset) }
    }

    /// Bytes of a rank's area in a slot.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Bytes of an area that one rank reserves for each rank. At least one line, because there are
    /// at most as many ranks as an area has lines (`MAX_RANKS`).
    pub(super) fn part_bytes(&self) -> usize {
        self.chunk_bytes / self.size / LINE_BYTES * LINE_BYTES
    }

    /// Returns the place of rank `from`'s bytes for rank `to` in the slot of chunk `chunk`. From
    /// one use of the slot to the next, this place and that of `to`'s bytes for `from` are
    /// exchanged, so that the rank that read a place last is the next to write it.
    pub(super) fn part(&self, chunk: u32, from: usize, to: usize) -> *mut u8 {
        let (area, part) = match chunk as usize / SLOTS % 2 {
            0 => (from, to),
            _ => (to, from),
        };
        debug_assert!(part < self.size);
        // SAFETY: an area has `size` parts.
        unsafe { self.slot(chunk, area).add(part * self.part_bytes()) }
    }

    /// Divides a batch of `total_bytes` bytes.
    pub(super) fn cut(&self, total_bytes: usize) -> Cut {
        Cut {
            total_bytes,
            chunk_bytes: self.chunk_bytes,
            size: self.size,
        }
    }
}

/// Division of a batch into consecutive chunks, each with one part per rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    total_bytes: usize,
    chunk_bytes: usize,
    size: usize,
}

impl Cut {
    /// Number of chunks.
    pub(super) fn chunks(&self) -> usize {
        self.total_bytes.div_ceil(self.chunk_bytes)
    }

    /// Whether the batch is one chunk that every rank should reduce as a whole.
    pub(super) fn is_tiny(&self) -> bool {
        self.total_bytes <= (TINY_BYTES / self.size).min(self.chunk_bytes)
    }

    /// Returns the range of chunk `index` in the batch.
    pub(super) fn chunk(&self, index: usize) -> Range<usize> {
        let start = index * self.chunk_bytes;
        start..(start + self.chunk_bytes).min(self.total_bytes)
    }

    /// Returns the range of rank `rank`'s part of chunk `index` in the batch.
    pub(super) fn part(&self, index: usize, rank: usize) -> Range<usize> {
        let chunk = self.chunk(index);
        let part_bytes = chunk.len().div_ceil(self.size).next_multiple_of(LINE_BYTES);
        let start = (chunk.start + rank * part_bytes).min(chunk.end);
        start..(start + part_bytes).min(chunk.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::MAX_RANKS;

    #[test]
    fn a_ring_is_at_most_64_mib() {
        assert_eq!(chunk_bytes(2), CHUNK_BYTES_MAX);
        for size in [1, 2, 3, 7, 8, 33, 64, 100, 1000, 4096] {
            assert!(
                SLOTS * size * chunk_bytes(size) <= RING_BYTES_MAX,
                "{size} ranks"
            );
            assert!(chunk_bytes(size).is_multiple_of(LINE_BYTES));
        }
        // Every rank has room for every other rank, up to more ranks than allowed.
        assert!((1..=4 * MAX_RANKS).all(|size| chunk_bytes(size) / size >= LINE_BYTES));
    }

    #[test]
    fn parts_tile_chunks_and_chunks_tile_the_batch() {
        for size in [1, 2, 3, 5, 64] {
            for total_bytes in [0, 1, 2, 127, 128, 129, 1 << 19, (1 << 19) + 2, 5_000_006] {
                let cut = Cut {
                    total_bytes,
                    chunk_bytes: chunk_bytes(size),
                    size,
                };
                let mut at = 0;
                for index in 0..cut.chunks() {
                    for rank in 0..size {
                        let part = cut.part(index, rank);
                        assert_eq!(part.start, at);
                        at = part.end;
                    }
                    assert_eq!(at, cut.chunk(index).end);
                }
                assert_eq!(at, total_bytes);
            }
        }
    }
}
