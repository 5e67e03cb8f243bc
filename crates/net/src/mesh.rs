//! The connections of one rank, driven by the thread that owns them.

mod connections;
mod messages;
mod reading;
mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Poll, Token};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::comm::Carrier;
use crate::config::Config;
use crate::control::Peer;
use crate::error::NetError;
use crate::inbox::{Inbox, Receive};
use crate::link::{End, Link};
use crate::memory::{Memory, Slice};
use crate::pending::Op;

/// How often a rank looks for late connections while one is being made.
const CONNECTING_TICK: Duration = Duration::from_millis(50);
/// Bytes of one read that does not go to the memory of a receive.
const SCRATCH_BYTES: usize = 64 << 10;

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
/// Token of the first connection.
const LINKS: usize = 2;

/// Ends a [`Mesh::turn`] that waits, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// See the type. An error of the operating system only delays the turn.
    pub fn wake(&self) {
        if let Err(error) = self.0.wake() {
            tracing::debug!(%error, "cannot wake the thread of a mesh");
        }
    }
}

/// Tells when a [turn](Mesh::turn) of a mesh has something to do, on any thread.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<OwnedFd>);

impl Readiness {
    /// Waits for at most `timeout` until something can be sent or received, or the [`Waker`] is
    /// used. It may return earlier.
    pub fn wait(&self, timeout: Duration) {
        let mut descriptors = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        if let Err(error) = rustix::event::poll(&mut descriptors, timeout.as_ref())
            && error != rustix::io::Errno::INTR
        {
            // It may come back at once.
            tracing::debug!(%error, "cannot wait for the connections of a mesh");
            std::thread::sleep(CONNECTING_TICK);
        }
    }
}

/// The connections of one rank to the other ranks of its job. It leaves the job when it is dropped.
pub struct Mesh {
    pub(crate) core: RefCell<Core>,
    waker: Waker,
    readiness: Readiness,
    rank: usize,
    peers: Vec<Peer>,
    connect_timeout: Duration,
}

/// Phase of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Rank 0 waits for the others.
    Gathering,
    /// Another rank waits for rank 0.
    Waiting,
    /// All ranks have come.
    Started,
    /// This rank has sent its last message, and waits until the others have read it.
    Leaving,
}

/// State of a mesh.
pub(crate) struct Core {
    pub(crate) config: Config,
    poll: Poll,
    events: Option<Events>,
    /// Listening sockets: one, or rank 0's at all of its addresses.
    pub(crate) listeners: Vec<TcpListener>,
    links: Vec<Option<Link>>,
    /// Open connections by rank.
    pub(crate) by_rank: HashMap<usize, usize>,
    pub(crate) phase: Phase,
    /// On rank 0 until the start: the ranks that have come. Later, on all: all ranks.
    pub(crate) peers: BTreeMap<usize, Peer>,
    inbox: Inbox,
    /// Connections with bytes that were not read yet.
    readable: Vec<usize>,
    /// Connections with messages that were added since the last flush.
    unsent: Vec<usize>,
    /// Connection to the sender of the latest receive that waits.
    awaited: Option<usize>,
    /// Error that has ended the mesh.
    pub(crate) verdict: Option<NetError>,
    pub(crate) left: BTreeSet<usize>,
    /// How attempts to connect to a rank have ended.
    pub(crate) attempts: HashMap<usize, End>,
    /// Connections that were refused, for an error.
    pub(crate) notes: Vec<String>,
    /// Ranks that have introduced themselves, also those that were refused.
    pub(crate) arrived: BTreeSet<usize>,
    ticked: Instant,
    next_beat: Instant,
    scratch: Vec<u8>,
    /// Something was sent or received since the end of the last turn.
    has_moved: bool,
    has_said_farewell: bool,
}

