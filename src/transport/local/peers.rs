//! Peers: detection of ranks that have died, left or fallen silent.
//!
//! Peers are stored and addressed by set ranks; errors and warnings name job ranks, because an
//! error may be passed on to sets that do not have that rank.
//!
//! Death is read from pidfds. A pidfd identifies the process of the rendezvous, whatever ended it
//! and whatever its children still hold open. A rank that finds another one dead, without having
//! left, writes it into the poison word of the set, once: all survivors report that rank, not each
//! other. A process that exits without leaving is lost even with exit code 0, because the others
//! cannot know which operations it still owed.
//!
//! Any process with access may have written the words in shared memory: a value that no rank writes
//! is an error ([`PeerError::InvalidSharedMemory`]), and is never used as an index.

use std::sync::atomic::AtomicU64 as LocalAtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::{Error, PeerError};
use crate::rendezvous::Patience;
use crate::shm::primitive::{AtomicU64, Ordering};
use crate::shm::{View, Watch};
use crate::sync::lock;

/// Words for the text of a rank's error: 256 bytes.
const REASON_WORDS: usize = 32;
/// Words of a rank's state: presence, length of the reason, the reason; padded to whole lines.
pub(super) const STATE_WORDS: usize = (2 + REASON_WORDS).next_multiple_of(16);

/// Presence word of a rank: present, left in order, or left because of an error.
const HERE: u64 = 0;
const LEFT: u64 = 1;
const FAILED: u64 = 2;
/// Only in the poison word: its process has ended.
const LOST: u64 = 3;

/// Source of the information that a rank has died.
#[derive(Clone, Debug)]
pub(crate) enum Lifeline {
    /// The rank is in this process.
    Own,
    /// Readable when the process has ended. Ranks of one process share it.
    Pidfd(Arc<OwnedFd>),
    /// The kernel gave no pidfd. The rendezvous connection between this rank and rank 0 stays open
    /// instead, and is closed when the process ends, unless a forked child holds it: then rank 0
    /// notices that the process is gone.
    Socket(Arc<OwnedFd>),
    /// The other ranks learn of a closed connection from rank 0.
    Rank0,
    /// This rank itself, which holds its ends of connections that others watch.
    Held {
        /// Closed when the process ends.
        _ends: Vec<Arc<OwnedFd>>,
    },
}

impl Lifeline {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pidfd(fd) | Self::Socket(fd) => Some(fd.as_fd()),
            Self::Own | Self::Rank0 | Self::Held { .. } => None,
        }
    }
}

/// Process of another rank.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Process id as rank 0 sees it; 0 if rank 0 cannot see it.
    pub(crate) pid: u32,
    /// Source of the information that it has died.
    pub(crate) lifeline: Lifeline,
}

/// Watch over the ranks of a set.
pub(super) struct Peers {
    rank: usize,
    /// Job ranks, by set rank.
    members: Arc<[usize]>,
    peers: Vec<Peer>,
    poison: View<AtomicU64>,
    states: View<AtomicU64>,
    patience: Patience,
    /// For each rank, the number of warnings during the present wait.
    warnings: Vec<LocalAtomicU64>,
    outer: OnceLock<OuterWatch>,
    /// Time limit of this rank's waits, and the error after it.
    limit: Mutex<Option<(Instant, Error)>>,
}

/// Check that returns an error after a wait of some length, if a failure beyond this host makes
/// waiting useless.
pub(crate) type OuterWatch = Box<dyn Fn(Duration) -> Result<(), Error> + Send + Sync>;

impl Peers {
    /// `members` and `peers` are in the order of set ranks, this rank included.
    pub(super) fn new(
        rank: usize,
        members: Arc<[usize]>,
        peers: Vec<Peer>,
        poison: View<AtomicU64>,
        states: View<AtomicU64>,
        patience: Patience,
    ) -> Self {
        assert_eq!(states.len(), peers.len() * STATE_WORDS);
        assert_eq!(members.len(), peers.len());
        Self {
            rank,
            members,
            warnings: peers.iter().map(|_| LocalAtomicU64::new(0)).collect(),
            peers,
            poison,
            states,
            patience,
            outer: OnceLock::new(),
            limit: Mutex::new(None),
        }
    }

    /// Calls `outer` during waits, too; only the first call has an effect.
    pub(super) fn heed(&self, outer: OuterWatch) {
        let _ = self.outer.set(outer);
    }

    /// Checks, without waiting, for a rank that has failed or left. For a caller whose work needs
    /// every rank.
    ///
    /// # Errors
    /// The error about the first such rank.
    pub(super) fn check_all(&self) -> Result<(), Error> {
        let gone = (0..self.peers.len()).find(|&rank| self.is_gone(rank));
        self.check_job()?;
        match gone {
            Some(rank) => Err(self.departure(rank)),
            None => Ok(()),
        }
    }

