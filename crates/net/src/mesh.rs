//! The connections of one rank, driven by the thread that owns them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{IoSliceMut, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use rustix::event::{PollFd, PollFlags, Timespec};
use smallvec::SmallVec;

use crate::address;
use crate::comm::Carrier;
use crate::config::{Config, VERSION};
use crate::control::{Control, NotUnderstood, Peer};
use crate::error::{Loss, NetError};
use crate::inbound::{Arrival, Place};
use crate::inbox::{Inbox, Receive};
use crate::link::{End, Link, Stage};
use crate::neighbours;
use crate::pending::{Op, Slice};

/// Interval of a rank's heartbeats to each neighbour.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// A neighbour that has sent nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often a rank looks for silent neighbours and late connections.
const TICK: Duration = Duration::from_millis(500);
/// Likewise while a connection is being made.
const CONNECTING_TICK: Duration = Duration::from_millis(50);
/// After a pause of this length between two looks it is this rank that was stopped.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a mesh that ends tries to send what is left.
const FAREWELL: Duration = Duration::from_secs(1);

/// Most connections at a time that have not proved that they know the secret: beyond, the oldest
/// one is closed.
const UNAUTHENTICATED_MAX: usize = 128;
/// Most refused connections that an error lists.
pub(crate) const NOTES_MAX: usize = 8;

/// Bytes that are read from one connection before others have their turn.
const READ_BUDGET: usize = 1 << 20;
/// Reads of so many bytes of a connection that has failed: more than its window.
const REST_READS_MAX: usize = 64;
/// Bytes of one read that does not go to the memory of a receive.
const SCRATCH_BYTES: usize = 64 << 10;
/// Bytes behind the memory of a receive that are read with it: the next header, and a short
/// message. More would be copied a second time where a long message goes on.
const BEHIND_BYTES: usize = 4 << 10;
/// A frame with so many bytes left is read to the memory of its receive.
const DIRECT_BYTES_MIN: usize = 4 << 10;

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
    start_timeout: Duration,
}

/// How far the mesh is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Rank 0 waits for the others.
    Gathering,
    /// Another rank waits for rank 0.
    Waiting,
    /// All ranks have come.
    Started,
    /// This rank has said all, and waits until the others have read it.
    Leaving,
}

