//! Heartbeat: liveness of the ranks of other hosts, departures and failures, and requests for a
//! cycle.
//!
//! The processes of another host cannot be observed directly, and a broken network reports nothing.
//! So every rank sends its neighbours a message once a second; a rank without a message for
//! [`SILENCE_MAX`] is lost. Departures and failures are forwarded the same way: a rank that
//! receives new information sends it to its own neighbours. Requests for a cycle are forwarded from
//! host to host; within a host doorbells ring. An idle job sends only heartbeats: ⌈log₂ n⌉ messages
//! per second and rank.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ronde_net::{Loss, NetError, neighbours};

use super::comm::{Comm, CommError, Pending};
use super::engine::{Engine, Guard, LAST_WORDS, turn};
use super::mpi::finalize::Inbox;
use super::world::{CommId, World};
use crate::error::{Error, PeerError};
use crate::rendezvous::Patience;
use crate::shm::Watch;
use crate::shm::primitive::AtomicU64;
use crate::sync::lock;

mod message;

use message::{Envelope, How, MESSAGE_BYTES, Message};

/// Interval of the heartbeats of one rank.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// A rank without a heartbeat for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long after a rank has left what it sent before may still be on its way.
const LEFT_GRACE: Duration = Duration::from_millis(300);

/// Tag of these messages.
const TAG: u16 = 0;
/// Process sets of which a ring is kept until this rank has created them too.
const EARLY_MAX: usize = 1 << 12;

/// What a process set's ring reaches on this rank.
pub(crate) trait Bell: Send + Sync {
    /// A rank requests this cycle; returns whether the request is new on this host.
    fn rung(&self, cycle: u64) -> bool;

    /// A member has left or failed: wakes threads that sleep with work pending.
    fn alarm(&self);
}

/// Exchange of liveness, departures and requests for a cycle with other hosts. One per context,
/// shared by its process sets and all their threads.
pub(crate) struct Heartbeat {
    engine: Arc<Engine>,
    rank: usize,
    size: usize,
    /// Host names, by job rank.
    hosts: Vec<String>,
    patience: Patience,
    /// Cycles of the set of all ranks that this rank has entered.
    entered: Arc<AtomicU64>,
    /// Messages to neighbours.
    outbox: Mutex<VecDeque<(Message, Vec<usize>)>>,
    sets: Mutex<HashMap<u64, Set>>,
    /// Rings for sets that this rank is still about to listen to.
    early: Mutex<HashMap<u64, u64>>,
    /// The error that aborts all process sets.
    verdict: Mutex<Option<Error>>,
    /// Cycles that those had entered of whom this rank hears directly.
    heard: Mutex<HashMap<usize, u64>>,
    /// This rank needs nothing more.
    over: AtomicBool,
    /// The heartbeat's task has ended.
    ended: AtomicBool,
    warnings: AtomicU64,
}

/// State of a process set.
struct Set {
    members: Arc<[usize]>,
    /// Whom this rank tells of rings: a rank of each host that its own host tells.
    next_hosts: Vec<usize>,
    /// Rung under the lock of the sets, so that it is not rung after its set was removed: it would
    /// keep the host's shared memory.
    bell: Arc<dyn Bell>,
    /// The highest cycle that this rank has told them of.
    told: u64,
    /// Job ranks that have left it.
    left: Vec<usize>,
}

impl Heartbeat {
    /// The heartbeat of job rank `rank`, over `comm`.
    pub(crate) fn start(
        engine: &Arc<Engine>,
        comm: CommId,
        rank: usize,
        hosts: Vec<String>,
        entered: Arc<AtomicU64>,
        patience: Patience,
    ) -> Arc<Self> {
        let heartbeat = Arc::new(Self {
            engine: Arc::clone(engine),
            rank,
            size: hosts.len(),
            hosts,
            patience,
            entered,
            outbox: Mutex::default(),
            sets: Mutex::default(),
            early: Mutex::default(),
            verdict: Mutex::default(),
            heard: Mutex::default(),
            over: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            warnings: AtomicU64::new(0),
        });
        let shared = Arc::clone(&heartbeat);
        engine.spawn(move |world| async move {
            let beats = Beats::new(&shared, world.comm(comm));
            let outcome = match beats {
                Ok(beats) => beats.live(&shared, &world).await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                shared.abort(shared.failure(&error));
            }
            shared.ended.store(true, Ordering::Release);
        });
        heartbeat
    }

