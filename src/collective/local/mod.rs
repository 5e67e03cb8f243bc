//! Shared-memory collective: operations among the ranks of one host.
//!
//! A batch is streamed: it is cut into chunks that fit in the cache, and the chunks pass through a
//! small ring of slots, each with one area per rank. There is no fusion buffer of the size of a
//! batch. The bytes of a tensor are read from DRAM once and written back once; all copies between
//! stay in the cache.
//!
//! # Allreduce
//!
//! A chunk is cut into one part per rank; that rank *owns* the part. Each of three stages is
//! published in a counter that the other ranks wait for:
//!
//! 1. **copy in**: a rank copies its contribution to all parts but its own to its area of the slot;
//! 2. **reduce**: it combines its own part from its private input and the peers' areas, in rank
//!    order, into both its private output and the *next* rank's area, over the contribution it has
//!    just read there;
//! 3. **copy out**: it copies every other part from where its owner put it to the private output.
//!
//! For *n* ranks and a batch of *B* bytes, a rank writes *B* bytes to shared memory and reads
//! 2·*B*·(*n* − 1)/*n* bytes from it. Iteration *i* copies chunk *i* in, reduces chunk *i* − 1 and
//! copies chunk *i* − 2 out. Peers have therefore usually completed the work that a stage waits
//! for. A slot is reused when all ranks have copied its previous chunk out.
//!
//! Results overwrite contributions for this reason: before a core can write a cache line that two
//! cores have read, it must invalidate the other copy. That costs one round trip between the cores
//! per line, and later stores wait for it. Here the owner writes a line that it has to fetch
//! anyway, and the rank that copies the result out of its own area is the next to write that area.
//! With separate areas for results, the allreduce of two ranks was 1.2 times slower where the cores
//! share a cache, and 6 times slower where they do not (EPYC 9004, 102 MB: 12.5 → 10.4 ms and 71 →
//! 12 ms).
//!
//! A *tiny* batch is one chunk: every rank copies all of it in and then reduces all of it, which
//! saves one synchronization. The order of the reduction is rank order in both cases, so the bits
//! are the same.
//!
//! An absent rank does its share of the work for the others: it reduces its parts of the chunks
//! from its peers' areas into the next rank's area. In a tiny batch it does nothing.
//!
//! # Reducescatter
//!
//! Reducescatter runs the first two stages of an allreduce. The batch consists of the ranks'
//! *shares*: each share is a stream of its own, cut into parts, and a chunk contains one part of
//! each share. The owner combines the part from its private input and its peers' areas into its
//! private output; `copied_out` then frees the slot. As in an allreduce, the rank that read a place
//! last is the next to write it: two ranks use the same place alternately for the bytes that they
//! send each other.
//!
//! # Broadcast, allgather, alltoall
//!
//! The module `transfer` implements all three along the routes of the operation. Each rank sends
//! one stream of bytes through its area, chunk by chunk, and copies its bytes out of the other
//! ranks' areas; a batch takes as many rounds as the longest stream has chunks. Two stages are
//! pipelined as above. A rank whose stream has ended, or that receives nothing, waits for no peer
//! and only advances its counters. Bytes that a rank sends to itself do not pass through the ring;
//! in a broadcast and an allgather they are copied together with the chunk, while that is in the
//! cache.
//!
//! Here the sender writes lines that it wrote before and that a peer has read since. A rank that is
//! the only reader of some bytes therefore *takes* them (`Copier::take`). Long streams bypass the
//! cache (`transfer`).
//!
//! Batches of one chunk are not a special case: they take one synchronization, like a tiny
//! allreduce.
//!
//! # Counters
//!
//! Chunks are numbered through all batches, modulo 2³². At the end of a batch, the three counters
//! of a rank have the same value, whatever stages the batch had: a counter that stayed behind for
//! 2³¹ chunks would appear to be ahead.

mod allreduce;
mod layout;
mod patience;
mod reducescatter;
mod routes;
mod transfer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::collective::kernels::{Copier, Level};
use crate::collective::{Activities, Collective, Phases, Reduction, Stages};
use crate::error::Error;
use crate::shm::{Area, Counter, Region, RegionError, Watch};
use crate::tensor::Span;

use crate::collective::stream::Stream;
use layout::Layout;
use patience::Patience;
use reducescatter::Combination;
use routes::Routes;

/// Names of the operations on the timeline.
static ACTIVITIES: Activities = Activities {
    allreduce: Stages::streamed("SHM_ALLREDUCE"),
    allgather: Stages::streamed("SHM_ALLGATHER"),
    broadcast: Stages::streamed("SHM_BCAST"),
    alltoall: Stages::streamed("SHM_ALLTOALL"),
    reducescatter: Stages::streamed("SHM_REDUCESCATTER"),
};

