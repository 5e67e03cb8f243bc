//! Collectives among the ranks of one host, through shared memory.
//!
//! A batch is streamed: cut into chunks that fit in cache and pushed through a small ring of slots, each with an
//! area per rank. There is no fusion buffer of the size of a batch; a tensor's bytes come from DRAM once and go
//! back once, everything between them stays in cache.
//!
//! # Allreduce
//!
//! A chunk is cut into one part per rank, which *owns* it. Three stages, each published in a counter that the
//! others wait for:
//!
//! 1. **copy in**: a rank copies its contribution to all parts but its own to its area of the slot;
//! 2. **reduce**: it combines its own part from its private input and the peers' areas, in rank order, into both its
//!    private output and the *next* rank's area, over the contribution it has just read there;
//! 3. **copy out**: it copies every other part from where its owner put it to the private output.
//!
//! For *n* ranks and a batch of *B* bytes a rank writes *B* bytes to shared memory and reads 2·*B*·(*n* − 1)/*n* from
//! there. Iteration *i* copies chunk *i* in, reduces chunk *i* − 1, and copies chunk *i* − 2 out, so
//! that what a stage waits for has mostly happened while this rank did other things. A slot is reused once all ranks
//! have copied its former chunk out.
//!
//! Why over the contribution: a cache line that two cores have read must be taken from the other one before it can be
//! written, one round trip between the cores each, and stores queue behind it. Here the owner writes a line that it
//! fetches anyway, and the rank that copies the result out of its own area will be the next to write it. Results put
//! in areas of their own made the two-rank allreduce 1.2 times slower where the cores share a cache, and 6 times
//! where they do not (EPYC 9004, 102 MB: 12.5 → 10.4 ms and 71 → 12 ms).
//!
//! A *tiny* batch is one chunk that everyone copies in whole, then everyone reduces all of it: one synchronization less.
//! Since the order is the ranks' order everywhere, the bits are the same.
//!
//! An absent rank takes part in what concerns others: it reduces its parts of the chunks, from its peers' areas straight
//! into the next one's. Of a tiny batch it does nothing.
//!
//! # Reducescatter
//!
//! The first two stages of an allreduce, where the parts are not of the batch but of the ranks' *shares* of it: each
//! rank's share is a stream of its own, cut into parts, and a chunk is one part of each. The owner combines the part from
//! its private input and its peers' areas into its private output; `copied_out` then frees the slot. By the rule above,
//! two ranks use the same place in turn for what they have for one another: who has read there is the next to write.
//!
//! # Broadcast, allgather, alltoall
//!
//! One engine, `transfer`, along the routes of the operation. Each rank sends one stream of bytes, chunk by chunk
//! through its area, and copies out of the others' what concerns it; a batch takes as many rounds as the longest stream
//! has chunks. Two stages, pipelined as above. A rank whose stream has ended, or that has nothing to receive, waits for
//! nobody, and counts on. What a rank keeps for itself does not pass through the ring; in a broadcast and an allgather it
//! is copied along with the chunk, while that is in cache.
//!
//! Here the sender writes lines that it wrote before and a peer has read since. So a rank that alone reads some bytes
//! *takes* them (`Copier::take`). Long streams do not stay in cache at all (`transfer`).
//!
//! Batches of one chunk are no special case: they take one synchronization, as a tiny allreduce does.
//!
//! # Counters
//!
//! Chunks are numbered through all batches, modulo 2³². At the end of a batch each of a rank's three counters has
//! come to the same number, whatever stages the batch had: a counter left behind for 2³¹ chunks would seem ahead.

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
use routes::Routes;

/// What the timeline calls them.
static ACTIVITIES: Activities = Activities {
    allreduce: Stages::streamed("SHM_ALLREDUCE"),
    allgather: Stages::streamed("SHM_ALLGATHER"),
    broadcast: Stages::streamed("SHM_BCAST"),
    alltoall: Stages::streamed("SHM_ALLTOALL"),
    reducescatter: Stages::streamed("SHM_REDUCESCATTER"),
};

/// The shared-memory collective of one rank.
pub struct LocalCollective {
    layout: Layout,
    rank: usize,
    size: usize,
    spin: Duration,
    watch: Arc<dyn Watch>,
    level: Level,
    copier: Copier,
    /// The number of the next chunk.
    next: u32,
    /// An allreduce's batch; kept for its memory.
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
    /// Bytes of shared memory that `size` ranks need.
    pub fn required_bytes(size: usize) -> usize {
        layout::required_bytes(size)
    }

    /// Bytes of the chunks that a batch among `size` ranks is cut into.
    pub fn chunk_bytes(size: usize) -> usize {
        layout::chunk_bytes(size)
    }

