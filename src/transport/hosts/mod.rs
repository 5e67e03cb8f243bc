//! Transport between hosts: shared memory within a host, and operations of the engine (`hosts/`)
//! between the hosts.
//!
//! **A cycle**: the first rank of each host reads the blocks of its ranks in shared memory and
//! combines them. The first ranks of all hosts exchange the combinations in ⌈log₂ hosts⌉
//! [`rounds`]; a combination has the same size whatever the number of ranks. The result comes back
//! through shared memory. Frames of new tensors go to rank 0 and back through the first ranks as
//! well. A job on one host sends no message.
//!
//! **Start of a cycle**: a rank that submits the first tensor for it rings its host's bells and
//! sends a message to the hosts 1, 2, 4, … places on, which do the same. Without tensors there are
//! no messages. A rank cannot know without a message whether the ranks of *other* hosts would start
//! at once. So a host begins when its own ranks are eager, or when the cycle time has passed, and
//! waits in the rounds for the others.
//!
//! A wait within the host checks the heartbeat: it ends when a rank of another host is lost.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, PeerError};
use ronde_net::neighbours;

use crate::hosts::{Bell, Comm, CommError, Communicators, HostsJob, Waiting, World};
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::transport::block::Prefix;
use crate::transport::local::own_bell;
use crate::transport::rounds::{self, Exchanged};
use crate::transport::{
    Combine, Contribution, Doorbell, FRAME_BYTES_MAX, Transport, check_length, check_own_frame,
    leave_when_dropped,
};

mod doorbell;
mod places;
mod record;
#[cfg(test)]
mod tests;

use doorbell::HostsDoorbell;
pub(crate) use places::HostLayout;
use places::{length_of, pack, packed_bytes_max, unpack};
use record::Record;

/// After a rank of this host has given up, how long the heartbeat may take to report the reason.
const VERDICT_PATIENCE: Duration = Duration::from_secs(1);
/// Interval of the checks during that time.
const VERDICT_INTERVAL: Duration = Duration::from_millis(5);

/// One rank's end of the transport between hosts.
pub(crate) struct HostsTransport {
    job: Arc<HostsJob>,
    rank: usize,
    members: Arc<[usize]>,
    is_world: bool,
    places: HostLayout,
    set: u64,
    doorbell: Arc<HostsDoorbell>,
    /// The last cycle entered; the doorbell of a rank without others on its host knows by it what
    /// has been answered.
    entered: Arc<AtomicU64>,
    memory: Memory,
    left: bool,
}

/// Kept for its memory.
#[derive(Default)]
struct Memory {
    own: Vec<u8>,
    /// What each rank of this host brings.
    brought: Vec<Vec<u8>>,
    /// The combination of all blocks, and its words.
    combined: Vec<u8>,
    words: Vec<u64>,
}

/// Tag of the rounds.
const ROUNDS_TAG: u16 = 0;
/// Tag of the frames that are gathered.
const GATHER_TAG: u16 = 1;
/// Largest number of bytes of one message of a gather: MPI counts them in 32 bits.
const PIECE_BYTES: usize = 1 << 30;

impl HostsTransport {
    /// The transport of set rank `rank` among `members`, over `communicators` of `job`, with the
    /// hosts of `places`.
    pub(crate) fn new(
        job: &Arc<HostsJob>,
        communicators: Communicators,
        rank: usize,
        members: &Arc<[usize]>,
        is_world: bool,
        places: HostLayout,
    ) -> Self {
        let entered = if is_world {
            Arc::clone(&job.entered)
        } else {
            Arc::default()
        };
        let local: Arc<dyn Doorbell> = match &places.here {
            Some(here) => {
                let (heartbeat, set) = (Arc::clone(&job.heartbeat), communicators.set);
                here.heed(Box::new(move |waited| heartbeat.check_outside(set, waited)));
                here.doorbell()
            }
            None => Arc::new(own_bell(Arc::clone(&entered), job.spin)),
        };
        let doorbell = Arc::new(HostsDoorbell::new(&job.heartbeat, communicators.set, local));
        let count = places.hosts.len();
        let next_hosts = neighbours::distances(count)
            .map(|distance| members[places.hosts[(places.own + distance) % count][0]])
            .collect();
        let bell = Arc::clone(&doorbell) as Arc<dyn Bell>;
        job.heartbeat
            .listen(communicators.set, members, next_hosts, bell);
        Self {
            job: Arc::clone(job),
            rank,
            members: Arc::clone(members),
            is_world,
            places,
            set: communicators.set,
            doorbell,
            entered,
            memory: Memory::default(),
            left: false,
        }
    }