/// Shared-memory collective of one rank.
pub struct LocalCollective {
    layout: Layout,
    rank: usize,
    size: usize,
    spin: Duration,
    watch: Arc<dyn Watch>,
    level: Level,
    copier: Copier,
    /// Number of the next chunk.
    next: u32,
    /// Stream of an allreduce's batch; kept to reuse its memory.
    batch: Stream,
}

impl std::fmt::Debug for LocalCollective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalCollective")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("level", &self.level)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl LocalCollective {
    /// Returns the bytes of shared memory for `size` ranks.
    pub fn required_bytes(size: usize) -> usize {
        layout::required_bytes(size)
    }

    /// Returns the bytes of the chunks that a batch among `size` ranks is cut into.
    pub fn chunk_bytes(size: usize) -> usize {
        layout::chunk_bytes(size)
    }

    /// Creates the collective of rank `rank` of `size` over `area`. The area must be zero before
    /// the first rank uses it and should start on a page boundary. A wait spins for `spin`, then
    /// sleeps and checks `watch` from time to time.
    ///
    /// # Panics
    /// If `area` is smaller than [`required_bytes`](Self::required_bytes), or `rank` is not below
    /// `size`.
    pub(crate) fn new(
        area: Area,
        rank: usize,
        size: usize,
        spin: Duration,
        watch: Arc<dyn Watch>,
    ) -> Self {
        assert!(rank < size, "rank {rank} of {size}");
        let level = Level::detect();
        Self {
            layout: Layout::new(&area, size),
            rank,
            size,
            spin,
            watch,
            level,
            copier: Copier::new(level),
            next: 0,
            batch: Stream::default(),
        }
    }

    /// Creates the memory for [`over_file`](Self::over_file) of `size` ranks: an anonymous file of
    /// sealed length, to be passed to the other processes.
    ///
    /// # Errors
    /// Errors of the operating system while the file is created.
    pub fn create_file(size: usize) -> Result<OwnedFd, Errno> {
        Region::create_file("ronde-bench", Self::required_bytes(size))
    }

    /// Creates the collective of rank `rank` of `size` over a file made by
    /// [`create_file`](Self::create_file) that all ranks have open, without a context, for
    /// benchmarks. A wait spins for `spin`, then sleeps; a wait longer than `patience` fails with
    /// [`PeerError::Stalled`](crate::error::PeerError::Stalled).
    ///
    /// # Errors
    /// Errors of mapping the file; `EINVAL` for a file of another length or without seals.
    ///
    /// # Panics
    /// If `rank` is not below `size`.
    pub fn over_file(
        file: impl AsFd,
        rank: usize,
        size: usize,
        spin: Duration,
        patience: Duration,
    ) -> Result<Self, Errno> {
        let region =
            Region::open(file, Self::required_bytes(size)).map_err(|error| match error {
                RegionError::System(error) => error,
                RegionError::Unsealed | RegionError::Length { .. } => Errno::INVAL,
            })?;
        let watch = Arc::new(Patience { limit: patience });
        Ok(Self::new(
            Area::whole(Arc::new(region)),
            rank,
            size,
            spin,
            watch,
        ))
    }

    /// Starts the numbering at `next` instead of 0; all ranks must do so before any of them runs an
    /// operation.
    #[cfg(test)]
    fn starting_at(mut self, next: u32) -> Self {
        self.finish(next);
        self
    }

    /// Selects instructions of `level`.
    #[cfg(test)]
    fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self.copier = Copier::new(level);
        self
    }

    /// Returns the other ranks, starting with the next one, so that they do not all read the same
    /// rank at once.
    fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// Returns the ranks that are not in `absent`, ascending.
    fn present(&self, absent: &[usize]) -> SmallVec<[usize; 16]> {
        (0..self.size)
            .filter(|rank| !absent.contains(rank))
            .collect()
    }

    /// Returns the rank after `rank`.
    fn next_rank(&self, rank: usize) -> usize {
        (rank + 1) % self.size
    }

    /// Waits until `counter`, which belongs to rank `on`, has reached `value`.
    fn wait(&self, counter: &Counter, value: u32, on: usize, lap: &mut Lap) -> Result<(), Error> {
        if counter.reached(value) {
            return Ok(());
        }
        lap.waiting(|| counter.wait(value, self.spin, on, &*self.watch))
    }

    /// Publishes this rank's contribution to chunk `chunk`.
    fn has_copied_in(&self, chunk: u32, lap: &mut Lap) {
        let counter = self.layout.counters.copied_in(self.rank);
        counter.publish(chunk.wrapping_add(1));
        lap.copied_in();
    }

    /// Waits until the slot of chunk `chunk` is free.
    fn wait_slot(&self, chunk: u32, lap: &mut Lap) -> Result<(), Error> {
        let free_at = chunk.wrapping_add(1).wrapping_sub(layout::SLOTS as u32);
        for peer in self.peers() {
            self.wait(self.layout.counters.copied_out(peer), free_at, peer, lap)?;
        }
        Ok(())
    }

    /// Ends a batch: sets every counter of this rank to `next`.
    fn finish(&mut self, next: u32) {
        let counters = &self.layout.counters;
        for counter in [
            counters.copied_in(self.rank),
            counters.reduced(self.rank),
            counters.copied_out(self.rank),
        ] {
            if counter.value() != next {
                counter.publish(next);
            }
        }
        self.next = next;
    }
}

