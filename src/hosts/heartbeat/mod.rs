//! Heartbeat: liveness of the ranks of other hosts, departures and failures, and requests for a
//! cycle.
//!
//! The processes of another host cannot be observed directly, and a broken network reports nothing.
//! So every rank sends its neighbours a message once a second; a rank without a message for
//! [`SILENCE_MAX`](beats::SILENCE_MAX) is lost. Departures and failures are forwarded the same way:
//! a rank that receives new information sends it to its own neighbours. Requests for a cycle are
//! forwarded from host to host; within a host doorbells ring. An idle job sends only heartbeats:
//! ⌈log₂ n⌉ messages per second and rank.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ronde_net::neighbours;

use super::comm::CommError;
use super::engine::{Engine, Guard, LAST_WORDS};
use super::world::CommId;
use crate::error::{Error, PeerError};
use crate::rendezvous::{Alarm, Patience};
use crate::shm::Watch;
use crate::shm::primitive::AtomicU64;
use crate::sync::lock;

mod beats;
mod ending;
mod message;

use beats::Beats;
use ending::own_failure;
use message::{Envelope, How, Message};

/// How long the reason for a rank's end may be on its way.
const CAUSE_GRACE: Duration = Duration::from_millis(300);
/// Over MPI, a wait for the members of a process set fails if one of them has left and no part of
/// the operation has completed for so long: what that rank sent before may still be on its way.
const LEFT_GRACE: Duration = Duration::from_secs(3);

/// Tag of these messages.
const TAG: u16 = 0;
/// Limit of the process sets whose messages are kept until this rank has created them, and of the
/// sets that are remembered as left.
const OTHERS_MAX: usize = 1 << 12;

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
    /// Number of the set of all ranks.
    world: u64,
    /// Host names, by job rank.
    hosts: Vec<String>,
    patience: Patience,
    /// Cycles of the set of all ranks that this rank has entered.
    entered: Arc<AtomicU64>,
    /// Messages to neighbours.
    outbox: Mutex<VecDeque<(Message, Vec<usize>)>>,
    sets: Mutex<HashMap<u64, Set>>,
    /// Locked before the sets, if both are.
    others: Mutex<Others>,
    /// The error that aborts all process sets.
    verdict: Mutex<Option<Error>>,
    /// For each rank that sends heartbeats to this rank, the last cycle that it has entered.
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
    /// Ranks to which this rank forwards requests: the first rank of each neighbouring host.
    next_hosts: Vec<usize>,
    /// Rung under the lock of the sets, so that it is not rung after its set was removed: it would
    /// keep the host's shared memory.
    bell: Arc<dyn Bell>,
    /// Highest cycle that was forwarded to them.
    told: u64,
    /// Job ranks that have left it.
    left: Vec<usize>,
    /// Time at which the first departure was received.
    left_at: Option<Instant>,
}

/// Process sets that this rank does not have: not yet, or not any more.
#[derive(Default)]
struct Others {
    early: HashMap<u64, Early>,
    /// The sets that this rank has left last. No other set has the same number.
    left: VecDeque<u64>,
}

/// Messages about a process set that this rank has not created yet.
#[derive(Default)]
struct Early {
    /// The highest cycle that a member requests.
    wanted: Option<u64>,
    /// Job ranks that have left it.
    left: Vec<usize>,
}

impl Others {
    /// The messages about `set`; `None` if this rank has left it, or if there are too many.
    fn early(&mut self, set: u64) -> Option<&mut Early> {
        let has_room = self.early.len() < OTHERS_MAX || self.early.contains_key(&set);
        let is_kept = has_room && !self.left.contains(&set);
        is_kept.then(|| self.early.entry(set).or_default())
    }

    fn leave(&mut self, set: u64) {
        self.left.truncate(OTHERS_MAX - 1);
        self.left.push_front(set);
    }
}