    fn guard(&self) -> Waiting<'_> {
        Waiting {
            heartbeat: &self.job.heartbeat,
            set: self.set,
        }
    }

    /// Whether this rank exchanges messages for its host.
    fn leads(&self) -> bool {
        self.places.hosts[self.places.own][0] == self.rank
    }

    /// Returns the heartbeat's error for the job, if it has one, and the error from this host
    /// otherwise. A rank that ends because of a lost rank on another host fails the ranks of its
    /// own host, but is not the cause.
    fn error_of_host(&self, error: Error) -> Error {
        let began = Instant::now();
        loop {
            match (self.job.heartbeat.check_set(self.set), &error) {
                // The host has the full text of an error of its own rank.
                (
                    Err(Error::Peer(PeerError::Failed { rank, .. })),
                    Error::Peer(PeerError::Failed { rank: here, .. }),
                ) if rank == *here => {
                    return error;
                }
                (Err(verdict), _) => return verdict,
                (Ok(()), Error::Peer(PeerError::Failed { .. }))
                    if began.elapsed() < VERDICT_PATIENCE =>
                {
                    std::thread::sleep(VERDICT_INTERVAL);
                }
                (Ok(()), _) => return error,
            }
        }
    }

    /// Brings this host's frames to the first of its ranks, in their order.
    fn bring(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        match &mut self.places.here {
            Some(here) => here
                .gather(frame, frames)
                .map_err(|error| self.error_of_host(error)),
            None => {
                frames.resize_with(1, Vec::new);
                frames[0].clear();
                frames[0].extend_from_slice(frame);
                Ok(())
            }
        }
    }

    /// Brings the frame of the first rank of this host to the others.
    fn hand_out(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        match &mut self.places.here {
            Some(here) => here
                .broadcast(frame)
                .map_err(|error| self.error_of_host(error)),
            None => Ok(()),
        }
    }

    /// An invalid block or combination of blocks that `rank` has sent.
    fn invalid(&self, rank: usize, problem: String) -> Error {
        Error::Peer(PeerError::InvalidData {
            rank: self.members[rank],
            problem,
        })
    }

    /// What `rank` sent is not what everyone sends in this place.
    fn out_of_turn(&self, rank: usize, found: String, expected: String) -> Error {
        Error::Peer(PeerError::InvalidData {
            rank: self.members[rank],
            problem: format!("it is in {found}, this rank in {expected}"),
        })
    }

    /// Combines the blocks that this host's ranks have brought, with those of all hosts.
    fn combine_hosts(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        let own = Prefix::new(cycle, block);
        combine.start(block.fact_words());
        let here = self.places.hosts[self.places.own].iter();
        for (&rank, brought) in here.zip(&self.memory.brought) {
            Record::read(brought, own, block)
                .and_then(|record| combine.add(rank, &record))
                .map_err(|problem| self.invalid(rank, problem))?;
        }
        let mut exchanged = Exchanged::new(combine.partial(), own);
        if let Some(leaders) = self.places.leaders {
            let (own, count) = (self.places.own, self.places.hosts.len());
            let exchange = move |world: Rc<World>| async move {
                let comm = world.comm(leaders);
                let swap = async |to: usize, from: usize, message: Vec<u8>| {
                    let room = vec![0; message.len()];
                    let sent = comm.send(message, to, ROUNDS_TAG)?;
                    let came = comm.receive(room, Some(from), ROUNDS_TAG)?.await?;
                    sent.await?;
                    Ok(came)
                };
                rounds::exchange(own, count, exchanged, swap).await
            };
            exchanged = self
                .job
                .engine
                .run(self.job.spin, &self.guard(), exchange)?
                .map_err(|invalid| {
                    self.invalid(self.places.hosts[invalid.host][0], invalid.problem)
                })?;
        }
        self.memory.combined = exchanged.message();
        Ok(())
    }
}

/// Gathers the packed frames of all hosts on the first one, which has `limits` for their lengths;
/// the others get none. An error is the host that exceeds its limit.
async fn gather_packed(
    comm: Comm,
    packed: Vec<u8>,
    is_root: bool,
    limits: &[usize],
) -> Result<Result<Vec<Vec<u8>>, usize>, CommError> {
    let count = limits.len();
    let length = (packed.len() as u64).to_le_bytes().to_vec();
    if !is_root {
        comm.gather(length, Vec::new(), 8, 0)?.await?;
        for piece in packed.chunks(PIECE_BYTES) {
            comm.send(piece.to_vec(), 0, GATHER_TAG)?.await?;
        }
        return Ok(Ok(Vec::new()));
    }
    let (_, lengths) = comm.gather(length, vec![0; 8 * count], 8, 0)?.await?;
    let lengths: Vec<usize> = lengths.chunks_exact(8).map(length_of).collect();
    let mut both = lengths.iter().zip(limits);
    if let Some(host) = both.position(|(bytes, limit)| bytes > limit) {
        return Ok(Err(host));
    }
    let receive = |host: usize, bytes: usize| {
        comm.receive(vec![0; bytes.min(PIECE_BYTES)], Some(host), GATHER_TAG)
    };
    // One of each host, before the first is waited for.
    let mut pieces = Vec::with_capacity(count);
    for (host, &bytes) in lengths.iter().enumerate().skip(1) {
        pieces.push((host, bytes, receive(host, bytes)?));
    }
    let mut hosts = vec![packed];
    for (host, bytes, first) in pieces {
        let mut whole = first.await?;
        while whole.len() < bytes {
            whole.extend(receive(host, bytes - whole.len())?.await?);
        }
        hosts.push(whole);
    }
    Ok(Ok(hosts))
}

