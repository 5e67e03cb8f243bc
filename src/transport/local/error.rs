//! Errors of the rendezvous of one host's ranks.

use serde::{Deserialize, Serialize};

/// Why the ranks of a host, or of one process set, did not come together. The first of them sends its verdict to
/// every connected rank, so that all report the same. Ranks are the job's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub(crate) enum RendezvousError {
    /// Two ranks run different versions of Ronde.
    #[error(
        "rank {first_rank} runs ronde {first_version} (layout {first_layout:x}) and a rank (process {pid}) runs ronde \
         {version} (layout {layout:x}); install the same version for all ranks"
    )]
    Version {
        /// Process of the rank that differs, as the first rank saw it; 0 if unknown.
        pid: u32,
        /// Its version.
        version: String,
        /// Hash of its protocol and memory layout.
        layout: u64,
        /// Job rank of set rank 0.
        first_rank: usize,
        /// Its version.
        first_version: String,
        /// Hash of its protocol and memory layout.
        first_layout: u64,
    },
    /// A rank that cannot be, given the size.
    #[error("rank {rank} (process {pid}) is not in a job of {size} ranks; start it with a rank in 0..{size}")]
    InvalidRank {
        /// The rank.
        rank: usize,
        /// Its process.
        pid: u32,
        /// Number of ranks.
        size: usize,
    },
    /// Two processes say they are the same rank.
    #[error(
        "processes {first_pid} and {pid} both say they are rank {rank}; give every process a rank of its own, and \
         every job a RONDE_JOB_ID of its own"
    )]
    DuplicateRank {
        /// The rank.
        rank: usize,
        /// The process that came first.
        first_pid: u32,
        /// The one that came next.
        pid: u32,
    },
    /// Two ranks disagree about something that must be the same on all.
    #[error(
        "rank {rank} has {what} {found}, rank {first_rank} has {expected}; start all ranks with the same {what}"
    )]
    Disagreement {
        /// What differs: `job size`, `members of the process set`, `host key`, `process sets`, a knob's variable,
        /// `response cache words`, `shared memory bytes`.
        what: String,
        /// Job rank of set rank 0.
        first_rank: usize,
        /// Its value; long ones are cut, and end in a hash of the whole.
        expected: String,
        /// The rank that differs from it.
        rank: usize,
        /// The value of that one.
        found: String,
    },
    /// Not all ranks came in time.
    #[error(
        "ranks {missing:?} did not arrive within {waited_seconds} s, of {size}; see whether they were started and \
         what they say, or raise the start timeout (HOROVOD_START_TIMEOUT, --start-timeout)"
    )]
    Missing {
        /// The ranks that did not come.
        missing: Vec<usize>,
        /// Number of ranks of the set.
        size: usize,
        /// How long they were waited for.
        waited_seconds: u64,
    },
    /// Ranks came, and then did not answer in time.
    #[error(
        "ranks {ranks:?} (processes {pids:?}) arrived but did not answer within {waited_seconds} s{}; see where they hang, or \
         raise the start timeout (HOROVOD_START_TIMEOUT, --start-timeout)",
        stopped_text(stopped)
    )]
    Silent {
        /// The ranks that did not answer.
        ranks: Vec<usize>,
        /// Their processes; 0 where unknown.
        pids: Vec<u32>,
        /// Those of the ranks whose processes are stopped by a signal or a debugger.
        stopped: Vec<usize>,
        /// How long the start took until then.
        waited_seconds: u64,
    },
    /// The job has ended meanwhile.
    #[error("{reason}")]
    Ended {
        /// Why.
        reason: String,
    },
    /// A rank closed its connection before the rendezvous was complete.
    #[error("rank {rank} (process {pid}) ended before all ranks were connected; look at its last output")]
    Vanished {
        /// The rank.
        rank: usize,
        /// Its process; 0 if unknown.
        pid: u32,
    },
    /// The first rank's socket belongs to another user.
    #[error(
        "rank {rank} found the rendezvous socket of this job held by process {pid} of user {found}, not of user {expected}; \
         choose another RONDE_JOB_ID, which others cannot guess"
    )]
    ForeignUser {
        /// The rank that found out.
        rank: usize,
        /// The holder's process; 0 if unknown.
        pid: u32,
        /// The holder.
        found: u32,
        /// This process's user.
        expected: u32,
    },
    /// Another program of the same user, or one that accepts no connections, holds the first rank's socket name.
    #[error(
        "rank {rank} found the rendezvous socket of this job held by {}, which does not answer as a rank of it; end that process, or \
         choose another RONDE_JOB_ID",
        holder_text(*pid, *uid)
    )]
    NameHeld {
        /// The rank that found out.
        rank: usize,
        /// The holder's process; 0 if unknown.
        pid: u32,
        /// The holder's user; none if unknown.
        uid: Option<u32>,
    },
    /// The file that the first rank sent is not the memory of this job.
    #[error(
        "rank {first_rank} sent rank {rank} a file that cannot be the job's shared memory: {problem}; is another program \
         using this job's name?"
    )]
    InvalidMemory {
        /// Job rank of set rank 0.
        first_rank: usize,
        /// The rank that refused it.
        rank: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// What was received is no message of this protocol.
    #[error(
        "rank {rank} sent {bytes} bytes that are no rendezvous message ({problem}); is another program using this job's name?"
    )]
    Malformed {
        /// Whose connection it was.
        rank: usize,
        /// Bytes received.
        bytes: usize,
        /// What is wrong with them.
        problem: String,
    },
    /// There is not enough memory for the shared region.
    #[error(
        "rank {rank} needs {needed_bytes} bytes of shared memory and {limit} leaves {available_bytes}; \
         {advice}"
    )]
    Memory {
        /// The rank that found out.
        rank: usize,
        /// Length of the region.
        needed_bytes: u64,
        /// What may still be taken.
        available_bytes: u64,
        /// What sets the limit, such as `memory.max of cgroup /job`.
        limit: String,
        /// What to try.
        advice: String,
    },
    /// More ranks on one host than the local transport carries.
    #[error(
        "{size} ranks on one host, the local transport carries {size_max} at most; use more hosts or fewer ranks"
    )]
    TooManyRanks {
        /// Number of ranks.
        size: usize,
        /// The limit.
        size_max: usize,
    },
    /// A call to the operating system failed.
    #[error("rank {rank} could not {what}: {}", std::io::Error::from_raw_os_error(*code))]
    System {
        /// The rank it happened on.
        rank: usize,
        /// What was tried.
        what: String,
        /// The system's error number.
        code: i32,
    },
}

fn stopped_text(stopped: &[usize]) -> String {
    match stopped {
        [] => String::new(),
        ranks => format!("; ranks {ranks:?} are stopped: continue them (SIGCONT)"),
    }
}

fn holder_text(pid: u32, uid: Option<u32>) -> String {
    match (pid, uid) {
        (0, None) => "a process that accepts no connections".to_owned(),
        (0, Some(uid)) => format!("a process of user {uid}"),
        (pid, None) => format!("process {pid}"),
        (pid, Some(uid)) => format!("process {pid} of user {uid}"),
    }
}

impl RendezvousError {
    /// Whether it is about ranks that nothing was heard of in time, whatever they do.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Silent { .. })
    }

    /// Whether it is about a rank that has ended, for whatever reason.
    pub(crate) fn is_departure(&self) -> bool {
        matches!(self, Self::Vanished { .. })
    }
}