    /// The collective of rank `rank` of `size` over `area`, which is zero before the first of them uses it and best
    /// starts on a page boundary. A wait spins for `spin`, then sleeps and asks `watch` now and then.
    ///
    /// # Panics
    /// If `area` is smaller than [`required_bytes`](Self::required_bytes), or `rank` not below `size`.
    pub(crate) fn new(area: Area, rank: usize, size: usize, spin: Duration, watch: Arc<dyn Watch>) -> Self {
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

    /// The memory for [`over_file`](Self::over_file) of `size` ranks: an anonymous file whose length is sealed, to be
    /// handed to the other processes.
    ///
    /// # Errors
    /// Of creating the file.
    pub fn create_file(size: usize) -> Result<OwnedFd, Errno> {
        Region::create_file("ronde-bench", Self::required_bytes(size))
    }

    /// The collective of rank `rank` of `size` over a file made by [`create_file`](Self::create_file) that all of them
    /// have open, without a context: for benchmarks. A wait spins for `spin`, then sleeps; one of more than `patience` is
    /// an [`PeerError::Stalled`](crate::error::PeerError::Stalled).
    ///
    /// # Errors
    /// Of mapping the file; `EINVAL` for one of another length or without seals.
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
        let region = Region::open(file, Self::required_bytes(size)).map_err(|error| match error {
            RegionError::System(error) => error,
            RegionError::Unsealed | RegionError::Length { .. } => Errno::INVAL,
        })?;
        let watch = Arc::new(Patience { limit: patience });
        Ok(Self::new(Area::whole(Arc::new(region)), rank, size, spin, watch))
    }

    /// Starts the numbering at `next` instead of 0; all ranks must do so before any of them goes on.
    #[cfg(test)]
    fn starting_at(mut self, next: u32) -> Self {
        self.finish(next);
        self
    }

    /// Uses instructions of `level`.
    #[cfg(test)]
    fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self.copier = Copier::new(level);
        self
    }

    /// The other ranks, from the next one on, so that not all of them read the same rank at once.
    fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// The ranks that are not in `absent`, in order.
    fn present(&self, absent: &[usize]) -> SmallVec<[usize; 16]> {
        (0..self.size).filter(|rank| !absent.contains(rank)).collect()
    }

    /// The rank after `rank`.
    fn next_rank(&self, rank: usize) -> usize {
        (rank + 1) % self.size
    }

    /// Waits until `counter`, rank `on`'s, has come to `value`.
    fn wait(&self, counter: &Counter, value: u32, on: usize, lap: &mut Lap) -> Result<(), Error> {
        if counter.reached(value) {
            return Ok(());
        }
        lap.waiting(|| counter.wait(value, self.spin, on, &*self.watch))
    }

    /// Says that this rank's contribution to chunk `chunk` lies where the others see it.
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

    /// Ends a batch: brings every counter of this rank to `next`.
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
        assert_eq!(bytes.len(), spans.len() * size, "a length per tensor and rank");
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
        self.batch(|this, lap| this.reducescatter_batch(spans, bytes, reduction, absent, lap))
    }
}

impl LocalCollective {
    /// Runs one batch, which returns the number of the chunk after its last.
    fn batch(&mut self, body: impl FnOnce(&Self, &mut Lap) -> Result<u32, Error>) -> Result<Phases, Error> {
        let mut lap = Lap::new();
        let next = body(self, &mut lap)?;
        self.finish(next);
        Ok(lap.phases)
    }
}

/// A stopwatch that files the time since it was last read under a phase.
struct Lap {
    phases: Phases,
    last: Instant,
    /// The batch's first chunk is in.
    is_led_in: bool,
    /// All peers have come: something has been done that needs their data.
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

    /// Files the time since the last reading, less what was spent waiting, under the phase that `phase` picks; answers
    /// with that time, ns.
    fn file(&mut self, phase: impl FnOnce(&mut Phases) -> &mut u64) -> u64 {
        let now = Instant::now();
        let took = nanos(now - self.last);
        *phase(&mut self.phases) += took;
        self.last = now;
        self.is_met = true;
        took
    }

    /// Files a chunk's copying in; of the first one, also as what leads the batch in.
    fn copied_in(&mut self) {
        let is_met = self.is_met; // copying in takes no peer
        let took = self.file(|phases| &mut phases.copy_in_ns);
        self.is_met = is_met;
        if !std::mem::replace(&mut self.is_led_in, true) {
            self.phases.lead_in_ns = took;
        }
    }

    /// Files copying out. `is_last`: nothing but that is left to do in this batch.
    fn copied_out(&mut self, is_last: bool) {
        let took = self.file(|phases| &mut phases.copy_out_ns);
        if is_last {
            self.phases.tail_out_ns += took;
        }
    }

    /// Files the time of `body` as waiting; the running phase goes on after it.
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
