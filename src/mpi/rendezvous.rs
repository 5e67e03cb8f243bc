//! Rendezvous over MPI: compares versions and settings of all ranks and creates communicators.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{MpiError, Parts};
use super::engine::{Engine, Guard};
use super::heartbeat::{Heartbeat, distances};
use super::hello::{self, Difference, Hello, VersionMix};
use super::library::Mpi;
use super::mixed::Contradiction;
use super::start::{self, MpiStartError};
use super::startup_barrier::StartupBarrier;
use super::world::{CommId, World};
use crate::error::{Error, StartError};
use crate::error::{Failure, failure};
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::shm::primitive::AtomicU64;

/// Errors of the rendezvous over MPI. Ranks are job ranks.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MpiRendezvousError {
    /// MPI itself.
    #[error(transparent)]
    Start(#[from] MpiStartError),
    /// MPI and the launcher's variables disagree.
    #[error(transparent)]
    Contradiction(Box<Contradiction>),
    /// Two ranks run different versions.
    #[error(transparent)]
    Version(Box<VersionMix>),
    /// Two ranks differ.
    #[error(transparent)]
    Mismatch(Box<Difference>),
    /// Not all came.
    #[error(
        "{} not come within {waited_seconds} s (HOROVOD_START_TIMEOUT): does every rank create a context?",
        who(missing)
    )]
    Timeout {
        waited_seconds: u64,
        /// As far as this rank knows.
        missing: Vec<usize>,
    },
    /// What a rank sent is no message of this version.
    #[error(
        "rank {rank} sent {bytes} bytes that this version of Ronde does not understand; install the same for all ranks"
    )]
    Malformed { rank: usize, bytes: usize },
}

/// Most bytes in which a rank introduces itself: its texts are settings and names of hosts and sets.
const GREETING_BYTES_MAX: usize = 1 << 20;

/// Subject and verb.
fn who(missing: &[usize]) -> String {
    match missing {
        [] => "not all ranks have".into(),
        [rank] => format!("rank {rank} has"),
        ranks => format!("ranks {ranks:?} have"),
    }
}

/// The job's state on this rank after the rendezvous: MPI engine, heartbeat, and the communicator of all ranks.
pub(crate) struct MpiJob {
    pub(crate) engine: Arc<Engine>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    /// Cycles of the set of all ranks that this rank has entered.
    pub(crate) entered: Arc<AtomicU64>,
    /// By job rank, which ranks are on the same host: the lowest rank of each.
    pub(crate) leaders: Vec<usize>,
    /// What this rank calls the job: the same on one host, not on all.
    key: String,
    /// All ranks, where process sets come together.
    lobby: CommId,
    /// How long a caller spins before it sleeps.
    pub(crate) spin: Duration,
}

/// Communicators of a process set, and the set's number in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Communicators {
    pub(crate) control: CommId,
    pub(crate) data: CommId,
    pub(crate) set: u64,
}

/// Connects the ranks of the job. `patience` is called with the number of ranks on this host.
///
/// # Errors
/// Any [`MpiRendezvousError`], as [`StartError::Rendezvous`] has it.
pub(crate) fn connect_job(
    mpi: &'static Mpi,
    config: &RendezvousConfig,
    patience: impl FnOnce(usize) -> Patience,
) -> Result<(MpiJob, Communicators), Failure> {
    let engine = Engine::get(mpi, config.start_timeout)
        .map_err(|error| failure(MpiRendezvousError::from(error)))?;
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION").into(),
        host: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        host_key: config.host_key.clone(),
        init: config.init,
        contract: config.contract.clone(),
    };
    let (rank, size) = (config.rank, config.members.len());
    let startup_barrier = StartupBarrier::new(rank, size);
    let guard = Deadline {
        limit: config.start_timeout,
        startup_barrier: startup_barrier.clone(),
    };
    // Where this rank ends while others go on, finalizing MPI would wait for them.
    let alone = |failure: Failure| {
        start::set_broken();
        failure
    };
    let left = |error| {
        alone(match error {
            Error::Start(StartError::Rendezvous(source)) => source,
            other => failure(other),
        })
    };
    let (said, tag) = (hello.encode(), config.init as u16);
    let communicators = engine.run(Duration::ZERO, &guard, move |world| async move {
        let by_mpi = (world.all().rank(), world.all().size());
        if by_mpi != (rank, size) {
            return Ok(Err(Contradiction::new((rank, size), by_mpi, &mpi.version)));
        }
        if world.is_ours() {
            startup_barrier.wait(world.all(), tag).await?;
        }
        greet(world, said).await.map(Ok)
    });
    let (control, greetings) = communicators.map_err(left)?.map_err(|contradiction| {
        alone(failure(MpiRendezvousError::Contradiction(Box::new(
            contradiction,
        ))))
    })?;
    let hellos =
        Hello::understand(&hello, rank, &greetings).map_err(|error| alone(failure(error)))?;
    hello::compare(&hellos).map_err(failure)?;
    let [data, heartbeat, lobby] = engine
        .run(Duration::ZERO, &guard, move |world| async move {
            let mut comms = [control; 3];
            for comm in &mut comms {
                *comm = world.duplicate(&world.comm(control)).await?;
            }
            Ok(comms)
        })
        .map_err(left)?;
    let hosts = hellos.iter().map(|hello| hello.host.clone()).collect();
    let first_on = |hello: &Hello| {
        hellos
            .iter()
            .position(|other| other.host_key == hello.host_key)
    };
    let leaders: Vec<usize> = hellos.iter().filter_map(first_on).collect();
    let ranks_here = leaders
        .iter()
        .filter(|leader| **leader == leaders[rank])
        .count();
    let patience = patience(ranks_here);
    let entered: Arc<AtomicU64> = Arc::default();
    let heartbeat = Heartbeat::start(
        &engine,
        heartbeat,
        rank,
        hosts,
        Arc::clone(&entered),
        patience,
    );
    let key = config.job_key.clone();
    let set = set_key(&key, config);
    let communicators = Communicators { control, data, set };
    Ok((
        MpiJob {
            engine,
            heartbeat,
            entered,
            leaders,
            key,
            lobby,
            spin: patience.spin,
        },
        communicators,
    ))
}