    /// Whether another rank has left or failed. Read before [`check_job`](Self::check_job): a rank
    /// that leaves because of another one has written that one into the poison word before.
    fn is_gone(&self, rank: usize) -> bool {
        rank != self.rank && self.presence(rank) != HERE
    }

    /// Publishes that this rank leaves. An error about another rank is passed on as that rank's.
    pub(super) fn leave(&self, because: Option<&Error>) {
        match because {
            None => self.set_presence(LEFT),
            Some(error) => {
                let text = reason_text(error);
                let state = self.state(self.rank);
                state[1].store(text.len() as u64, Ordering::Relaxed);
                for (word, bytes) in state[2..].iter().zip(text.as_bytes().chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
                }
                let (rank, how) = match error {
                    Error::Peer(PeerError::Left { rank }) => (self.set_rank(*rank), LEFT),
                    Error::Peer(PeerError::Lost { rank, .. }) => (self.set_rank(*rank), LOST),
                    _ => (None, FAILED),
                };
                match rank {
                    Some(rank) => self.poison(rank, how),
                    // An error of this rank, or about a rank that only another set has: the reason
                    // names it.
                    None => self.poison(self.rank, FAILED),
                }
                self.set_presence(FAILED);
            }
        }
    }

    /// Returns the set rank of job rank `rank`, if it is a member.
    fn set_rank(&self, rank: usize) -> Option<usize> {
        self.members.iter().position(|&member| member == rank)
    }

    /// Returns an error if a rank has ended the set for all; also looks for dead ranks.
    fn check_job(&self) -> Result<(), Error> {
        if self.poison[0].load(Ordering::Acquire) == 0
            && let Some(rank) = self.find_dead()
        {
            self.poison(rank, LOST);
        }
        let poison = self.poison[0].load(Ordering::Acquire);
        if poison == 0 {
            return Ok(());
        }
        match unpack(poison, self.peers.len()) {
            Some((rank, LOST)) => Err(PeerError::Lost {
                rank: self.members[rank],
                pid: self.peers[rank].pid,
            }
            .into()),
            Some((rank, LEFT)) => Err(PeerError::Left {
                rank: self.members[rank],
            }
            .into()),
            Some((rank, _)) => Err(PeerError::Failed {
                rank: self.members[rank],
                reason: self.reason(rank),
            }
            .into()),
            None => Err(PeerError::InvalidSharedMemory {
                word: "the word for a rank that has ended the job".to_owned(),
                value: poison,
            }
            .into()),
        }
    }