    // ---- from any thread ------------------------------------------------------------------------

    /// From now on, requests for a cycle of `set`, the process set of these job ranks, ring `bell`,
    /// and this rank forwards them to `next_hosts`.
    pub(crate) fn listen(
        &self,
        set: u64,
        members: &Arc<[usize]>,
        next_hosts: Vec<usize>,
        bell: Arc<dyn Bell>,
    ) {
        let set_of = Set {
            members: Arc::clone(members),
            next_hosts,
            bell: Arc::clone(&bell),
            told: 0,
            left: Vec::new(),
        };
        let mut early = lock(&self.early);
        lock(&self.sets).insert(set, set_of);
        let early = early.remove(&set);
        if let Some(cycle) = early
            && bell.rung(cycle)
        {
            self.ring(set, cycle);
        }
    }

    /// Tells the other members of `set` that `cycle` is wanted.
    pub(crate) fn ring(&self, set: u64, cycle: u64) {
        self.tell_of_ring(set, cycle);
        self.engine.look_soon();
    }

    /// This rank needs nothing more of `set`; of the set of all ranks: of anything.
    pub(crate) fn leave(&self, set: u64, is_world: bool, because: Option<&Error>) {
        match because {
            None => self.tell_set(
                set,
                &Message::Left {
                    set,
                    rank: self.rank,
                },
            ),
            Some(error) => {
                let how = |how| Message::Ended {
                    rank: self.rank,
                    how,
                };
                let message = match error {
                    Error::Peer(PeerError::Silent {
                        rank,
                        silent_seconds,
                        ..
                    }) => Message::Ended {
                        rank: *rank,
                        how: How::Silent {
                            seconds: *silent_seconds,
                        },
                    },
                    Error::Peer(PeerError::Stalled {
                        rank,
                        waited_seconds,
                        limit_seconds,
                    }) => Message::Ended {
                        rank: *rank,
                        how: How::Stalled {
                            waited_seconds: *waited_seconds,
                            limit_seconds: *limit_seconds,
                        },
                    },
                    Error::Peer(PeerError::Lost { rank, pid }) => Message::Ended {
                        rank: *rank,
                        how: How::Lost { pid: *pid },
                    },
                    Error::Peer(PeerError::Disconnected { rank, reason, .. }) => Message::Ended {
                        rank: *rank,
                        how: How::disconnected(reason),
                    },
                    Error::Peer(PeerError::Left { rank }) => Message::Ended {
                        rank: *rank,
                        how: How::Left,
                    },
                    Error::Peer(PeerError::Failed { rank, reason }) => Message::Ended {
                        rank: *rank,
                        how: How::failed(reason),
                    },
                    other => how(How::failed(&other.to_string())),
                };
                if matches!(
                    error,
                    Error::Peer(
                        PeerError::Silent { .. } | PeerError::Lost { .. } | PeerError::Mpi { .. }
                    )
                ) {
                    self.engine.set_broken();
                }
                self.abort(error.clone());
                self.tell_all(&message);
            }
        }
        lock(&self.sets).remove(&set);
        if is_world {
            self.stop();
        } else {
            self.engine.look();
        }
        if is_world && self.engine.ends_with_context() {
            self.wait_for_the_end();
        }
    }