impl Mesh {
    /// Connects this rank with the others of its job: see the [crate]. It listens only if the job
    /// has several ranks.
    ///
    /// # Errors
    /// Ranks that do not come in time or do not match; an address that cannot be used.
    pub fn join(config: &Config) -> Result<Rc<Self>, NetError> {
        let (core, waker) = Core::new(config)?;
        let epoll = core.poll.registry().as_fd().try_clone_to_owned();
        let epoll = epoll.map_err(NetError::system("fcntl"))?;
        let mut mesh = Self {
            core: RefCell::new(core),
            waker: Waker(waker),
            readiness: Readiness(Arc::new(epoll)),
            rank: config.rank,
            peers: Vec::new(),
            connect_timeout: config.connect_timeout(),
        };
        mesh.peers = crate::rendezvous::run(&mut mesh.core.borrow_mut())?;
        Ok(Rc::new(mesh))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// All ranks, in order.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Ends a turn from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Connects this rank to `ranks`, which make the same call with this rank; drives the mesh
    /// until the connections exist. Ranks that are connected already need no call.
    ///
    /// # Errors
    /// A rank that cannot be reached, or does not make the call within the time limit of the
    /// rendezvous, or within 30 s.
    pub fn connect(&self, ranks: &[usize]) -> Result<(), NetError> {
        let mut core = self.core.borrow_mut();
        let deadline = Instant::now() + self.connect_timeout;
        crate::rendezvous::connect(&mut core, ranks, deadline)
    }

    /// Connects this rank to all others at the start of the job, as [`connect`](Self::connect)
    /// does. On an error the mesh is over, and the other ranks learn the reason.
    ///
    /// # Errors
    /// As there.
    pub fn connect_all(&self) -> Result<(), NetError> {
        let mut core = self.core.borrow_mut();
        let all: Vec<usize> = (0..self.size()).collect();
        let deadline = Instant::now() + self.connect_timeout;
        crate::rendezvous::connect_at_start(&mut core, &all, deadline)
    }

    /// Sends and receives what can be, after waiting for at most `timeout` until something can be
    /// (`None`: until it can). Returns whether anything was sent or received since the end of the
    /// last turn.
    ///
    /// # Errors
    /// A lost rank or invalid data: the mesh is over, and all of its operations fail. The caller
    /// may go on calling this, so that other ranks learn the reason.
    pub fn turn(&self, timeout: Option<Duration>) -> Result<bool, NetError> {
        let mut core = self.core.borrow_mut();
        let has_moved = core.turn(timeout)?;
        core.check()?;
        Ok(has_moved)
    }

    /// Like a [`turn`](Self::turn) that does not wait, but it reads only the connection to the
    /// sender of the latest receive: one system call in place of two, for a caller that has just
    /// sent something and expects an answer. It must not take the place of all turns.
    ///
    /// # Errors
    /// As there.
    pub fn glance(&self) -> Result<bool, NetError> {
        let mut core = self.core.borrow_mut();
        let has_moved = core.glance()?;
        core.check()?;
        Ok(has_moved)
    }

    /// Whether the last turn left something to be read, because it had read much from one connection.
    pub fn has_more(&self) -> bool {
        !self.core.borrow().readable.is_empty()
    }

    /// Sends the messages that operations have begun to send, as far as that does not block; each
    /// turn does so too. Messages of several operations to one rank leave together.
    pub fn flush(&self) {
        self.core.borrow_mut().flush();
    }

    /// Longest time until the next [`turn`](Self::turn) is due, if nothing can be sent or received
    /// before.
    pub fn patience(&self) -> Duration {
        let core = self.core.borrow();
        core.tick_interval().saturating_sub(core.ticked.elapsed())
    }

    /// Returns what another thread can wait for while no thread turns.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Returns the reason why the mesh is over, if it is.
    ///
    /// # Errors
    /// That reason.
    pub fn check(&self) -> Result<(), NetError> {
        self.core.borrow().check()
    }

    /// Tells the other ranks that this one needs nothing more of them. They report its later end as
    /// an orderly one. What was sent before still reaches them.
    pub fn say_farewell(&self) {
        self.core.borrow_mut().say_farewell();
    }
}

impl Carrier for Mesh {
    fn send(&self, to: usize, channel: u64, tag: u32, slice: Slice, op: &Rc<Op>) {
        self.core.borrow_mut().send(to, channel, tag, slice, op);
    }

    fn receive(&self, channel: u64, receive: Receive) {
        self.core.borrow_mut().receive(channel, receive);
    }

    fn detach(&self, memory: &Rc<dyn Memory>) {
        self.core.borrow_mut().detach(memory);
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.core.get_mut().leave();
    }
}

impl Core {
    fn new(config: &Config) -> Result<(Self, Arc<mio::Waker>), NetError> {
        assert!(
            config.rank < config.size,
            "rank {} of {} ranks",
            config.rank,
            config.size
        );
        // Each connection is an open file, and rank 0 has one to each rank.
        crate::open_files::raise_open_files_limit();
        let poll = Poll::new().map_err(NetError::system("epoll_create"))?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(NetError::system("eventfd"))?;
        let now = Instant::now();
        let core = Self {
            config: config.clone(),
            poll,
            events: Some(Events::with_capacity(256)),
            listeners: Vec::new(),
            links: Vec::new(),
            by_rank: HashMap::new(),
            phase: match config.rank {
                0 => Phase::Gathering,
                _ => Phase::Waiting,
            },
            peers: BTreeMap::new(),
            inbox: Inbox::default(),
            readable: Vec::new(),
            unsent: Vec::new(),
            awaited: None,
            verdict: None,
            left: BTreeSet::new(),
            attempts: HashMap::new(),
            notes: Vec::new(),
            arrived: BTreeSet::new(),
            ticked: now,
            next_beat: now,
            scratch: vec![0; SCRATCH_BYTES],
            has_moved: false,
            has_said_farewell: false,
        };
        Ok((core, Arc::new(waker)))
    }

