//! Mailboxes: frames of any length through one chunk of shared memory per rank.
//!
//! A frame is its length in bytes (one word), then its bytes packed into words; it is sent chunk by
//! chunk. The sender may overwrite its chunk when all readers have taken the previous one. To rank
//! 0 each rank uses its own chunk (gather); from rank 0 all ranks read rank 0's (broadcast). Chunks
//! are counted from the beginning of the job.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{Counter, View, Watch};
use crate::transport::{check_length, check_own_frame};

/// Words of a chunk: 32 KiB, so that a few chunks carry the requests of a large model's step, and a
/// chunk stays in the CPU's cache.
pub(super) const CHUNK_WORDS: usize = 4096;

/// Access of one rank to the mailboxes of a process set.
pub(super) struct Mailboxes {
    rank: usize,
    /// The job rank of each rank, for errors.
    members: Arc<[usize]>,
    /// Number of chunks sent by each rank.
    sent: View<Counter>,
    /// Number of chunks taken: by rank 0 from each rank, then by each rank from rank 0.
    taken: View<Counter>,
    chunks: View<AtomicU64>,
    /// For each rank's mailbox, the number of chunks that this rank has sent or taken.
    passed: Vec<u32>,
    spin: Duration,
}

impl Mailboxes {
    /// Makes the mailboxes from the views of the set's layout; see
    /// [`SetParts`](super::layout::SetParts).
    pub(super) fn new(
        rank: usize,
        members: Arc<[usize]>,
        sent: View<Counter>,
        taken: View<Counter>,
        chunks: View<AtomicU64>,
        spin: Duration,
    ) -> Self {
        let size = sent.len();
        assert_eq!((taken.len(), chunks.len()), (2 * size, size * CHUNK_WORDS));
        Self {
            rank,
            members,
            sent,
            taken,
            chunks,
            passed: vec![0; size],
            spin,
        }
    }

    /// Sends every rank's frame to rank 0.
    ///
    /// # Errors
    /// A frame longer than [`FRAME_BYTES_MAX`](crate::transport::FRAME_BYTES_MAX), or the error of
    /// `watch` about a rank waited for.
    pub(super) fn gather(
        &mut self,
        frame: &[u8],
        frames: &mut Vec<Vec<u8>>,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        check_own_frame(self.members[self.rank], frame)?;
        if self.rank != 0 {
            frames.clear();
            return self.send(frame, 0..1, watch);
        }
        frames.resize_with(self.sent.len(), Vec::new);
        frames[0].clear();
        frames[0].extend_from_slice(frame);
        for (from, frame) in frames.iter_mut().enumerate().skip(1) {
            self.receive(from, frame, watch)?;
        }
        Ok(())
    }

    /// Sends rank 0's frame to every rank.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    pub(super) fn broadcast(
        &mut self,
        frame: &mut Vec<u8>,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        if self.rank != 0 {
            return self.receive(0, frame, watch);
        }
        check_own_frame(self.members[self.rank], frame)?;
        self.send(frame, 1..self.sent.len(), watch)
    }

    /// Sends `frame` through this rank's own chunk to `readers`.
    fn send(
        &mut self,
        frame: &[u8],
        readers: std::ops::Range<usize>,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        if readers.is_empty() {
            return Ok(());
        }
        let mut head = Some(frame.len() as u64);
        let mut bytes = frame;
        while head.is_some() || !bytes.is_empty() {
            for reader in readers.clone() {
                self.taken(self.rank, reader).wait(
                    self.passed[self.rank],
                    self.spin,
                    reader,
                    watch,
                )?;
            }
            let mut chunk = self.chunk(self.rank);
            if let Some(length) = head.take() {
                chunk[0].store(length, Ordering::Relaxed);
                chunk = &chunk[1..];
            }
            let (now, later) = bytes.split_at(bytes.len().min(chunk.len() * 8));
            for (word, packed) in chunk.iter().zip(now.chunks(8)) {
                let mut whole = [0; 8];
                whole[..packed.len()].copy_from_slice(packed);
                word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
            }
            bytes = later;
            self.passed[self.rank] = self.passed[self.rank].wrapping_add(1);
            self.sent[self.rank].publish(self.passed[self.rank]);
        }
        Ok(())
    }

    /// Receives a frame of rank `from` into `frame`.
    fn receive(
        &mut self,
        from: usize,
        frame: &mut Vec<u8>,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        frame.clear();
        let mut length = None;
        loop {
            self.passed[from] = self.passed[from].wrapping_add(1);
            self.sent[from].wait(self.passed[from], self.spin, from, watch)?;
            let mut chunk = self.chunk(from);
            let length = match length {
                Some(length) => length,
                None => {
                    let found = check_length(self.members[from], chunk[0].load(Ordering::Relaxed))?;
                    chunk = &chunk[1..];
                    frame.reserve(found);
                    *length.insert(found)
                }
            };
            for word in &chunk[..chunk.len().min((length - frame.len()).div_ceil(8))] {
                let bytes = word.load(Ordering::Relaxed).to_le_bytes();
                frame.extend_from_slice(&bytes[..(length - frame.len()).min(8)]);
            }
            self.taken(from, self.rank).publish(self.passed[from]);
            if frame.len() == length {
                return Ok(());
            }
        }
    }

    fn chunk(&self, rank: usize) -> &[AtomicU64] {
        &self.chunks[rank * CHUNK_WORDS..][..CHUNK_WORDS]
    }

    /// Counter of the chunks that `reader` has taken from `from`: one of the two is rank 0.
    fn taken(&self, from: usize, reader: usize) -> &Counter {
        debug_assert!((from == 0) != (reader == 0));
        match reader {
            0 => &self.taken[from],
            _ => &self.taken[self.sent.len() + reader],
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::PeerError;
    use crate::shm::{Area, Region};
    use crate::transport::FRAME_BYTES_MAX;

    struct Nobody;

    impl Watch for Nobody {
        fn check(&self, on: usize, _waited: Duration) -> Result<(), Error> {
            panic!("waited for {on}")
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_an_error_that_names_the_sender() {
        for length in [FRAME_BYTES_MAX as u64 + 1, u64::MAX] {
            let area = |bytes: usize| {
                let (region, _file) = Region::create("ronde-test", bytes).unwrap();
                Area::whole(Arc::new(region))
            };
            let counters = |count: usize| area(count * size_of::<Counter>()).view::<Counter>(count);
            let (sent, taken) = (counters(2), counters(4));
            let chunks = area(2 * 8 * CHUNK_WORDS).view::<AtomicU64>(2 * CHUNK_WORDS);
            chunks[CHUNK_WORDS].store(length, Ordering::Relaxed);
            sent[1].publish(1);
            let members = Arc::from([4, 6]);
            let mut mailboxes = Mailboxes::new(0, members, sent, taken, chunks, Duration::ZERO);
            match mailboxes.gather(&[], &mut Vec::new(), &Nobody) {
                Err(Error::Peer(PeerError::InvalidData { rank: 6, problem })) => {
                    assert!(
                        problem.starts_with(&format!("a frame of {length} bytes")),
                        "{problem}"
                    );
                }
                outcome => panic!("{outcome:?}"),
            }
        }
    }
}