    /// Ends the heartbeat when its messages have been sent.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
        self.engine.look();
    }

    /// Waits until this rank has announced its end, and until its heartbeat calls nothing more: the
    /// library that has initialized MPI may finalize it next.
    fn wait_for_the_end(&self) {
        let began = Instant::now();
        while !self.ended.load(Ordering::Acquire) && began.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Why it is over for all, if it is.
    ///
    /// # Errors
    /// That.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*lock(&self.verdict) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Likewise, or who has left `set`.
    ///
    /// # Errors
    /// The first such rank.
    pub(crate) fn check_set(&self, set: u64) -> Result<(), Error> {
        self.check()?;
        match lock(&self.sets).get(&set).and_then(|set| set.left.first()) {
            Some(&rank) => Err(PeerError::Left { rank }.into()),
            None => Ok(()),
        }
    }

    /// Asked now and then by who has waited for the members of `set` for `waited`.
    ///
    /// # Errors
    /// The reason to give up.
    pub(crate) fn check_wait(&self, set: u64, waited: Duration) -> Result<(), Error> {
        if waited >= LEFT_GRACE {
            self.check_set(set)?;
        } else {
            self.check()?;
        }
        self.check_patience(waited)
    }

    /// Converts an error of an operation of this rank.
    pub(crate) fn failure(&self, error: &CommError) -> Error {
        if error.is_left() {
            // The reason for its end may still be on its way.
            let began = Instant::now();
            while self.check().is_ok() && began.elapsed() < LEFT_GRACE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // An error that a lost rank has caused is that rank's.
        self.check()
            .err()
            .unwrap_or_else(|| self.own_failure(error))
    }

    fn own_failure(&self, error: &CommError) -> Error {
        let (rank, host) = (self.rank, self.hosts[self.rank].clone());
        let disconnected = |rank, host, reason| PeerError::Disconnected { rank, host, reason };
        Error::Peer(match error.clone() {
            CommError::Mpi(error) => PeerError::Mpi {
                rank,
                host,
                call: error.call,
                reason: error.text,
            },
            CommError::Tcp(NetError::Left { rank, .. }) => PeerError::Left { rank },
            CommError::Tcp(NetError::InvalidData { rank, problem, .. }) => {
                PeerError::InvalidData { rank, problem }
            }
            CommError::Tcp(NetError::Lost { rank, host, loss }) => match loss {
                Loss::Silent { seconds } => PeerError::Silent {
                    rank,
                    host,
                    silent_seconds: seconds,
                },
                loss => disconnected(rank, host, loss.to_string()),
            },
            CommError::Tcp(error) => disconnected(rank, host, error.to_string()),
            CommError::Panicked => {
                return Error::Internal {
                    rank,
                    message: error.to_string(),
                };
            }
        })
    }

    /// Warns about, and at last gives up on, ranks that live and have not come to this rank's
    /// cycle.
    fn check_patience(&self, waited: Duration) -> Result<(), Error> {
        let late = || {
            let entered = self.entered.load(Ordering::Acquire);
            let heard = lock(&self.heard);
            let mut late: Vec<usize> = heard
                .iter()
                .filter(|(_, at)| **at < entered)
                .map(|(rank, _)| *rank)
                .collect();
            late.sort_unstable();
            late
        };
        if let Some(limit) = self.patience.exceeded(waited)
            && let Some(&rank) = late().first()
        {
            return Err(PeerError::Stalled {
                rank,
                waited_seconds: waited.as_secs(),
                limit_seconds: limit.as_secs(),
            }
            .into());
        }
        let due = self.patience.warnings(waited);
        if due > self.warnings.swap(due, Ordering::Relaxed) {
            for rank in late() {
                tracing::warn!(
                    rank,
                    host = self.hosts[rank],
                    waited_seconds = waited.as_secs(),
                    "waiting for a rank that is alive but does not answer"
                );
            }
        }
        Ok(())
    }

    /// Aborts all process sets of this rank with `error` and wakes sleeping threads.
    fn abort(&self, error: Error) {
        lock(&self.verdict).get_or_insert(error);
        lock(&self.sets).values().for_each(|set| set.bell.alarm());
    }

    // ---- telling --------------------------------------------------------------------------------

    /// Tells the next hosts of `set` of a ring, once.
    fn tell_of_ring(&self, set: u64, cycle: u64) {
        let mut sets = lock(&self.sets);
        let Some(known) = sets.get_mut(&set) else {
            return;
        };
        if known.told < cycle {
            known.told = cycle;
            let targets = known.next_hosts.clone();
            lock(&self.outbox).push_back((Message::Ring { set, cycle }, targets));
        }
    }

    fn tell_set(&self, set: u64, message: &Message) {
        let sets = lock(&self.sets);
        let Some(known) = sets.get(&set) else { return };
        let targets = self.neighbours(&known.members);
        lock(&self.outbox).push_back((message.clone(), targets));
    }

    fn tell_all(&self, message: &Message) {
        let targets = neighbours::after(self.rank, self.size).collect();
        lock(&self.outbox).push_back((message.clone(), targets));
    }

    /// Those members that this rank tells.
    fn neighbours(&self, members: &[usize]) -> Vec<usize> {
        let place = members
            .binary_search(&self.rank)
            .expect("a rank tells its own sets");
        neighbours::after(place, members.len())
            .map(|place| members[place])
            .collect()
    }

    // ---- on the engine's thread -----------------------------------------------------------------

    /// Takes in what a neighbour says.
    fn hear(&self, envelope: Envelope) {
        match envelope.message {
            Message::Beat { entered } => {
                lock(&self.heard).insert(envelope.from, entered);
            }
            Message::Ring { set, cycle } => {
                // A member may ring before this rank has created the set.
                let mut early = lock(&self.early);
                let is_news = lock(&self.sets)
                    .get(&set)
                    .map(|known| known.bell.rung(cycle));
                match is_news {
                    Some(true) => self.tell_of_ring(set, cycle),
                    Some(false) => {} // a rank of this host has told the next ones
                    None if early.len() < EARLY_MAX || early.contains_key(&set) => {
                        let wanted = early.entry(set).or_default();
                        *wanted = cycle.max(*wanted);
                    }
                    None => {} // a ring is a hint: the set asks again
                }
            }
            Message::Left { set, rank } => {
                let mut sets = lock(&self.sets);
                let Some(known) = sets.get_mut(&set) else {
                    return;
                };
                if !known.left.contains(&rank) {
                    known.left.push(rank);
                    drop(sets);
                    self.tell_set(set, &Message::Left { set, rank });
                    lock(&self.heard).remove(&rank);
                    if let Some(known) = lock(&self.sets).get(&set) {
                        known.bell.alarm();
                    }
                }
            }
            Message::Ended { rank, how } => {
                if self.check().is_ok() {
                    self.tell_all(&Message::Ended {
                        rank,
                        how: how.clone(),
                    });
                    if matches!(how, How::Silent { .. } | How::Lost { .. }) {
                        self.engine.set_broken();
                    }
                    self.abort(self.error_of(rank, how));
                }
            }
        }
    }

    fn error_of(&self, rank: usize, how: How) -> Error {
        match how {
            How::Silent { seconds } => self.silent(rank, seconds),
            How::Stalled {
                waited_seconds,
                limit_seconds,
            } => Error::Peer(PeerError::Stalled {
                rank,
                waited_seconds,
                limit_seconds,
            }),
            How::Lost { pid } => Error::Peer(PeerError::Lost { rank, pid }),
            How::Left => Error::Peer(PeerError::Left { rank }),
            How::Failed { reason } => Error::Peer(PeerError::Failed { rank, reason }),
            How::Disconnected { reason } => Error::Peer(PeerError::Disconnected {
                rank,
                host: self.host(rank),
                reason,
            }),
        }
    }

    fn silent(&self, rank: usize, silent_seconds: u64) -> Error {
        Error::Peer(PeerError::Silent {
            rank,
            host: self.host(rank),
            silent_seconds,
        })
    }

    fn host(&self, rank: usize) -> String {
        self.hosts.get(rank).cloned().unwrap_or_default()
    }

    /// Whether `rank` has left the job.
    fn has_left(&self, rank: usize) -> bool {
        lock(&self.sets)
            .values()
            .any(|set| set.members.len() == self.size && set.left.contains(&rank))
    }
}

impl Watch for Heartbeat {
    fn abort(&self, error: &Error) {
        Heartbeat::abort(self, error.clone());
    }

    /// `on` is a job rank.
    fn check(&self, on: usize, waited: Duration) -> Result<(), Error> {
        Heartbeat::check(self)?;
        if self.has_left(on) {
            return Err(PeerError::Left { rank: on }.into());
        }
        self.check_patience(waited)
    }
}

/// The guard of a wait for the members of a process set.
pub(crate) struct Waiting<'a> {
    pub(crate) heartbeat: &'a Heartbeat,
    pub(crate) set: u64,
}

