//! Configuration of a rendezvous for all backends: the ranks, the values that must be equal, and
//! the time limits.

use std::sync::Arc;
use std::time::Duration;

use ronde_net::LateWarnings;

use crate::error::Error;

/// Job contract: names and values of settings that must be equal on all ranks, for example `process
/// sets` and `[0, 1] [1, 2]`, or a knob's variable and its value. In the same order on all ranks.
pub(crate) type JobContract = Vec<(String, String)>;

/// Rendezvous configuration: the ranks to connect, the socket name, and the timeout.
#[derive(Clone, Debug)]
pub(crate) struct RendezvousConfig {
    /// Key that is equal on all ranks of the set and unique among the jobs and sets of this user on
    /// this host.
    pub(crate) job_key: String,
    /// Number of contexts that this job has had before: each rendezvous has its own name.
    pub(crate) init: u32,
    /// This rank's set rank: an index into `members`.
    pub(crate) rank: usize,
    /// Job ranks of the members, distinct, in the order of their set ranks; for the job itself,
    /// `0..size`. Compared.
    pub(crate) members: Arc<[usize]>,
    /// Time limit of the rendezvous, from this rank's call until all ranks are started.
    pub(crate) start_timeout: Duration,
    /// Time after which this rank logs which ranks it waits for, repeated after each such interval;
    /// zero: never.
    pub(crate) warn_after: Duration,
    /// This rank's key of the host. Compared.
    pub(crate) host_key: String,
    /// Other values that must be equal on all ranks. Compared.
    pub(crate) contract: JobContract,
    /// Check that is called from time to time while this rank waits for others, which may have died
    /// meanwhile.
    pub(crate) alarm: Option<Alarm>,
}

impl RendezvousConfig {
    /// Returns the warnings of a wait for other ranks that begins now.
    pub(crate) fn late_warnings(&self) -> LateWarnings {
        LateWarnings::new(self.warn_after, self.start_timeout)
    }
}

/// Returns an error when waiting has become useless.
#[derive(Clone)]
pub(crate) struct Alarm(pub(crate) Arc<dyn Fn() -> Option<Error> + Send + Sync>);

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alarm")
    }
}

/// Time limits of waits for other ranks, and times of warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Time of spinning before sleeping; zero where ranks outnumber cores.
    pub spin: Duration,
    /// Time after which a wait for a rank logs a warning, repeated after each such interval; zero:
    /// never.
    pub warn_after: Duration,
    /// Time after which a wait ends with an error.
    pub give_up_after: Option<Duration>,
}

impl Patience {
    /// Returns the limit, if a wait of `waited` has reached it.
    pub(crate) fn exceeded(&self, waited: Duration) -> Option<Duration> {
        self.give_up_after.filter(|limit| waited >= *limit)
    }

    /// Number of warnings due after a wait of `waited`.
    pub(crate) fn warnings(&self, waited: Duration) -> u64 {
        if self.warn_after.is_zero() {
            return 0;
        }
        (waited.as_millis() / self.warn_after.as_millis().max(1)) as u64
    }
}