    pub(crate) fn check(&self) -> Result<(), NetError> {
        self.verdict.clone().map_or(Ok(()), Err)
    }

    /// Name of the host of `rank`, as far as it is known.
    pub(crate) fn host(&self, rank: usize) -> String {
        match self.peers.get(&rank) {
            Some(peer) => peer.host.clone(),
            None => "an unknown host".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::error::Loss;
    use crate::reservation::Reservation;
    use crate::secret::Secret;

    /// Turns until the mesh is over.
    fn end_of(core: &mut Core) -> NetError {
        let began = Instant::now();
        while core.verdict.is_none() {
            core.turn(Some(CONNECTING_TICK)).unwrap();
            assert!(began.elapsed() < Duration::from_secs(60), "it goes on");
        }
        core.verdict.clone().unwrap()
    }

    /// Checks that rank 1 is lost because rank `by` has no connection to it; another rank may have
    /// passed that on.
    fn assert_lost_by(by: usize, end: &NetError) {
        let NetError::Lost {
            rank: 1,
            loss: Loss::Reported { reason, .. },
            ..
        } = end
        else {
            panic!("{end}")
        };
        let text = format!("no connection with rank {by} on ");
        assert!(reason.contains(&text), "{reason}");
    }

    #[test]
    fn a_rank_that_cannot_connect_to_a_neighbour_tells_the_others_the_reason() {
        let reserved = Reservation::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = |rank| Config {
            start_timeout: Duration::from_secs(if rank == 2 { 4 } else { 60 }),
            ..Config::new(rank, 3, reserved.address(), Secret::of_job("a"), "a")
        };
        let zero = config(0);
        let zero = std::thread::spawn(move || {
            let mesh = Mesh::join(&zero).unwrap();
            end_of(&mut mesh.core.borrow_mut())
        });
        // Rank 1 introduces itself, and then listens no more.
        let (mut one, _waker) = Core::new(&config(1)).unwrap();
        while !one.by_rank.contains_key(&0) {
            if !one.is_connecting(0) {
                one.begin_connect(0, reserved.address());
            }
            one.turn(Some(CONNECTING_TICK)).unwrap();
        }
        one.listeners.clear();
        let two = config(2);
        let two = std::thread::spawn(move || Mesh::join(&two).err().unwrap());
        let own = end_of(&mut one);
        assert!(matches!(own, NetError::GivenUp { rank: 1, .. }), "{own}");
        let two = two.join().unwrap();
        assert!(matches!(two, NetError::Lost { rank: 1, .. }), "{two}");
        assert_lost_by(2, &zero.join().unwrap());
    }

    #[test]
    fn a_rank_that_cannot_connect_to_all_tells_the_others_the_reason() {
        const SIZE: usize = 6; // ranks 1 and 4 are no neighbours
        let reserved = Reservation::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, ended) = (reserved.address(), Arc::new(Barrier::new(SIZE)));
        let run = move |rank| {
            let config = Config::new(rank, SIZE, address, Secret::of_job("a"), "a");
            let mut mesh = Rc::into_inner(Mesh::join(&config).unwrap()).unwrap();
            if rank != 4 {
                let end = end_of(mesh.core.get_mut());
                ended.wait(); // a connection that ends would be another reason
                return end;
            }
            mesh.connect_timeout = Duration::from_secs(1);
            let nowhere = Reservation::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let peer = mesh.core.get_mut().peers.get_mut(&1).unwrap();
            peer.address = nowhere.address();
            let end = mesh.connect_all().unwrap_err();
            ended.wait();
            end
        };
        let ranks: Vec<_> = (0..SIZE)
            .map(|rank| {
                let run = run.clone();
                std::thread::spawn(move || run(rank))
            })
            .collect();
        for (rank, thread) in ranks.into_iter().enumerate() {
            match (rank, thread.join().unwrap()) {
                (1, end) => assert!(matches!(end, NetError::GivenUp { rank: 1, .. }), "{end}"),
                (4, end) => assert!(matches!(end, NetError::Lost { rank: 1, .. }), "{end}"),
                (_, end) => assert_lost_by(4, &end),
            }
        }
    }
}