impl Guard for Waiting<'_> {
    fn check(&self, waited: Duration) -> Result<(), Error> {
        self.heartbeat.check_wait(self.set, waited)
    }

    fn failure(&self, error: &CommError) -> Error {
        self.heartbeat.failure(error)
    }
}

/// The engine's side of a heartbeat.
struct Beats {
    comm: Comm,
    inbox: Pending<Vec<u8>>,
    sends: Vec<Pending<Vec<u8>>>,
    /// Who tells this rank, and when they last did.
    tellers: Vec<(usize, Instant)>,
    next_beat: Instant,
    /// When this rank last looked.
    looked: Instant,
}

impl Beats {
    fn new(heartbeat: &Heartbeat, comm: Comm) -> Result<Self, CommError> {
        let now = Instant::now();
        Ok(Self {
            inbox: comm.receive(vec![0; MESSAGE_BYTES], None, TAG)?,
            comm,
            sends: Vec::new(),
            tellers: neighbours::before(heartbeat.rank, heartbeat.size)
                .map(|rank| (rank, now))
                .collect(),
            next_beat: now,
            looked: now,
        })
    }

    /// Until this rank has left and all it had to say is said.
    async fn live(mut self, heartbeat: &Heartbeat, world: &World) -> Result<(), CommError> {
        loop {
            self.hear(heartbeat)?;
            self.beat(heartbeat)?;
            self.tell(heartbeat)?;
            if heartbeat.over.load(Ordering::Acquire)
                && self.sends.is_empty()
                && lock(&heartbeat.outbox).is_empty()
            {
                return world.leave(Inbox {
                    comm: self.comm,
                    tag: TAG,
                    receive: self.inbox,
                });
            }
            turn().await;
        }
    }

