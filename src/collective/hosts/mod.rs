//! Collective between hosts, over MPI or TCP: streams batches and combines them with Ronde's
//! kernels.
//!
//! As within a host (`collective/local`), a batch is streamed in chunks: each is copied into a
//! staging buffer of the engine, moved by nonblocking calls on bytes, and copied out, several
//! chunks at once. An allreduce over TCP needs no copies (`lent`). MPI or TCP moves bytes and Ronde
//! combines them: a chunk of an allreduce is cut into a part per rank, every rank sends each part
//! to the rank that owns it, the owner combines it in rank order and sends its result to all (two
//! ranks over TCP and tiny batches exchange whole inputs, see `allreduce`). A ring moves as many
//! bytes, 2·*B*·(*n* − 1)/*n* each way, but in 2·(*n* − 1) steps instead of two. The bits equal
//! those of the local collective: they do not depend on fusion, and f16 and bf16 are accumulated in
//! f32 and rounded once. MPI's own reductions guarantee none of this. (Direct reduce-scatter and
//! allgather: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations
//! in MPICH", 2005, §4.)
//!
//! All ranks begin the same calls in the same order, as MPI requires for collectives; they may
//! complete in any order.

use std::rc::Rc;
use std::sync::Arc;

use super::kernels::{Level, Reducer};
use super::stream::Stream;
use super::{Activities, Collective, Phases, Reduction};
use crate::error::Error;
use crate::hosts::{Comm, CommError, CommId, Communicators, HostsJob, Promise, Waiting, World};
use crate::tensor::Span;

mod allreduce;
mod hierarchical;
mod lent;
mod names;
mod reducescatter;
mod rounds;
mod staging;
#[cfg(test)]
mod tests;
mod transfer;

pub(crate) use hierarchical::{HierarchicalCollective, IntraNode, Lane, Map};
use names::Names;
use staging::{Lap, Staging};

/// Bytes of a chunk, all parts together: few enough that a few chunks stay in cache.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks of an allreduce.
#[derive(Debug)]
struct Pipeline {
    /// Largest number of bytes of a chunk.
    bytes_max: usize,
    /// Number of chunks in flight.
    flights: usize,
}

/// Smallest chunk of a batch that has several.
const STREAM_BYTES_MIN: usize = 384 << 10;

/// Over MPI: few enough bytes to stay in a core's cache, and short enough that the engine polls the
/// other chunks before a peer waits for them. ResNet-50 between two ranks of one host that share a
/// cache took, ms: three of 384 KiB 22.1, four of 192 KiB 25.9, of 256 KiB 24.3, of 512 KiB 22.3;
/// six of 1 MiB 29 and of 2 MiB 41. (`MPI_Allreduce` over chunks of one buffer 23.3.) Where their
/// cores share no cache, kernel copies of lines that the other core has just written take several
/// times as long, and longer chunks would be faster.
static OVER_MPI: Pipeline = Pipeline {
    bytes_max: STREAM_BYTES_MIN,
    flights: 3,
};

/// Over TCP, for more than two ranks: few enough bytes to stay in the cache, and two in flight,
/// since each chunk waits twice for the network's latency. Two ranks with staged chunks took for
/// ResNet-50 on an idle machine with two cores, without a limit and at 10 Gbit/s, ms: four of 2 MiB
/// 84 and 100, two of 1 MiB 68 and 90, one of 1 MiB 52 and 86, two of 512 KiB 67 and 87.
static OVER_TCP: Pipeline = Pipeline {
    bytes_max: 1 << 20,
    flights: 2,
};

impl Pipeline {
    /// Length of the chunks of a batch of `bytes` bytes: a short batch, too, has several.
    fn chunk_bytes(&self, bytes: usize) -> usize {
        let share = bytes
            .div_ceil(2 * self.flights)
            .next_multiple_of(PART_ALIGN);
        share.clamp(STREAM_BYTES_MIN, self.bytes_max)
    }
}

/// Smallest part of a long batch: with many ranks, chunks are longer.
const PART_BYTES_MIN: usize = 16 << 10;
/// Number of chunks that a stage runs behind the previous one.
const LAG: usize = 2;
/// Alignment of parts: a cache line, and a whole number of elements of any type.
const PART_ALIGN: usize = 64;
/// Largest batch, all ranks together, that is sent whole to every rank.
const TINY_BYTES: usize = 32 << 10;

/// Collective of one rank over MPI or TCP.
pub(crate) struct HostsCollective {
    job: Arc<HostsJob>,
    data: CommId,
    set: u64,
    rank: usize,
    size: usize,
    level: Level,
    names: &'static Names,
    pipeline: &'static Pipeline,
    /// Number of the batch, which distinguishes the messages of two batches in flight.
    serial: u16,
    /// Staging buffers of all operations.
    staging: Staging,
}

impl HostsCollective {
    /// Creates the collective of rank `rank` of `size` over `communicators` of `job`.
    pub(crate) fn new(
        job: &Arc<HostsJob>,
        communicators: Communicators,
        rank: usize,
        size: usize,
    ) -> Self {
        let over_tcp = job.engine.is_over_tcp();
        Self {
            job: Arc::clone(job),
            data: communicators.data,
            set: communicators.set,
            rank,
            size,
            level: Level::detect(),
            names: if over_tcp { &names::TCP } else { &names::MPI },
            pipeline: if over_tcp { &OVER_TCP } else { &OVER_MPI },
            serial: 0,
            staging: Staging::default(),
        }
    }