impl Transport for HostsTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// Ranks of one host and boot do; others have clocks of their own.
    fn shares_clock(&self) -> bool {
        self.places.hosts.len() == 1
    }

    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        self.entered.store(cycle, Ordering::Release);
        if let Some(here) = &self.places.here {
            here.enter(cycle);
        }
        let mut memory = std::mem::take(&mut self.memory);
        record::write(cycle, block, &mut memory.own);
        self.bring(&memory.own, &mut memory.brought)?;
        self.memory = memory;
        if self.leads() {
            self.combine_hosts(cycle, block, combine)?;
        }
        let mut combined = std::mem::take(&mut self.memory.combined);
        self.hand_out(&mut combined)?;
        let own = Prefix::new(cycle, block);
        let adopted = rounds::read(&combined, own, &mut self.memory.words)
            .and_then(|()| combine.adopt(&self.memory.words, self.rank, block));
        self.memory.combined = combined;
        adopted.map_err(|problem| self.invalid(self.places.hosts[self.places.own][0], problem))
    }

    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        check_own_frame(self.members[self.rank], frame)?;
        let mut brought = std::mem::take(&mut self.memory.brought);
        self.bring(frame, &mut brought)?;
        frames.clear();
        if self.leads() {
            let hosts = match self.places.leaders {
                None => vec![pack(&brought)],
                Some(leaders) => {
                    let (packed, is_root) = (pack(&brought), self.rank == 0);
                    let limits: Vec<usize> = self.places.sizes().map(packed_bytes_max).collect();
                    self.job
                        .engine
                        .run(self.job.spin, &self.guard(), move |world| async move {
                            gather_packed(world.comm(leaders), packed, is_root, &limits).await
                        })?
                        .map_err(|host| PeerError::InvalidData {
                            rank: self.members[self.places.hosts[host][0]],
                            problem: "requests longer than all ranks of its host may send"
                                .to_owned(),
                        })?
                }
            };
            frames.resize_with(
                if self.rank == 0 {
                    self.members.len()
                } else {
                    0
                },
                Vec::new,
            );
            for (ranks, packed) in self.places.hosts.iter().zip(&hosts).take(frames.len()) {
                let unpacked = unpack(packed, ranks.len()).ok_or_else(|| {
                    let found = format!("a gather with {} bytes", packed.len());
                    self.out_of_turn(ranks[0], found, format!("one of {} frames", ranks.len()))
                })?;
                for (&rank, frame) in ranks.iter().zip(unpacked) {
                    frames[rank] = frame;
                }
            }
        }
        self.memory.brought = brought;
        Ok(())
    }

    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(leaders) = self.places.leaders {
            let is_root = self.rank == 0;
            if is_root {
                check_own_frame(self.members[0], frame)?;
            }
            let said = if is_root {
                std::mem::take(frame)
            } else {
                Vec::new()
            };
            *frame = self
                .job
                .engine
                .run(self.job.spin, &self.guard(), move |world| async move {
                    let comm = world.comm(leaders);
                    let length = (said.len() as u64).to_le_bytes().to_vec();
                    let length = length_of(&comm.broadcast(length, 8, 0)?.await?);
                    if length > FRAME_BYTES_MAX {
                        return Ok(Err(length as u64));
                    }
                    let room = if is_root { said } else { vec![0; length] };
                    comm.broadcast(room, length, 0)?.await.map(Ok)
                })?
                .or_else(|length| check_length(self.members[0], length).map(|_| Vec::new()))?;
        }
        self.hand_out(frame)
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::clone(&self.doorbell) as Arc<dyn Doorbell>
    }

    fn check_peers(&mut self) -> Result<(), Error> {
        self.job.heartbeat.check_set(self.set)?;
        match &mut self.places.here {
            Some(here) => here
                .check_peers()
                .map_err(|error| self.error_of_host(error)),
            None => Ok(()),
        }
    }

    fn leave(&mut self, because: Option<&Error>) {
        if !std::mem::replace(&mut self.left, true) {
            // The heartbeat first: a rank of this host that notices the departure asks the heartbeat
            // for the reason.
            self.job.heartbeat.leave(self.set, self.is_world, because);
            if let Some(here) = &mut self.places.here {
                here.leave(because);
            }
        }
    }
}

impl Drop for HostsTransport {
    /// Leaves, if nobody has done it before.
    fn drop(&mut self) {
        let rank = self.members[self.rank];
        leave_when_dropped(self, rank);
    }
}