/// State of a mesh.
pub(crate) struct Core {
    pub(crate) config: Config,
    poll: Poll,
    events: Option<Events>,
    pub(crate) listener: Option<TcpListener>,
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
    /// Why the mesh is over.
    pub(crate) verdict: Option<NetError>,
    pub(crate) left: BTreeSet<usize>,
    /// How attempts to connect to a rank have ended.
    pub(crate) attempts: HashMap<usize, End>,
    /// Connections that were refused, for an error.
    pub(crate) notes: Vec<String>,
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
            start_timeout: config.start_timeout,
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
    /// rendezvous.
    pub fn connect(&self, ranks: &[usize]) -> Result<(), NetError> {
        let mut core = self.core.borrow_mut();
        let deadline = Instant::now() + self.start_timeout;
        crate::rendezvous::connect(&mut core, ranks, deadline)
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
        let poll = Poll::new().map_err(NetError::system("epoll_create"))?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(NetError::system("eventfd"))?;
        let now = Instant::now();
        let core = Self {
            config: config.clone(),
            poll,
            events: Some(Events::with_capacity(256)),
            listener: None,
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

    // ---- connections ------------------------------------------------------------------------

    /// Listens on `address`.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, NetError> {
        let failed = |error: std::io::Error| NetError::Listen {
            rank: self.config.rank,
            address,
            reason: error.to_string(),
        };
        let mut listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        self.poll
            .registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(failed)?;
        self.listener = Some(listener);
        Ok(bound)
    }

    /// Begins to connect to `rank`; how it ends is in `by_rank` or in `attempts`.
    pub(crate) fn begin_connect(&mut self, rank: usize, address: SocketAddr) {
        self.attempts.remove(&rank);
        let outcome = address::connect(address, self.config.interface)
            .and_then(|stream| self.add(Link::connecting(stream, address, rank)));
        if let Err(error) = outcome {
            self.attempts.insert(rank, error.into());
        }
    }

    /// Listens where the other ranks look for rank 0.
    pub(crate) fn listen_as_server(&mut self) -> Result<(), NetError> {
        let server = self.config.server;
        if !self.config.on_all_interfaces {
            return self.listen(server).map(drop);
        }
        // The address of IPv6 accepts connections of both versions, where the kernel has IPv6.
        let any = |ip: IpAddr| SocketAddr::new(ip, server.port());
        self.listen(any(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|_| self.listen(any(Ipv4Addr::UNSPECIFIED.into())))
            .map(drop)
    }

    /// Whether a connection to `rank` is being made.
    pub(crate) fn is_connecting(&self, rank: usize) -> bool {
        let mut links = self.links.iter().flatten();
        links.any(|link| link.rank == Some(rank) && !link.is_open())
    }

    fn add(&mut self, mut link: Link) -> std::io::Result<()> {
        let free = self.links.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(LINKS + index);
        self.poll
            .registry()
            .register(&mut link.stream, token, interest)?;
        self.links[index] = Some(link);
        Ok(())
    }

    fn accept(&mut self) {
        loop {
            let Some(Ok((stream, address))) = self.listener.as_ref().map(TcpListener::accept)
            else {
                // Also after an error: the listener reports the next connection again.
                return;
            };
            let accepted = address::configure(&stream)
                .map_err(NetError::system("setsockopt"))
                .and_then(|()| Link::accepted(stream, address))
                .and_then(|link| self.add(link).map_err(NetError::system("epoll_ctl")));
            if let Err(error) = accepted {
                tracing::debug!(%address, %error, "a connection cannot be accepted");
            }
            let unauthenticated = |link: &Option<Link>| {
                let link = link.as_ref().filter(|link| link.is_unauthenticated())?;
                link.deadline
            };
            let waiting = self.links.iter().map(unauthenticated);
            if waiting.clone().flatten().count() > UNAUTHENTICATED_MAX {
                let oldest = waiting
                    .enumerate()
                    .filter(|(_, deadline)| deadline.is_some());
                if let Some((index, _)) = oldest.min_by_key(|(_, deadline)| *deadline) {
                    self.links[index] = None;
                }
            }
        }
    }

    /// The open connection to `rank`.
    pub(crate) fn link_to(&mut self, rank: usize) -> Option<&mut Link> {
        let index = *self.by_rank.get(&rank)?;
        self.links[index].as_mut()
    }

    /// Sends a control message to `rank`, if it is connected.
    pub(crate) fn tell(&mut self, rank: usize, message: &Control) {
        if let Some(&index) = self.by_rank.get(&rank) {
            if let Some(link) = &mut self.links[index] {
                link.outbound.push_control(message);
            }
            self.write(index);
        }
    }

    /// Sends a control message to all connected ranks.
    pub(crate) fn tell_all(&mut self, message: &Control) {
        let ranks: Vec<usize> = self.by_rank.keys().copied().collect();
        ranks.into_iter().for_each(|rank| self.tell(rank, message));
    }

    // ---- messages ---------------------------------------------------------------------------

    fn send(&mut self, to: usize, channel: u64, tag: u32, slice: Slice, op: &Rc<Op>) {
        op.open();
        if let Some(error) = self.error_with(to) {
            op.fail(&error);
            return;
        }
        let index = self.by_rank[&to];
        let link = self.links[index].as_mut().expect("it is open");
        link.outbound.push(channel, tag, slice, Rc::clone(op));
        if self.unsent.last() != Some(&index) {
            self.unsent.push(index);
        }
    }

    /// See [`Mesh::flush`].
    fn flush(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.drain(..).for_each(|index| self.write(index));
        self.unsent = unsent;
    }

    fn receive(&mut self, channel: u64, receive: Receive) {
        receive.op.open();
        let error = match receive.from {
            // What a rank has sent before it left can still be received.
            Some(from) if !self.inbox.has(channel, from, receive.tag) => self.error_with(from),
            _ => self.verdict.clone(),
        };
        let op = Rc::clone(&receive.op);
        if let Some(error) = error {
            op.fail(&error);
            return;
        }
        let from = receive.from;
        match self.inbox.post(channel, receive) {
            Ok(None) => {
                if let Some(from) = from {
                    self.awaited = self.by_rank.get(&from).copied();
                }
            }
            Ok(Some((from, taken))) => {
                if let Some(link) = self.link_to(from) {
                    link.take(channel, taken);
                    let index = self.by_rank[&from];
                    self.write(index);
                }
            }
            Err((from, problem)) => {
                let error = self.invalid(from, problem);
                op.fail(&error);
                self.give_up(from, error);
            }
        }
    }

    /// Why no message can be exchanged with `rank`, if so.
    fn error_with(&self, rank: usize) -> Option<NetError> {
        if let Some(error) = &self.verdict {
            return Some(error.clone());
        }
        if self.left.contains(&rank) {
            return Some(NetError::Left {
                rank,
                host: self.host(rank),
            });
        }
        let is_connected = self.by_rank.contains_key(&rank);
        assert!(is_connected, "rank {rank} was not connected");
        None
    }

    pub(crate) fn invalid(&self, rank: usize, problem: String) -> NetError {
        NetError::InvalidData {
            rank,
            host: self.host(rank),
            problem,
        }
    }

    /// Ends the mesh with `error`.
    pub(crate) fn fail_all(&mut self, error: NetError) {
        let error = self.verdict.get_or_insert(error).clone();
        self.inbox.fail(None, &error);
        for link in self.links.iter_mut().flatten() {
            link.outbound.fail(&error);
        }
    }

    /// Ends the mesh because `rank` is lost, and tells the others.
    fn lose(&mut self, rank: usize, loss: Loss) {
        let host = self.host(rank);
        self.give_up(rank, NetError::Lost { rank, host, loss });
    }

    /// Ends the mesh with `error`, whose cause is `rank`, and tells the others.
    fn give_up(&mut self, rank: usize, error: NetError) {
        if self.verdict.is_some() {
            return;
        }
        let reason = match &error {
            // The first rank's reason, whatever the number of ranks in between.
            NetError::Lost {
                loss: Loss::Reported { reason, .. },
                ..
            } => reason.clone(),
            NetError::Lost { loss, .. } => loss.to_string(),
            error => error.to_string(),
        };
        self.fail_all(error);
        self.tell_all(&Control::Gone {
            rank: u32::try_from(rank).expect("ranks are few"),
            reason,
        });
    }

    // ---- turns ------------------------------------------------------------------------------

    /// How often `tick` is due.
    fn tick_interval(&self) -> Duration {
        let mut links = self.links.iter().flatten();
        match links.any(|link| link.deadline.is_some()) {
            true => CONNECTING_TICK,
            false => TICK,
        }
    }

    /// See [`Mesh::turn`], except that the verdict is no error here.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> Result<bool, NetError> {
        self.flush();
        let tick = self.tick_interval();
        let timeout = match self.readable.is_empty() && !self.has_moved {
            true if timeout == Some(Duration::ZERO) => Duration::ZERO,
            true => {
                let until_tick = tick.saturating_sub(self.ticked.elapsed());
                timeout.map_or(until_tick, |timeout| timeout.min(until_tick))
            }
            // An operation that the caller has begun since the last turn may have completed others.
            false => Duration::ZERO,
        };
        let mut events = self.events.take().expect("returned below");
        match self.poll.poll(&mut events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => events.clear(),
            Err(error) => {
                self.events = Some(events);
                return Err(NetError::system("epoll_wait")(error));
            }
        }
        for event in &events {
            match event.token() {
                WAKER => {}
                LISTENER => self.accept(),
                Token(token) => {
                    let index = token - LINKS;
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        self.readable.push(index);
                    }
                    if event.is_writable() || event.is_error() {
                        self.write(index);
                    }
                }
            }
        }
        self.events = Some(events);
        let mut readable = std::mem::take(&mut self.readable);
        readable.sort_unstable();
        readable.dedup();
        readable.into_iter().for_each(|index| self.read(index));
        if self.ticked.elapsed() >= tick {
            self.tick();
        }
        Ok(std::mem::take(&mut self.has_moved))
    }