    /// Starts reducing `batch` over all ranks of this collective, as a part of a reduction over
    /// `ranks` ranks.
    fn begin_allreduce(
        &mut self,
        batch: Stream,
        reduction: &Reduction,
        ranks: usize,
    ) -> Promise<Phases> {
        let reducer = Reducer::new(self.level, reduction, ranks);
        let present = (0..self.size).collect();
        self.begin(move |job| allreduce::allreduce(job, batch, reducer, present))
    }

    /// Starts `order` on the engine.
    fn begin<F>(&mut self, order: impl FnOnce(Job) -> F + Send + 'static) -> Promise<Phases>
    where
        F: Future<Output = Result<Phases, CommError>> + 'static,
    {
        let work = self.work(order);
        self.job.engine.begin(work)
    }

    /// Converts `order` to a future for the engine.
    fn work<F, O>(&mut self, order: O) -> impl FnOnce(Rc<World>) -> F + Send + 'static + use<F, O>
    where
        F: Future<Output = Result<Phases, CommError>> + 'static,
        O: FnOnce(Job) -> F + Send + 'static,
    {
        let (data, pipeline) = (self.data, self.pipeline);
        let staging = self.staging.clone();
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        move |world| {
            order(Job {
                comm: world.comm(data),
                pipeline,
                serial,
                staging,
                lap: Lap::new(),
            })
        }
    }

    fn guard(&self) -> Waiting<'_> {
        Waiting {
            heartbeat: &self.job.heartbeat,
            set: self.set,
        }
    }

    /// Waits for the result of a future that the engine runs.
    fn wait<T>(&self, promise: Promise<T>) -> Result<T, Error> {
        promise.keep(self.job.spin, &self.guard())
    }

    /// Runs `order` on the engine and waits for it.
    fn run<F>(&mut self, order: impl FnOnce(Job) -> F + Send + 'static) -> Result<Phases, Error>
    where
        F: Future<Output = Result<Phases, CommError>> + 'static,
    {
        let work = self.work(order);
        self.job.engine.run(self.job.spin, &self.guard(), work)
    }
}

/// State of a batch on the engine's thread.
struct Job {
    comm: Comm,
    pipeline: &'static Pipeline,
    serial: u16,
    staging: Staging,
    lap: Lap,
}

impl Job {
    fn done(self) -> Phases {
        self.lap.phases()
    }
}

impl Collective for HostsCollective {
    fn activities(&self) -> &'static Activities {
        &self.names.flat
    }

    fn allreduce(
        &mut self,
        spans: &[Span],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let mut batch = Stream::default();
        spans.iter().for_each(|span| batch.push_span(span));
        let reducer = Reducer::new(self.level, reduction, self.size);
        let present = present(self.size, absent);
        self.run(move |job| allreduce::allreduce(job, batch, reducer, present))
    }

    fn broadcast(&mut self, spans: &[Span], root: usize) -> Result<Phases, Error> {
        let mut batch = Stream::default();
        spans.iter().for_each(|span| batch.push_span(span));
        self.run(move |job| transfer::broadcast(job, batch, root))
    }

    fn allgather(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let size = self.size;
        assert_eq!(
            bytes.len(),
            spans.len() * size,
            "a length per tensor and rank"
        );
        let own = transfer::gathered_from_here(spans, bytes, self.rank, size);
        let others = transfer::gathered_here(spans, bytes, size);
        let part = rounds::piece_bytes(size);
        self.run(move |job| transfer::allgather(job, own, others, part))
    }

    fn alltoall(&mut self, spans: &[Span], bytes: &[usize]) -> Result<Phases, Error> {
        let size = self.size;
        assert_eq!(
            bytes.len(),
            spans.len() * size * size,
            "a length per tensor and two ranks"
        );
        let sent = transfer::sent_from_here(spans, bytes, self.rank, size);
        let received = transfer::received_here(spans, bytes, self.rank, size);
        let longest = transfer::longest_way(bytes, size);
        self.run(move |job| transfer::alltoall(job, sent, received, longest))
    }

    fn reducescatter(
        &mut self,
        spans: &[Span],
        bytes: &[usize],
        reduction: &Reduction,
        absent: &[usize],
    ) -> Result<Phases, Error> {
        let size = self.size;
        assert_eq!(
            bytes.len(),
            spans.len() * size,
            "a length per tensor and rank"
        );
        let shares = reducescatter::shares(spans, bytes, self.rank, size);
        let reducer = Reducer::new(self.level, reduction, size);
        let present = present(size, absent);
        self.run(move |job| reducescatter::reducescatter(job, shares, reducer, present))
    }
}

/// Returns the ranks that are not in `absent`, ascending.
fn present(size: usize, absent: &[usize]) -> Vec<usize> {
    (0..size).filter(|rank| !absent.contains(rank)).collect()
}