    /// Returns the first rank whose process has ended without leaving.
    fn find_dead(&self) -> Option<usize> {
        let mut ranks = Vec::with_capacity(self.peers.len());
        let mut fds = Vec::with_capacity(self.peers.len());
        for (rank, peer) in self.peers.iter().enumerate() {
            if let Some(fd) = peer.lifeline.fd() {
                ranks.push(rank);
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        // Interrupted: the next check will poll again.
        poll(&mut fds, Some(&Timespec::default())).ok()?;
        let ended = ranks
            .iter()
            .zip(&fds)
            .filter(|&(&rank, fd)| !fd.revents().is_empty() || self.has_no_process(rank))
            .map(|(&rank, _)| rank);
        // Presence is read after the poll: a rank that left and then ended has left.
        ended.into_iter().find(|&rank| self.presence(rank) == HERE)
    }

    /// Whether the process of `rank` has ended although a child that it has forked keeps its
    /// connection open. Only rank 0 knows the process ids as they are in its own namespace.
    fn has_no_process(&self, rank: usize) -> bool {
        let peer = &self.peers[rank];
        let pid = match peer.lifeline {
            Lifeline::Socket(_) if self.rank == 0 => Pid::from_raw(peer.pid as i32),
            _ => None,
        };
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }

    /// Ends the set for all because of `rank`; the first call counts.
    fn poison(&self, rank: usize, how: u64) {
        let word = (rank as u64 + 1) | (how << 32);
        // Another rank may have been first; then its reason counts for all.
        let _ = self.poison[0].compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the error about `rank`, which has left or failed.
    fn departure(&self, rank: usize) -> Error {
        match self.presence(rank) {
            FAILED => Error::Peer(PeerError::Failed {
                rank: self.members[rank],
                reason: self.reason(rank),
            }),
            LEFT => Error::Peer(PeerError::Left {
                rank: self.members[rank],
            }),
            value => Error::Peer(PeerError::InvalidSharedMemory {
                word: format!("the state of rank {}", self.members[rank]),
                value,
            }),
        }
    }

    fn state(&self, rank: usize) -> &[AtomicU64] {
        &self.states[rank * STATE_WORDS..][..STATE_WORDS]
    }

    fn presence(&self, rank: usize) -> u64 {
        self.state(rank)[0].load(Ordering::Acquire)
    }

    fn set_presence(&self, presence: u64) {
        self.state(self.rank)[0].store(presence, Ordering::Release);
    }

    fn reason(&self, rank: usize) -> String {
        let state = self.state(rank);
        let length = (state[1].load(Ordering::Relaxed) as usize).min(REASON_WORDS * 8);
        let mut bytes: Vec<u8> = state[2..2 + REASON_WORDS]
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Warns about a rank that is alive but does not answer, and returns an error after the limit.
    fn check_patience(&self, on: usize, waited: Duration) -> Result<(), Error> {
        let exceeded = self.patience.exceeded(waited);
        let due = self.patience.warnings(waited);
        // A new wait starts at 0 again, and so does the count.
        let is_new = due > self.warnings[on].swap(due, Ordering::Relaxed);
        if exceeded.is_none() && !is_new {
            return Ok(());
        }
        // A rank may be silent because it waits for one that is stopped.
        let stopped = self.find_stopped(on);
        let silent = stopped.unwrap_or(on);
        let (rank, pid) = (self.members[silent], self.peers[silent].pid);
        let waited_seconds = waited.as_secs();
        match (exceeded, stopped) {
            (Some(limit), _) => {
                return Err(PeerError::Stalled {
                    rank,
                    waited_seconds,
                    limit_seconds: limit.as_secs(),
                }
                .into());
            }
            (None, Some(_)) => tracing::warn!(
                rank,
                pid,
                waited_seconds,
                "waiting for a rank that is stopped; continue it (SIGCONT)"
            ),
            (None, None) => tracing::warn!(
                rank,
                pid,
                waited_seconds,
                "waiting for a rank that is alive but does not answer"
            ),
        }
        Ok(())
    }

    /// Returns a rank whose process is stopped: `first`, or else the lowest.
    fn find_stopped(&self, first: usize) -> Option<usize> {
        let others = (0..self.peers.len()).filter(|&rank| rank != first);
        let mut ranks = std::iter::once(first).chain(others);
        ranks.find(|&rank| self.peers[rank].pid != 0 && is_stopped(self.peers[rank].pid))
    }
}

impl Watch for Peers {
    fn check(&self, on: usize, waited: Duration) -> Result<(), Error> {
        match &*lock(&self.limit) {
            Some((at, error)) if Instant::now() >= *at => return Err(error.clone()),
            _ => {}
        }
        if let Some(outer) = self.outer.get() {
            outer(waited)?;
        }
        let is_gone = self.is_gone(on);
        self.check_job()?;
        if is_gone {
            return Err(self.departure(on));
        }
        self.check_patience(on, waited)
    }

    fn limit(&self, limit: Option<(Instant, Error)>) {
        *lock(&self.limit) = limit;
    }
}

/// Decodes the rank and the manner in a poison word of a set of `size` ranks; `None` if no rank
/// writes such a word.
fn unpack(poison: u64, size: usize) -> Option<(usize, u64)> {
    let rank = (poison as u32).checked_sub(1)? as usize;
    let manner = poison >> 32;
    (rank < size && matches!(manner, LEFT | FAILED | LOST)).then_some((rank, manner))
}

/// Text of a rank's own error, cut at a character boundary if it is too long.
fn reason_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut end = text.len().min(REASON_WORDS * 8);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Whether process `pid` is stopped (by a signal or a debugger), from the state field of
/// `proc_pid_stat(5)`.
pub(super) fn is_stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat_is_stopped(&stat))
}

/// The state is the first field after the command, which is in parentheses and may itself contain
/// parentheses.
fn stat_is_stopped(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('T' | 't')))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shm::{Area, Region};

    #[test]
    fn the_state_is_read_whatever_the_name_of_the_command() {
        assert!(stat_is_stopped("7 (a) T 1 7 7 0"));
        assert!(stat_is_stopped("7 (a) R (b)) t 1 7 7 0"));
        assert!(!stat_is_stopped("7 (T) S 1 7 7 0"));
        assert!(!stat_is_stopped("7 (a) T) R 1 7 7 0"));
        assert!(!stat_is_stopped(""));
        assert!(!is_stopped(std::process::id()));
    }

    #[test]
    fn a_poison_word_has_rank_and_manner() {
        assert_eq!(unpack(1 | LOST << 32, 1), Some((0, LOST)));
        assert_eq!(unpack(64 | LEFT << 32, 64), Some((63, LEFT)));
        // No rank, a rank beyond the last, an invalid manner.
        for poison in [0, LOST << 32, 65 | LOST << 32, u64::MAX, 1, 1 | 4 << 32] {
            assert_eq!(unpack(poison, 64), None, "{poison:x}");
        }
    }