    /// See [`Mesh::glance`].
    fn glance(&mut self) -> Result<bool, NetError> {
        let Some(index) = self.awaited.filter(|_| self.readable.is_empty()) else {
            return self.turn(Some(Duration::ZERO));
        };
        self.flush();
        self.read(index);
        Ok(std::mem::take(&mut self.has_moved))
    }

    /// Closes connections that are late, sends heartbeats, and looks for silent neighbours.
    fn tick(&mut self) {
        let now = Instant::now();
        let pause = now.duration_since(std::mem::replace(&mut self.ticked, now));
        if pause > PAUSE_MAX {
            // What the others have sent meanwhile is still to be read.
            for link in self.links.iter_mut().flatten() {
                link.heard = now;
            }
        }
        for index in 0..self.links.len() {
            let deadline = self.links[index].as_ref().and_then(|link| link.deadline);
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.end(index, End::Timeout);
            }
        }
        if self.phase != Phase::Started {
            return;
        }
        let (rank, size) = (self.config.rank, self.config.size);
        if now >= self.next_beat {
            self.next_beat = now + BEAT_INTERVAL;
            for after in neighbours::after(rank, size) {
                self.tell(after, &Control::Beat);
            }
        }
        for before in neighbours::before(rank, size) {
            let Some(link) = self.link_to(before) else {
                continue;
            };
            let silent = now.duration_since(link.heard);
            if silent >= SILENCE_MAX && !link.is_leaving {
                let seconds = silent.as_secs();
                self.lose(before, Loss::Silent { seconds });
            }
        }
    }

    /// Begins the time of heartbeats.
    pub(crate) fn start(&mut self) {
        let now = Instant::now();
        self.phase = Phase::Started;
        (self.ticked, self.next_beat) = (now, now);
        for link in self.links.iter_mut().flatten() {
            link.heard = now;
        }
    }

    fn write(&mut self, index: usize) {
        if self.phase == Phase::Leaving {
            return;
        }
        let Some(Some(link)) = self.links.get_mut(index) else {
            return;
        };
        let outcome = match link.stage {
            Stage::Connecting => link.check_connected().map(|()| false),
            _ => link.outbound.write(&mut link.stream).map_err(End::from),
        };
        match outcome {
            Ok(has_written) => self.has_moved |= has_written,
            Err(end) => {
                self.read_rest(index);
                self.end(index, end);
            }
        }
    }

    /// Reads what had arrived when a write failed: the other side may have said why it ends.
    fn read_rest(&mut self, index: usize) {
        let Some(mut link) = self.links[index].take_if(|link| link.is_open()) else {
            return;
        };
        for _ in 0..REST_READS_MAX {
            if !matches!(self.read_link(&mut link, index), Ok(true)) {
                break;
            }
        }
        self.links[index] = Some(link);
    }

    fn read(&mut self, index: usize) {
        let Some(mut link) = self.links.get_mut(index).and_then(Option::take) else {
            return;
        };
        let outcome = self.read_link(&mut link, index);
        if let Some(error) = &self.verdict {
            link.outbound.fail(error);
        }
        self.links[index] = Some(link);
        match outcome {
            Ok(true) => self.readable.push(index),
            Ok(false) => {}
            Err(end) => return self.end(index, end),
        }
        self.write(index);
    }

    /// Reads from a connection that is taken out of the list at `index`; returns whether more may
    /// be there.
    fn read_link(&mut self, link: &mut Link, index: usize) -> Result<bool, End> {
        if matches!(link.stage, Stage::Connecting) {
            link.check_connected()?;
            if matches!(link.stage, Stage::Connecting) {
                return Ok(false);
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.read_all(link, index, &mut scratch);
        self.scratch = scratch;
        outcome
    }

    /// Reads until nothing is left (false) or the budget is used (true).
    fn read_all(&mut self, link: &mut Link, index: usize, scratch: &mut [u8]) -> Result<bool, End> {
        let mut budget = READ_BUDGET;
        while budget > 0 {
            let memory = self.memory(link)?;
            let direct = memory.as_ref().map_or(0, |(_, slice)| slice.bytes());
            let (outcome, wanted) = match &memory {
                Some((_, slice)) => {
                    let mut buffer = slice.buffer.borrow_mut();
                    let behind = &mut scratch[..BEHIND_BYTES];
                    let wanted = direct + behind.len();
                    let mut memory = [
                        IoSliceMut::new(&mut buffer[slice.range.clone()]),
                        IoSliceMut::new(behind),
                    ];
                    (link.stream.read_vectored(&mut memory), wanted)
                }
                None => (link.stream.read(scratch), scratch.len()),
            };
            let count = match outcome {
                Ok(0) => return Err(End::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            link.heard = Instant::now();
            self.has_moved = true;
            if let Some((place, _)) = memory {
                self.wrote(link, place, count.min(direct))?;
            }
            self.take_in(link, index, &scratch[..count.saturating_sub(direct)])?;
            if count < wanted {
                // The end of the connection is reported as a further event.
                return Ok(false);
            }
            budget = budget.saturating_sub(count);
        }
        Ok(true)
    }

    /// Place and memory of the next bytes, if they are many and their receive waits.
    fn memory(&mut self, link: &mut Link) -> Result<Option<(Place, Slice)>, End> {
        let Some((place, remaining)) = link
            .inbound
            .place()
            .filter(|(_, remaining)| *remaining >= DIRECT_BYTES_MIN)
        else {
            return Ok(None);
        };
        let from = link.rank.expect("an open connection has a rank");
        let (memory, cost) = self.inbox.memory(from, place).map_err(End::Invalid)?;
        link.take(place.channel, cost);
        Ok(memory.map(|mut slice| {
            slice.range = slice.part(0, remaining);
            (place, slice)
        }))
    }

    /// `count` bytes were read to the memory for `place`.
    fn wrote(&mut self, link: &mut Link, place: Place, count: usize) -> Result<(), End> {
        let from = link.rank.expect("an open connection has a rank");
        link.inbound.advance(count);
        let taken = self.inbox.wrote(from, place, count);
        link.count(place.channel, place.offset, count, taken)
    }

    /// Takes in bytes of a connection.
    fn take_in(&mut self, link: &mut Link, index: usize, bytes: &[u8]) -> Result<(), End> {
        let had_proof = link.is_open();
        let mut bytes = link.authenticate(bytes, &self.config.secret)?;
        if link.is_open() && !had_proof {
            self.introduce(link, index)?;
        }
        while !bytes.is_empty() {
            // The hello alone says whose the following bytes are.
            let count = match link.rank {
                None => bytes.len().min(link.inbound.missing()),
                Some(_) => bytes.len(),
            };
            let (head, rest) = bytes.split_at(count);
            bytes = rest;
            let mut controls = SmallVec::<[_; 2]>::new();
            let mut counts = SmallVec::<[_; 4]>::new();
            let (rank, inbox) = (link.rank, &mut self.inbox);
            link.inbound
                .feed(head, &mut |arrival| {
                    match arrival {
                        Arrival::Control(message) => {
                            controls.push(Control::decode(message, VERSION));
                        }
                        Arrival::Data(place, bytes) => {
                            let from = rank.ok_or("a message before the hello")?;
                            let taken = inbox.arrive(from, place, bytes)?;
                            counts.push((place, bytes.len(), taken));
                        }
                    }
                    Ok(())
                })
                .map_err(End::Invalid)?;
            for (place, count, taken) in counts {
                link.count(place.channel, place.offset, count, taken)?;
            }
            for control in controls {
                let control = control.map_err(|why| self.not_understood(link, why))?;
                self.control(link, index, control)?;
            }
        }
        Ok(())
    }

    fn not_understood(&mut self, link: &mut Link, why: NotUnderstood) -> End {
        match why {
            NotUnderstood::Malformed { bytes } => {
                End::Invalid(format!("a message of {bytes} bytes that cannot be read"))
            }
            NotUnderstood::Version { found } => self.refuse_version(link, &found),
        }
    }

    fn control(&mut self, link: &mut Link, index: usize, message: Control) -> Result<(), End> {
        match (message, link.rank) {
            (Control::Hello(hello), None) => self.on_hello(link, index, hello),
            (_, None) => Err(End::Invalid("a message before the hello".to_owned())),
            (Control::Start(peers), Some(0)) if self.phase == Phase::Waiting => {
                self.on_start(peers).map_err(End::Invalid)
            }
            (Control::Refused(reason), Some(_)) => Err(End::Refused(reason)),
            (Control::Later(reason), Some(_)) => Err(End::Later(reason)),
            (Control::Beat, Some(_)) => Ok(()),
            (Control::Credit { channel, taken }, Some(_)) => {
                link.outbound.credit(channel, taken).map_err(End::Invalid)
            }
            (Control::Bye, Some(_)) => {
                link.is_leaving = true;
                Ok(())
            }
            (Control::Gone { rank, reason }, Some(by)) if (rank as usize) < self.config.size => {
                let rank = rank as usize;
                if rank == self.config.rank {
                    self.fail_all(NetError::GivenUp { rank, reason });
                } else {
                    self.lose(rank, Loss::Reported { by, reason });
                }
                Ok(())
            }
            (message, Some(_)) => Err(End::Invalid(format!("an unexpected message {message:?}"))),
        }
    }

    /// Ends the connection at `index`.
    fn end(&mut self, index: usize, end: End) {
        let Some(mut link) = self.links.get_mut(index).and_then(Option::take) else {
            return;
        };
        let address = link.address;
        let open = link
            .rank
            .filter(|rank| self.by_rank.get(rank) == Some(&index));
        let Some(rank) = open else {
            tracing::debug!(%address, %end, "a connection has ended before it was open");
            match link.rank {
                Some(rank) => {
                    self.attempts.insert(rank, end);
                }
                None => self.note(&link, &end),
            }
            return;
        };
        self.by_rank.remove(&rank);
        if link.is_leaving {
            let error = NetError::Left {
                rank,
                host: self.host(rank),
            };
            link.outbound.fail(&error);
            self.inbox.fail(Some(rank), &error);
            self.left.insert(rank);
            return;
        }
        match (self.phase, end) {
            (Phase::Gathering, end) => {
                self.push_note(format!("rank {rank} from {address}: {end}"));
                self.peers.remove(&rank);
            }
            (Phase::Waiting, end) => {
                self.attempts.insert(rank, end);
            }
            (Phase::Started, End::Invalid(problem)) => {
                let error = self.invalid(rank, problem);
                self.give_up(rank, error);
            }
            (Phase::Leaving, _) => {}
            (Phase::Started, End::Closed) => self.lose(rank, Loss::Closed),
            (Phase::Started, end) => {
                let reason = end.to_string();
                self.lose(rank, Loss::Failed { reason });
            }
        }
        if let Some(error) = &self.verdict {
            link.outbound.fail(error);
        }
    }

    /// Keeps the reason why a connection was refused, for the error about missing ranks.
    fn note(&mut self, link: &Link, end: &End) {
        let ip = link.address.ip();
        match end {
            End::WrongSecret => {
                self.push_note(format!("a connection from {ip} with another secret"))
            }
            End::Refused(reason) | End::Later(reason) => self.push_note(reason.clone()),
            _ => {}
        }
    }

    fn push_note(&mut self, note: String) {
        tracing::warn!("{note}");
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// See [`Mesh::say_farewell`].
    fn say_farewell(&mut self) {
        // Without a closing message, the others report this rank as lost.
        let is_orderly = self.verdict.is_none() && !std::thread::panicking();
        let is_first = !std::mem::replace(&mut self.has_said_farewell, true);
        if self.phase == Phase::Started && is_orderly && is_first {
            self.tell_all(&Control::Bye);
        }
    }

    /// Tells the others that this rank needs nothing more, and sends what is left.
    fn leave(&mut self) {
        self.listener = None;
        self.say_farewell();
        let is_busy = |link: &Link| link.is_open() && !link.outbound.is_idle();
        self.turn_while(is_busy);
        self.phase = Phase::Leaving;
        for link in self.links.iter().flatten() {
            // The other side may have closed it already.
            let _ = link.stream.shutdown(std::net::Shutdown::Write);
        }
        // A socket that is closed before everything was read discards what it has not sent yet. The
        // other side closes the connection when it has read the end.
        self.turn_while(Link::is_open);
    }

    /// Turns as long as a connection `is` so, but not for long.
    fn turn_while(&mut self, is: impl Fn(&Link) -> bool) {
        let began = Instant::now();
        while began.elapsed() < FAREWELL && self.links.iter().flatten().any(&is) {
            if self.turn(Some(CONNECTING_TICK)).is_err() {
                break;
            }
        }
    }
}
