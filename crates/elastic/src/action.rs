//! Events and actions: what the launcher tells the membership, and what it has to do.

use crate::Place;
use crate::health::Cooldown;
use std::sync::Arc;
use std::time::Duration;

/// Process of the job: its number, in the order of the starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(pub u64);

/// Place of a process in a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Number of the generation, from 1.
    pub generation: u64,
    /// Rank of the process.
    pub rank: usize,
    /// Number of its host, an index of `ranks_per_host`.
    pub host: usize,
    /// Its number among the ranks of its host.
    pub local_rank: usize,
    /// Number of ranks of each host; ranks fill the hosts in order.
    pub ranks_per_host: Arc<[usize]>,
}

impl Seat {
    /// Place of the rank among the ranks and the hosts.
    pub fn place(&self) -> Place {
        Place::new(&self.ranks_per_host, self.host, self.local_rank)
    }
}

/// Limits of an elastic job.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Smallest number of ranks; at least 1.
    pub least: usize,
    /// Largest number of ranks.
    pub most: usize,
    /// Number of slots that the first generation needs.
    pub start: usize,
    /// Time for enough processes, and for a rank to leave its generation when that is over or the
    /// hosts have changed. A process that is started has half of it to call init, so that another
    /// can replace it in time.
    pub timeout: Duration,
    /// Whether the hosts cannot change: then the job does not wait for more.
    pub are_hosts_fixed: bool,
    /// Largest number of resets: generations after the first.
    pub resets: Option<u64>,
    /// Cool-down of hosts that fail; without one, they are barred at once.
    pub cooldown: Option<Cooldown>,
}

/// Reason for which a process asks for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It has been started.
    Started,
    /// All ranks have agreed to stop, as they were told that the hosts have changed.
    Interrupted,
    /// An operation failed in `generation`, because of the ranks `lost`, as far as is known.
    Failed {
        /// The generation that has failed.
        generation: u64,
        /// Whether the process has received the state of the training since it was started.
        has_state: bool,
        /// Ranks that have not come to the rendezvous of the generation.
        lost: Vec<usize>,
    },
}

/// Exit status of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code 0.
    Success,
    /// Anything else, such as "was killed by signal 9 (SIGKILL)".
    Failure(String),
}

/// Order to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process.
    Start {
        /// Its number from now on.
        member: MemberId,
        /// Name of the host.
        host: String,
    },
    /// Tell a process that is ready its place in the next generation.
    Seat {
        /// The process.
        member: MemberId,
        /// Its place.
        seat: Seat,
    },
    /// Tell a rank that the hosts have changed: it stops at its next commit.
    Updated {
        /// The process.
        member: MemberId,
        /// Whether processes were added.
        added: bool,
        /// Whether hosts or slots were removed.
        removed: bool,
    },
    /// Tell a rank that its generation is over, as another rank has ended.
    Over {
        /// The process.
        member: MemberId,
        /// The generation.
        generation: u64,
    },
    /// Tell a process that is ready that it is no longer needed: it exits.
    Leave {
        /// The process.
        member: MemberId,
    },
    /// Kill a process.
    Kill {
        /// The process.
        member: MemberId,
    },
    /// Print a message for the user.
    Say(String),
    /// Kill all processes that are left; the job has ended.
    End(Outcome),
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A rank has exited with code 0, and no rank of its generation has failed.
    Success,
    /// The job failed, for this reason.
    Failure(String),
}
