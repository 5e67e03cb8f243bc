//! Job on several hosts: the state of a rank after the rendezvous, and the communicators of process
//! sets.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ronde_net::{LateWarnings, neighbours, not_come};

use super::comm::CommError;
use super::engine::{Engine, Guard};
use super::heartbeat::Heartbeat;
use super::world::{CommId, World};
use crate::error::{Error, StartError};
use crate::rendezvous::{Alarm, Patience, RendezvousConfig};
use crate::shm::primitive::AtomicU64;

/// State of the job on this rank: engine, heartbeat, and the communicator of all ranks.
pub(crate) struct HostsJob {
    pub(crate) engine: Arc<Engine>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    /// Cycles of the set of all ranks that this rank has entered.
    pub(crate) entered: Arc<AtomicU64>,
    /// The lowest rank on the host of each job rank.
    pub(crate) leaders: Vec<usize>,
    /// Name of the job: equal for the ranks of one host; other hosts have other names for it.
    key: String,
    /// All ranks, for the rendezvous of process sets.
    lobby: CommId,
    /// Time for which a caller spins before it sleeps.
    pub(crate) spin: Duration,
}

/// Communicators of a process set, and the set's number in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Communicators {
    pub(crate) control: CommId,
    pub(crate) data: CommId,
    pub(crate) set: u64,
}

/// Communicators of all ranks, which the rendezvous has created.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfAll {
    pub(super) control: CommId,
    pub(super) data: CommId,
    pub(super) heartbeat: CommId,
    pub(super) lobby: CommId,
}

/// Host of a rank.
pub(super) struct RankHost {
    /// Its name, for errors.
    pub(super) name: String,
    /// Equal for ranks that share memory.
    pub(super) key: String,
}

impl HostsJob {
    /// Creates the state of the job after its rendezvous, and starts the heartbeat. `ranks` has the
    /// host of each rank; `patience` is called with the number of ranks on this host.
    pub(super) fn new(
        engine: Arc<Engine>,
        comms: OfAll,
        config: &RendezvousConfig,
        ranks: Vec<RankHost>,
        patience: impl FnOnce(usize) -> Patience,
    ) -> (Self, Communicators) {
        let first_on = |host: &RankHost| ranks.iter().position(|other| other.key == host.key);
        let leaders: Vec<usize> = ranks.iter().filter_map(first_on).collect();
        let own = leaders[config.rank];
        let patience = patience(leaders.iter().filter(|leader| **leader == own).count());
        let entered: Arc<AtomicU64> = Arc::default();
        let key = config.job_key.clone();
        let set = set_key(&key, config);
        let heartbeat = Heartbeat::start(
            &engine,
            comms.heartbeat,
            config.rank,
            set,
            ranks.into_iter().map(|host| host.name).collect(),
            Arc::clone(&entered),
            patience,
        );
        let communicators = Communicators {
            control: comms.control,
            data: comms.data,
            set,
        };
        let job = Self {
            engine,
            heartbeat,
            entered,
            leaders,
            key,
            lobby: comms.lobby,
            spin: patience.spin,
        };
        (job, communicators)
    }
}

impl Drop for HostsJob {
    /// Ends the heartbeat, which holds the engine.
    fn drop(&mut self) {
        self.heartbeat.stop();
    }
}

/// Connects the members of a process set.
///
/// # Errors
/// Members that do not come in time; the reason why the job is over.
pub(crate) fn connect_set(
    job: &HostsJob,
    config: &RendezvousConfig,
) -> Result<Communicators, Error> {
    let guard = Both {
        heartbeat: &job.heartbeat,
        alarm: config.alarm.as_ref(),
        deadline: Deadline {
            limit: config.start_timeout,
            late: config.late_warnings(),
            missing: &Vec::new,
        },
    };
    let (members, set, lobby) = (
        config.members.to_vec(),
        set_key(&job.key, config),
        job.lobby,
    );
    let [control, data] = job.engine.run(Duration::ZERO, &guard, move |world| {
        gather(world, lobby, members, set)
    })?;
    Ok(Communicators { control, data, set })
}

