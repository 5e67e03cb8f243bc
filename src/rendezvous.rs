//! What ranks bring to a rendezvous, whatever connects them: who they are, what must be equal, and how long they wait.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;

/// Job contract: names and values of settings that must be equal on all ranks, for example `process sets` and
/// `[0, 1] [1, 2]`, or a knob's variable and its value. In the same order on all ranks.
pub(crate) type JobContract = Vec<(String, String)>;

/// Rendezvous configuration: the ranks to connect, the socket name, and the timeout.
#[derive(Clone, Debug)]
pub(crate) struct RendezvousConfig {
    /// Key that is equal on all ranks of the set and unique among the jobs and sets of this user on this host.
    pub(crate) job_key: String,
    /// How many contexts this job has had before: each rendezvous has its own name.
    pub(crate) init: u32,
    /// This rank's set rank: an index into `members`.
    pub(crate) rank: usize,
    /// The job ranks of the members, distinct, in the order of their set ranks; for the job itself, `0..size`.
    /// Compared.
    pub(crate) members: Arc<[usize]>,
    /// How long the rendezvous may take from this rank's call on, until all ranks are started.
    pub(crate) start_timeout: Duration,
    /// The host as this rank knows it; compared.
    pub(crate) host_key: String,
    /// What else must be the same on all ranks. Compared.
    pub(crate) contract: JobContract,
    /// Asked now and then while this rank waits for others, who may have died since they agreed to come.
    pub(crate) alarm: Option<Alarm>,
}

/// Says why nobody need be waited for any more.
#[derive(Clone)]
pub(crate) struct Alarm(pub(crate) Arc<dyn Fn() -> Option<Error> + Send + Sync>);

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alarm")
    }
}

/// How long to wait for other ranks, and when to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// How long to spin before sleeping; zero where ranks outnumber cores.
    pub spin: Duration,
    /// Warn about a rank that is waited for this long, and again each time as much has passed; zero: never.
    pub warn_after: Duration,
    /// Give up on it.
    pub give_up_after: Option<Duration>,
}

impl Patience {
    /// The limit, if a wait of `waited` has come to it.
    pub(crate) fn exceeded(&self, waited: Duration) -> Option<Duration> {
        self.give_up_after.filter(|limit| waited >= *limit)
    }

    /// Warnings that a wait of `waited` has brought.
    pub(crate) fn warnings(&self, waited: Duration) -> u64 {
        if self.warn_after.is_zero() {
            return 0;
        }
        (waited.as_millis() / self.warn_after.as_millis().max(1)) as u64
    }
}
