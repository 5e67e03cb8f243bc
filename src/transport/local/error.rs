//! Errors of the rendezvous of one host's ranks.

use serde::{Deserialize, Serialize};

/// Error of the rendezvous of a host's ranks or of one process set. Set rank 0 sends its error to
/// every connected rank, so that all ranks report the same one. Ranks are job ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub(crate) enum RendezvousError {
    /// Two ranks run different versions of Ronde.
    #[error(
        "rank {first_rank} runs ronde {first_version} (layout {first_layout:x}) and a rank (process {pid}) runs ronde \
         {version} (layout {layout:x}); install the same version for all ranks"
    )]
    Version {
        /// Process of the differing rank, as set rank 0 sees it; 0 if unknown.
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
    /// Rank outside of the job's size.
    #[error(
        "rank {rank} (process {pid}) is not in a job of {size} ranks; start it with a rank in 0..{size}"
    )]
    InvalidRank {
        /// The rank.
        rank: usize,
        /// Process id.
        pid: u32,
        /// Number of ranks.
        size: usize,
    },
    /// Two processes have the same rank.
    #[error(
        "processes {first_pid} and {pid} both have rank {rank}; give every process a rank of its own, and \
         every job a RONDE_JOB_ID of its own"
    )]
    DuplicateRank {
        /// The rank.
        rank: usize,
        /// Process that connected first.
        first_pid: u32,
        /// Process that connected second.
        pid: u32,
    },
    /// Two ranks differ in a value that must be equal on all.
    #[error(
        "rank {rank} has {what} {found}, rank {first_rank} has {expected}; start all ranks with the same {what}"
    )]
    Disagreement {
        /// Name of the value: `job size`, `members of the process set`, `host key (RONDE_HOST_ID)`,
        /// `process sets`, a knob's variable, `response cache words`, `shared memory bytes`.
        what: String,
        /// Job rank of set rank 0.
        first_rank: usize,
        /// Value of that rank; long ones are cut, and end in a hash of the whole.
        expected: String,
        /// The rank that differs from it.
        rank: usize,
        /// Value of the differing rank.
        found: String,
    },
    /// Some ranks did not arrive in time.
    #[error(
        "ranks {missing:?} did not arrive within {waited_seconds} s, of {size}; check that they were started on this \
         host, not in another container or network namespace, and read their output. If they wait as well, \
         set RONDE_JOB_ID to one value on all ranks. If they are slow, raise the start timeout \
         (HOROVOD_START_TIMEOUT, --start-timeout)"
    )]
    Missing {
        /// Ranks that did not arrive.
        missing: Vec<usize>,
        /// Number of ranks of the set.
        size: usize,
        /// Time waited for them, seconds.
        waited_seconds: u64,
    },
    /// Some ranks arrived, but did not answer in time.
    #[error(
        "ranks {ranks:?} (processes {pids:?}) arrived but did not answer within {waited_seconds} s{}; check where they hang, or \
         raise the start timeout (HOROVOD_START_TIMEOUT, --start-timeout)",
        stopped_text(stopped)
    )]
    Silent {
        /// Ranks that did not answer.
        ranks: Vec<usize>,
        /// Their process ids; 0 if unknown.
        pids: Vec<u32>,
        /// Those of the ranks whose processes are stopped by a signal or a debugger.
        stopped: Vec<usize>,
        /// Duration of the start until then, seconds.
        waited_seconds: u64,
    },
    /// The job has ended during the rendezvous.
    #[error("{reason}")]
    Ended {
        /// Reason of its end.
        reason: String,
    },
    /// A rank closed its connection before the rendezvous was complete.
    #[error(
        "rank {rank} (process {pid}) ended before all ranks were connected; look at its last output"
    )]
    Vanished {
        /// The rank.
        rank: usize,
        /// Process id; 0 if unknown.
        pid: u32,
    },
    /// The first rank's socket belongs to another user.
    #[error(
        "rank {rank} found the rendezvous socket of this job held by process {pid} of user {found}, not of user {expected}; \
         choose another RONDE_JOB_ID, which others cannot guess"
    )]
    ForeignUser {
        /// Rank that reports the error.
        rank: usize,
        /// Process id of the holder; 0 if unknown.
        pid: u32,
        /// User id of the holder.
        found: u32,
        /// User id of this process.
        expected: u32,
    },
    /// Another program of the same user, or one that accepts no connections, holds the first rank's
    /// socket name.
    #[error(
        "rank {rank} found the rendezvous socket of this job held by {}, which does not answer as a rank of it; end that process, or \
         choose another RONDE_JOB_ID",
        holder_text(*pid, *uid)
    )]
    NameHeld {
        /// Rank that reports the error.
        rank: usize,
        /// Process id of the holder; 0 if unknown.
        pid: u32,
        /// User id of the holder; `None` if unknown.
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
        /// Rank that refused the file.
        rank: usize,
        /// Problem of the file.
        problem: String,
    },
    /// The received bytes are not a message of this protocol.
    #[error(
        "rank {rank} sent {bytes} bytes that are not a rendezvous message ({problem}); another program may use this job's name"
    )]
    Malformed {
        /// Rank that sent them.
        rank: usize,
        /// Bytes received.
        bytes: usize,
        /// Problem of the bytes.
        problem: String,
    },
    /// There is not enough memory for the shared region.
    #[error(
        "rank {rank} needs {needed_bytes} bytes of shared memory and {limit} leaves {available_bytes}; \
         {advice}"
    )]
    Memory {
        /// Rank that needs the memory.
        rank: usize,
        /// Length of the region.
        needed_bytes: u64,
        /// Bytes that are still available.
        available_bytes: u64,
        /// Source of the limit, such as `memory.max of cgroup /job`.
        limit: String,
        /// Advice to the user.
        advice: String,
    },
    /// More ranks on one host than the local transport supports.
    #[error(
        "{size} ranks on one host, but the local transport supports at most {size_max}; use more hosts or fewer ranks"
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
        /// Rank of the failed call.
        rank: usize,
        /// Action that failed.
        what: String,
        /// Error number of the system.
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
    /// Whether ranks did not arrive or did not answer in time, whatever the reason.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Silent { .. })
    }

    /// Whether a rank has ended, for whatever reason.
    pub(crate) fn is_departure(&self) -> bool {
        matches!(self, Self::Vanished { .. })
    }
}