impl Heartbeat {
    /// The heartbeat of job rank `rank`, over `comm`; `world` is the set of all ranks.
    pub(crate) fn start(
        engine: &Arc<Engine>,
        comm: CommId,
        rank: usize,
        world: u64,
        hosts: Vec<String>,
        entered: Arc<AtomicU64>,
        patience: Patience,
    ) -> Arc<Self> {
        let heartbeat = Arc::new(Self::new(engine, rank, world, hosts, entered, patience));
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

    fn new(
        engine: &Arc<Engine>,
        rank: usize,
        world: u64,
        hosts: Vec<String>,
        entered: Arc<AtomicU64>,
        patience: Patience,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            rank,
            world,
            size: hosts.len(),
            hosts,
            patience,
            entered,
            outbox: Mutex::default(),
            sets: Mutex::default(),
            others: Mutex::default(),
            verdict: Mutex::default(),
            heard: Mutex::default(),
            over: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            warnings: AtomicU64::new(0),
        }
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
        let mut others = lock(&self.others);
        let Early { wanted, left } = others.early.remove(&set).unwrap_or_default();
        let set_of = Set {
            members: Arc::clone(members),
            next_hosts,
            bell: Arc::clone(&bell),
            told: 0,
            left: left.clone(),
            left_at: (!left.is_empty()).then(Instant::now),
        };
        lock(&self.sets).insert(set, set_of);
        drop(others);
        for rank in left {
            self.tell_set(set, &Message::Left { set, rank });
        }
        if let Some(cycle) = wanted
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
                if matches!(
                    error,
                    Error::Peer(
                        PeerError::Silent { .. } | PeerError::Lost { .. } | PeerError::Mpi { .. }
                    )
                ) {
                    self.engine.set_broken();
                }
                self.abort(error.clone());
                self.tell_all(&Message::of_error(self.rank, error));
            }
        }
        lock(&self.others).leave(set);
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

    /// Fails if the job has ended.
    ///
    /// # Errors
    /// The error that has ended it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*lock(&self.verdict) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Like [`check`](Self::check), and also calls `alarm`.
    ///
    /// # Errors
    /// The error that has ended the job, or that of `alarm`.
    pub(crate) fn check_with(&self, alarm: Option<&Alarm>) -> Result<(), Error> {
        self.check()?;
        alarm.and_then(|alarm| (alarm.0)()).map_or(Ok(()), Err)
    }

    /// Like [`check`](Self::check), and also fails if a member has left `set`.
    ///
    /// # Errors
    /// The error that has ended the job, or [`PeerError::Left`] with the first such rank.
    pub(crate) fn check_set(&self, set: u64) -> Result<(), Error> {
        self.check()?;
        match lock(&self.sets).get(&set).and_then(|set| set.left.first()) {
            Some(&rank) => Err(PeerError::Left { rank }.into()),
            None => Ok(()),
        }
    }

    /// Checks a wait for the members of `set`; called regularly. `waited` is the duration of the
    /// wait, and `quiet` the time since a part of the operation completed. A member that has left may
    /// not be needed any more.
    ///
    /// # Errors
    /// The reason to give up.
    fn check_wait(&self, set: u64, waited: Duration, quiet: Duration) -> Result<(), Error> {
        let left_at = lock(&self.sets).get(&set).and_then(|set| set.left_at);
        let quiet = quiet.min(left_at.map_or(Duration::ZERO, |at| at.elapsed()));
        match quiet < LEFT_GRACE || self.engine.reports_peers() {
            true => self.check()?,
            false => self.check_set(set)?,
        }
        self.check_patience(set, waited)
    }

    /// Checks a wait of `waited` for the members of `set` on this rank's host, one of which may wait
    /// for another host.
    ///
    /// # Errors
    /// The reason to give up.
    pub(crate) fn check_outside(&self, set: u64, waited: Duration) -> Result<(), Error> {
        self.check()?;
        self.check_patience(set, waited)
    }

    /// Converts an error of an operation of this rank.
    pub(crate) fn failure(&self, error: &CommError) -> Error {
        if error.is_left() {
            // The reason for its end may still be on its way.
            let began = Instant::now();
            while self.check().is_ok() && began.elapsed() < CAUSE_GRACE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // An error that a lost rank has caused is that rank's.
        self.check()
            .err()
            .unwrap_or_else(|| own_failure(self.rank, &self.hosts[self.rank], error))
    }

    /// Warns about, and at last gives up on, ranks that live and have not come to this rank's
    /// cycle. The cycles of the set of all ranks alone are known.
    fn check_patience(&self, set: u64, waited: Duration) -> Result<(), Error> {
        if set != self.world {
            return Ok(());
        }
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
        self.engine.set_failed();
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

    /// Processes a message of a neighbour.
    fn hear(&self, envelope: Envelope) {
        match envelope.message {
            Message::Beat { entered } => {
                lock(&self.heard).insert(envelope.from, entered);
            }
            Message::Ring { set, cycle } => {
                // A member may ring before this rank has created the set.
                let mut others = lock(&self.others);
                let is_news = lock(&self.sets)
                    .get(&set)
                    .map(|known| known.bell.rung(cycle));
                match is_news {
                    Some(true) => self.tell_of_ring(set, cycle),
                    Some(false) => {} // a rank of this host has told the next ones
                    // A ring that is not kept is a hint: the set asks again.
                    None => {
                        if let Some(early) = others.early(set) {
                            early.wanted = early.wanted.max(Some(cycle));
                        }
                    }
                }
            }
            Message::Left { set, rank } => {
                let mut others = lock(&self.others);
                let mut sets = lock(&self.sets);
                let Some(known) = sets.get_mut(&set) else {
                    let early = others.early(set);
                    if let Some(early) = early.filter(|early| !early.left.contains(&rank)) {
                        early.left.push(rank);
                    }
                    return;
                };
                drop(others);
                if !known.left.contains(&rank) {
                    known.left.push(rank);
                    known.left_at.get_or_insert_with(Instant::now);
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
                    let host = self.hosts.get(rank).cloned().unwrap_or_default();
                    self.abort(how.error(rank, host));
                }
            }
        }
    }

    /// Whether `rank` has left the job.
    fn has_left(&self, rank: usize) -> bool {
        let sets = lock(&self.sets);
        sets.get(&self.world)
            .is_some_and(|set| set.left.contains(&rank))
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
        self.check_patience(self.world, waited)
    }
}

/// The guard of a wait for the members of a process set.
pub(crate) struct Waiting<'a> {
    pub(crate) heartbeat: &'a Heartbeat,
    pub(crate) set: u64,
}

impl Guard for Waiting<'_> {
    fn check(&self, waited: Duration, quiet: Duration) -> Result<(), Error> {
        self.heartbeat.check_wait(self.set, waited, quiet)
    }

    fn failure(&self, error: &CommError) -> Error {
        self.heartbeat.failure(error)
    }
}

#[cfg(test)]
mod tests;