impl Collective for LocalCollective {
    fn activities(&self) -> &'static Activities {
        &ACTIVITIES
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        spans.iter().for_each(|span| batch.push_span(span));
        let outcome = self.batch(|this, lap| this.allreduce_batch(&batch, reduction, absent, lap));
        self.batch = batch;
        outcome
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        let size = self.size;
        assert!(root < size, "root {root} of {size} ranks");
        assert!(
            self.rank != root || !spans.iter().any(Span::is_absent),
            "root {root} is absent"
        );
        self.batch(|this, lap| this.transfer(spans, &Routes::Broadcast { root, size, spans }, lap))
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let size = self.size;
        assert_eq!(
            bytes.len(),
            spans.len() * size,
            "a length per tensor and rank"
        );
        self.batch(|this, lap| this.transfer(spans, &Routes::Allgather { size, bytes }, lap))
    }

    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let size = self.size;
        assert_eq!(
            bytes.len(),
            spans.len() * size * size,
            "a length per tensor and two ranks"
        );
        self.batch(|this, lap| this.transfer(spans, &Routes::Alltoall { size, bytes }, lap))
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        assert_eq!(
            bytes.len(),
            spans.len() * self.size,
            "a length per tensor and rank"
        );
        let how = Combination::of(reduction, self.size);
        self.batch(|this, lap| this.reducescatter_batch(spans, bytes, &how, absent, lap))
    }
}

impl LocalCollective {
    /// Runs one batch; `body` returns the number of the chunk that follows its last chunk.
    fn batch(
        &mut self,
        body: impl FnOnce(&Self, &mut Lap) -> Result<u32, Error>,
    ) -> Result<Phases, Error> {
        let mut lap = Lap::new();
        let next = body(self, &mut lap)?;
        self.finish(next);
        Ok(lap.phases)
    }
}

/// Stopwatch that adds the time since its last reading to a phase.
struct Lap {
    phases: Phases,
    last: Instant,
    /// Whether the first chunk of the batch has been copied in.
    is_led_in: bool,
    /// Whether all peers have arrived: some work that needs their data has been done.
    is_met: bool,
}

impl Lap {
    fn new() -> Self {
        Self {
            phases: Phases::default(),
            last: Instant::now(),
            is_led_in: false,
            is_met: false,
        }
    }

    /// Adds the time since the last reading, without time spent waiting, to the phase that `phase`
    /// selects; returns that time in nanoseconds.
    fn file(&mut self, phase: impl FnOnce(&mut Phases) -> &mut u64) -> u64 {
        let now = Instant::now();
        let took = nanos(now - self.last);
        *phase(&mut self.phases) += took;
        self.last = now;
        self.is_met = true;
        took
    }

    /// Records the copying in of a chunk; for the first chunk also as the lead-in of the batch.
    fn copied_in(&mut self) {
        let is_met = self.is_met; // copying in needs no peer
        let took = self.file(|phases| &mut phases.copy_in_ns);
        self.is_met = is_met;
        if !std::mem::replace(&mut self.is_led_in, true) {
            self.phases.lead_in_ns = took;
        }
    }

    /// Records the copying out of a chunk. `is_last`: the batch has no other work left.
    fn copied_out(&mut self, is_last: bool) {
        let took = self.file(|phases| &mut phases.copy_out_ns);
        if is_last {
            self.phases.tail_out_ns += took;
        }
    }

    /// Adds the time of `body` to the time spent waiting; the current phase continues after it.
    fn waiting<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let value = body();
        let waited = began.elapsed();
        self.phases.wait_ns += nanos(waited);
        if !self.is_met {
            self.phases.late_ns += nanos(waited);
        }
        self.last += waited;
        value
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests;