/// Number of the set in messages: equal on all its ranks, and different from the other rendezvous of
/// this context. `job_key` is this host's name of the job, with which the names of its sets begin;
/// other hosts may use another name.
fn set_key(job_key: &str, config: &RendezvousConfig) -> u64 {
    let name = config
        .job_key
        .strip_prefix(job_key)
        .unwrap_or(&config.job_key);
    // The standard library's hash without keys is the same in every process of one build, which
    // versions rule.
    let mut hasher = DefaultHasher::new();
    (name, config.init, &config.members).hash(&mut hasher);
    hasher.finish()
}

/// Makes a process set's communicators, once all members have come.
async fn gather(
    world: Rc<World>,
    lobby: CommId,
    members: Vec<usize>,
    set: u64,
) -> Result<[CommId; 2], CommError> {
    let all = world.comm(lobby);
    let tag = set as u16;
    let place = members
        .binary_search(&all.rank())
        .expect("this rank is a member");
    // After these messages every rank knows that all members have come, so the blocking calls below
    // do not wait long.
    for distance in neighbours::distances(members.len()) {
        let to = members[(place + distance) % members.len()];
        let from = members[(place + members.len() - distance) % members.len()];
        let sent = all.send(vec![0], to, tag)?;
        all.receive(vec![0], Some(from), tag)?.await?;
        sent.await?;
    }
    // Tags distinguish only the sets that are created at the same time; channels all.
    let make = |kind: u64| world.of_members(&all, &members, set & !1 | kind);
    Ok([make(0)?, make(1)?])
}

/// Not all ranks have come in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{} within {waited_seconds} s (HOROVOD_START_TIMEOUT): does every rank create a \
     context?",
    not_come(missing)
)]
struct NotAllCame {
    waited_seconds: u64,
    /// Ranks that have not come, as far as this rank knows.
    missing: Vec<usize>,
}

/// Guard of a rendezvous: limits its time.
pub(super) struct Deadline<'a> {
    pub(super) limit: Duration,
    /// Warnings before the limit.
    pub(super) late: LateWarnings,
    /// Returns the ranks that have not come, as far as this rank knows.
    pub(super) missing: &'a dyn Fn() -> Vec<usize>,
}

impl Guard for Deadline<'_> {
    fn check(&self, waited: Duration, _: Duration) -> Result<(), Error> {
        if waited < self.limit {
            self.late.warn(|| not_come(&(self.missing)()));
            return Ok(());
        }
        Err(StartError::Rendezvous(Arc::new(NotAllCame {
            waited_seconds: waited.as_secs(),
            missing: (self.missing)(),
        }))
        .into())
    }

    fn failure(&self, error: &CommError) -> Error {
        StartError::Rendezvous(Arc::new(error.clone())).into()
    }
}

/// Guard of the rendezvous of a process set: likewise, and it ends when a rank of the job is lost.
struct Both<'a> {
    heartbeat: &'a Heartbeat,
    alarm: Option<&'a Alarm>,
    deadline: Deadline<'a>,
}

impl Guard for Both<'_> {
    fn check(&self, waited: Duration, quiet: Duration) -> Result<(), Error> {
        self.heartbeat.check_with(self.alarm)?;
        self.deadline.check(waited, quiet)
    }

    fn failure(&self, error: &CommError) -> Error {
        self.heartbeat.failure(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(job_key: &str, members: &[usize]) -> RendezvousConfig {
        RendezvousConfig {
            job_key: job_key.into(),
            init: 1,
            rank: 0,
            members: members.into(),
            start_timeout: Duration::ZERO,
            warn_after: Duration::ZERO,
            host_key: String::new(),
            contract: Vec::new(),
            alarm: None,
        }
    }

    #[test]
    fn a_set_is_called_the_same_on_hosts_that_call_the_job_differently() {
        let key = |job: &str, name: &str, members| {
            set_key(job, &config(&format!("{job}{name}"), members))
        };
        let on = |job| key(job, "#1/set2.3", &[0, 2]);
        assert_eq!(on("pid-50.1050"), on("pid-7.99"));
        let others = [
            key("pid-7.99", "", &[0, 2]),
            key("pid-7.99", "#1/set2.4", &[0, 2]),
            key("pid-7.99", "#1/set2.3", &[0, 1]),
        ];
        assert!(!others.contains(&on("pid-7.99")));
    }
}