    fn peers(size: usize, poison: u64) -> (Peers, Area) {
        let bytes = 8 * (1 + size * STATE_WORDS);
        let (region, _file) = Region::create("ronde-test", bytes).unwrap();
        let area = Area::whole(Arc::new(region));
        let word: View<AtomicU64> = area.view(1);
        word[0].store(poison, Ordering::Relaxed);
        let peer = || Peer {
            pid: 0,
            lifeline: Lifeline::Own,
        };
        let patience = Patience {
            spin: Duration::ZERO,
            warn_after: Duration::ZERO,
            give_up_after: None,
        };
        let states = area.part(8, 8 * size * STATE_WORDS);
        let peers = Peers::new(
            0,
            (0..size).map(|rank| 10 + rank).collect(),
            (0..size).map(|_| peer()).collect(),
            word,
            states.view(size * STATE_WORDS),
            patience,
        );
        (peers, states)
    }

    /// Every value of every word that another process may have written gives an answer; valid ones
    /// the right answer.
    #[test]
    fn words_that_no_rank_writes_are_errors_and_not_panics() {
        let invalid =
            |error: &Error| matches!(error, Error::Peer(PeerError::InvalidSharedMemory { .. }));
        for poison in [
            u64::MAX,
            1,
            LOST << 32,
            4 | LOST << 32,
            1 | 9 << 32,
            1 << 63,
        ] {
            let (peers, _) = peers(3, poison);
            let error = peers.check(1, Duration::ZERO).unwrap_err();
            assert!(invalid(&error), "{poison:x}: {error}");
            assert!(
                error.to_string().contains(&format!("{poison:#x}")),
                "{error}"
            );
        }
        let (peers, states) = peers(3, 0);
        let states: View<AtomicU64> = states.view(3 * STATE_WORDS);
        for presence in [LOST, 4, u64::MAX] {
            states[STATE_WORDS].store(presence, Ordering::Relaxed);
            for error in [peers.check(1, Duration::ZERO), peers.check_all()] {
                let error = error.unwrap_err();
                assert!(
                    invalid(&error) && error.to_string().contains("state of rank 11"),
                    "{error}"
                );
            }
            peers.check(2, Duration::ZERO).unwrap();
        }
        // A length beyond the words, and bytes that are not UTF-8.
        (1..STATE_WORDS)
            .for_each(|word| states[STATE_WORDS + word].store(u64::MAX, Ordering::Relaxed));
        states[STATE_WORDS].store(FAILED, Ordering::Relaxed);
        let error = peers.check(1, Duration::ZERO).unwrap_err();
        assert!(
            matches!(&error, Error::Peer(PeerError::Failed { rank: 11, reason }) if !reason.is_empty()),
            "{error}"
        );
    }

    /// A rank that waits for rank 0 must name the rank that rank 0 waits for.
    #[test]
    fn a_stopped_rank_is_named_in_place_of_those_that_wait_for_it() {
        let (mut peers, _) = peers(3, 0);
        peers.patience.give_up_after = Some(Duration::from_secs(1));
        let waits_on = |peers: &Peers, on| match peers.check(on, Duration::from_secs(2)) {
            Err(Error::Peer(PeerError::Stalled { rank, .. })) => rank,
            other => panic!("{other:?}"),
        };
        assert_eq!(waits_on(&peers, 1), 11);
        let mut sleeper = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&sleeper);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !is_stopped(sleeper.id()) {
            std::thread::yield_now();
        }
        peers.peers[2].pid = sleeper.id();
        let found = [waits_on(&peers, 1), waits_on(&peers, 2)];
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(found, [12, 12]);
    }

    #[test]
    fn a_rank_whose_child_keeps_the_connection_open_is_lost_with_its_process() {
        let (mut peers, _) = peers(3, 0);
        let (own, _of_the_child) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut process = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        peers.peers[2] = Peer {
            pid: process.id(),
            lifeline: Lifeline::Socket(Arc::new(own.into())),
        };
        peers.check_all().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        let error = peers.check_all().unwrap_err();
        assert!(
            matches!(error, Error::Peer(PeerError::Lost { rank: 12, .. })),
            "{error}"
        );
    }

    #[test]
    fn a_limit_ends_waits_from_its_time_on_until_it_is_taken_back() {
        let (peers, _) = peers(2, 0);
        let (now, error) = (Instant::now(), Error::Peer(PeerError::Left { rank: 7 }));
        peers.limit(Some((now + Duration::from_secs(600), error.clone())));
        peers.check(1, Duration::ZERO).unwrap();
        peers.limit(Some((now, error)));
        let error = peers.check(1, Duration::ZERO).unwrap_err();
        assert!(
            matches!(error, Error::Peer(PeerError::Left { rank: 7 })),
            "{error}"
        );
        peers.limit(None);
        peers.check(1, Duration::ZERO).unwrap();
    }
}