    fn hear(&mut self, heartbeat: &Heartbeat) -> Result<(), CommError> {
        while let Some(memory) = self.inbox.test()? {
            let envelope = Envelope::decode(&memory, heartbeat.size);
            self.inbox = self.comm.receive(memory, None, TAG)?;
            let Some(envelope) = envelope else {
                tracing::warn!(
                    "a heartbeat message of another rank is invalid and has been ignored"
                );
                continue;
            };
            if let Some((_, heard)) = self
                .tellers
                .iter_mut()
                .find(|(rank, _)| *rank == envelope.from)
            {
                *heard = Instant::now();
            }
            heartbeat.hear(envelope);
        }
        Ok(())
    }

    /// Says that this rank lives, and looks who does not, when it is time.
    fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), CommError> {
        let now = Instant::now();
        if now.duration_since(self.looked) > BEAT_INTERVAL {
            // It was this rank that slept: stopped, suspended or starved. What the others said
            // meanwhile is still to come.
            self.tellers.iter_mut().for_each(|(_, heard)| *heard = now);
        }
        self.looked = now;
        if now < self.next_beat {
            return Ok(());
        }
        self.next_beat = now + BEAT_INTERVAL;
        let entered = heartbeat.entered.load(Ordering::Acquire);
        heartbeat.tell_all(&Message::Beat { entered });
        let silent = self.tellers.iter().find(|(rank, heard)| {
            now.duration_since(*heard) > SILENCE_MAX && !heartbeat.has_left(*rank)
        });
        if let Some((rank, heard)) = silent {
            let seconds = now.duration_since(*heard).as_secs();
            heartbeat.hear(Envelope {
                from: heartbeat.rank,
                message: Message::Ended {
                    rank: *rank,
                    how: How::Silent { seconds },
                },
            });
        }
        Ok(())
    }

    fn tell(&mut self, heartbeat: &Heartbeat) -> Result<(), CommError> {
        let mut at = 0;
        while at < self.sends.len() {
            match self.sends[at].test() {
                Ok(None) => at += 1,
                Ok(Some(_)) => drop(self.sends.swap_remove(at)),
                // That rank needs no more messages.
                Err(error) if error.is_left() => drop(self.sends.swap_remove(at)),
                Err(error) => return Err(error),
            }
        }
        loop {
            let Some((message, targets)) = lock(&heartbeat.outbox).pop_front() else {
                return Ok(());
            };
            let envelope = Envelope {
                from: heartbeat.rank,
                message,
            };
            for target in targets {
                self.sends
                    .push(self.comm.send(envelope.encode(), target, TAG)?);
            }
        }
    }
}