/// Connects the members of a process set.
///
/// # Errors
/// As for [`connect_job`].
pub(crate) fn connect_set(job: &MpiJob, config: &RendezvousConfig) -> Result<Communicators, Error> {
    let guard = Both {
        heartbeat: &job.heartbeat,
        deadline: Deadline {
            limit: config.start_timeout,
            startup_barrier: StartupBarrier::new(usize::MAX, 0),
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

/// Number of the set in messages: equal on all its ranks, and of no other rendezvous of this context. `job_key` is
/// what this rank calls the job, with which the names of its sets begin; other hosts may call it otherwise.
fn set_key(job_key: &str, config: &RendezvousConfig) -> u64 {
    let name = config
        .job_key
        .strip_prefix(job_key)
        .unwrap_or(&config.job_key);
    // The standard library's hash without keys is the same in every process of one build, which versions rule.
    let mut hasher = DefaultHasher::new();
    (name, config.init, &config.members).hash(&mut hasher);
    hasher.finish()
}

/// What all ranks say of themselves, and the communicator that carries it, which becomes that of control: two versions of
/// Ronde get along up to here.
async fn greet(world: Rc<World>, said: Vec<u8>) -> Result<(CommId, Vec<Vec<u8>>), MpiError> {
    let id = world.duplicate(world.all()).await?;
    let control = world.comm(id);
    let size = control.size();
    let length = (said.len() as u64).to_le_bytes().to_vec();
    let (_, lengths) = control.allgather(length, vec![0; 8 * size], 8)?.await?;
    let lengths = lengths
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as usize);
    if let Some(rank) = lengths.clone().position(|bytes| bytes > GREETING_BYTES_MAX) {
        return Err(MpiError {
            call: "MPI_Allgather",
            text: format!("rank {rank} does not introduce itself as a rank of ronde does"),
        });
    }
    let parts = Parts::of(lengths);
    let memory = vec![0; parts.bytes()];
    let (_, memory, parts) = control.allgather_parts(said, memory, parts)?.await?;
    let greetings = (0..size)
        .map(|rank| memory[parts.range(rank)].to_vec())
        .collect();
    Ok((id, greetings))
}

/// Makes a process set's communicators, once all members have come.
async fn gather(
    world: Rc<World>,
    lobby: CommId,
    members: Vec<usize>,
    set: u64,
) -> Result<[CommId; 2], MpiError> {
    let all = world.comm(lobby);
    let tag = set as u16;
    let place = members
        .binary_search(&all.rank())
        .expect("this rank is a member");
    // Everyone hears from everyone, by way of others: from then on, nobody waits long in the calls that block.
    for distance in distances(members.len()) {
        let to = members[(place + distance) % members.len()];
        let from = members[(place + members.len() - distance) % members.len()];
        let sent = all.send(vec![0], to, tag)?;
        all.receive(vec![0], Some(from), tag)?.await?;
        sent.await?;
    }
    let make = || world.of_members(&all, &members, tag);
    Ok([make()?, make()?])
}

/// Gives up after a while.
struct Deadline {
    limit: Duration,
    startup_barrier: StartupBarrier,
}

impl Guard for Deadline {
    fn check(&self, waited: Duration) -> Result<(), Error> {
        if waited < self.limit {
            return Ok(());
        }
        Err(
            StartError::Rendezvous(Arc::new(MpiRendezvousError::Timeout {
                waited_seconds: waited.as_secs(),
                missing: self.startup_barrier.missing(),
            }))
            .into(),
        )
    }

    fn failure(&self, error: &MpiError) -> Error {
        Error::Start(StartError::Rendezvous(Arc::new(MpiRendezvousError::Start(
            error.clone().into(),
        ))))
    }
}

/// Gives up after a while, or once a rank of the job is gone.
struct Both<'a> {
    heartbeat: &'a Heartbeat,
    deadline: Deadline,
}

impl Guard for Both<'_> {
    fn check(&self, waited: Duration) -> Result<(), Error> {
        self.heartbeat.check()?;
        self.deadline.check(waited)
    }

    fn failure(&self, error: &MpiError) -> Error {
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
