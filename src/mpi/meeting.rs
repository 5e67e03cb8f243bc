//! How ranks come together over MPI, and compare what must be the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::{MpiError, Parts};
use super::engine::{Engine, Guard};
use super::pulse::{Pulse, distances};
use super::start::{self, StartError};
use super::world::{CommId, World};
use crate::backend::{Failure, failure};
use crate::error::Error;
use crate::transport::local::{Meeting, Patience};

/// Why ranks did not come together over MPI. Ranks are the job's.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum MeetingError {
    /// MPI itself.
    #[error(transparent)]
    Start(#[from] StartError),
    /// MPI and the launcher's variables disagree.
    #[error(
        "the launcher's variables say that this is rank {rank} of {size}, MPI that it is rank {mpi_rank} of {mpi_size}: \
         was the program started by another MPI than it was built for ({library})? Start it with that one's mpirun, or \
         build it again with this one's mpicc in the path"
    )]
    Contradiction {
        rank: usize,
        size: usize,
        mpi_rank: usize,
        mpi_size: usize,
        library: String,
    },
    /// Two ranks differ.
    #[error(transparent)]
    Mismatch(Box<Difference>),
    /// Not all came.
    #[error(
        "not all ranks have come within {waited_seconds} s (HOROVOD_START_TIMEOUT): does every rank create a context?"
    )]
    Timeout { waited_seconds: u64 },
    /// What a rank sent is no message of this version.
    #[error(
        "rank {rank} sent {bytes} bytes that this version of Ronde does not understand; install the same for all ranks"
    )]
    Malformed { rank: usize, bytes: usize },
}

/// What two ranks do not have in common.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "rank {first_rank} on {first_host} has {what} {expected}, rank {rank} on {host} has {found}: give all ranks the same"
)]
pub(crate) struct Difference {
    what: &'static str,
    first_rank: usize,
    first_host: String,
    expected: String,
    rank: usize,
    host: String,
    found: String,
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    version: String,
    host: String,
    host_key: String,
    init: u32,
    cache_words: usize,
    agreement: String,
}

/// A job's ranks, met.
pub(crate) struct Hall {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pulse: Arc<Pulse>,
    /// Cycles of the set of all ranks that this rank has entered.
    pub(crate) entered: Arc<AtomicU64>,
    /// By job rank, which ranks are on the same host: the lowest rank of each.
    pub(crate) leaders: Vec<usize>,
    /// How long a caller spins before it sleeps.
    pub(crate) spin: Duration,
}

/// The communicators of a set of ranks, and what messages call it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    pub(crate) control: CommId,
    pub(crate) data: CommId,
    pub(crate) set: u64,
}

/// Meets the other ranks of the job. `patience` is for so many ranks on this host.
///
/// # Errors
/// Any [`MeetingError`], as [`Error::Rendezvous`] has it.
pub(crate) fn meet_job(
    meeting: &Meeting,
    cache_words: usize,
    patience: impl FnOnce(usize) -> Patience,
) -> Result<(Hall, Met), Failure> {
    let engine = Engine::get(meeting.start_timeout).map_err(|error| failure(MeetingError::from(error)))?;
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION").into(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        host_key: meeting.host_key.clone(),
        init: meeting.init,
        cache_words,
        agreement: meeting.agreement.clone(),
    };
    let (rank, size) = (meeting.rank, meeting.members.len());
    let guard = Deadline(meeting.start_timeout);
    let said = postcard::to_stdvec(&hello).expect("lengths are known");
    let met = engine.run(Duration::ZERO, &guard, move |world| {
        greet(world, rank, size, said)
    });
    let (comms, greetings) = met.map_err(|error| -> Failure {
        start::set_broken(); // a call that all must make is left half made
        match error {
            Error::Rendezvous(source) => source,
            other => failure(other),
        }
    })?;
    let hellos = understand(greetings).map_err(failure)?;
    compare(&hellos).map_err(failure)?;
    let hosts = hellos.iter().map(|hello| hello.host.clone()).collect();
    let first_on = |hello: &Hello| hellos.iter().position(|other| other.host_key == hello.host_key);
    let leaders: Vec<usize> = hellos.iter().filter_map(first_on).collect();
    let ranks_here = leaders.iter().filter(|leader| **leader == leaders[rank]).count();
    let patience = patience(ranks_here);
    let entered: Arc<AtomicU64> = Arc::default();
    let pulse = Pulse::start(&engine, comms[2], rank, hosts, Arc::clone(&entered), patience);
    let met = Met {
        control: comms[0],
        data: comms[1],
        set: set_key(meeting),
    };
    Ok((
        Hall {
            engine,
            pulse,
            entered,
            leaders,
            spin: patience.spin,
        },
        met,
    ))
}

/// Meets the other members of a process set.
///
/// # Errors
/// As for [`meet_job`].
pub(crate) fn meet_set(hall: &Hall, meeting: &Meeting) -> Result<Met, Error> {
    let guard = Both {
        pulse: &hall.pulse,
        deadline: Deadline(meeting.start_timeout),
    };
    let (members, set) = (meeting.members.to_vec(), set_key(meeting));
    let comms = hall
        .engine
        .run(Duration::ZERO, &guard, move |world| gather(world, members, set))?;
    Ok(Met {
        control: comms[0],
        data: comms[1],
        set,
    })
}

/// What messages call the set that meets: the same on all its ranks, and of no other meeting of the job's.
pub(crate) fn set_key(meeting: &Meeting) -> u64 {
    // The standard library's hash without keys is the same in every process of one build, which versions rule.
    let mut hasher = DefaultHasher::new();
    (&meeting.job_key, meeting.init, &meeting.members).hash(&mut hasher);
    hasher.finish()
}

/// Makes the job's communicators and exchanges what the ranks say of themselves. The outer error is MPI's.
async fn greet(
    world: Rc<World>,
    rank: usize,
    size: usize,
    said: Vec<u8>,
) -> Result<([CommId; 3], Result<Vec<Vec<u8>>, MeetingError>), MpiError> {
    let all = world.all();
    if (all.rank(), all.size()) != (rank, size) {
        let contradiction = MeetingError::Contradiction {
            rank,
            size,
            mpi_rank: all.rank(),
            mpi_size: all.size(),
            library: library(),
        };
        return Ok(([CommId::ALL; 3], Err(contradiction)));
    }
    // Control, data and pulse.
    let mut comms = [CommId::ALL; 3];
    for comm in &mut comms {
        *comm = world.duplicate().await?;
    }
    let control = world.comm(comms[0]);
    let length = (said.len() as u64).to_le_bytes().to_vec();
    let (_, lengths) = control.allgather(length, vec![0; 8 * size], 8)?.await?;
    let lengths = lengths
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as usize);
    let parts = Parts::of(lengths);
    let memory = vec![0; parts.bytes()];
    let (_, memory, parts) = control.allgather_parts(said, memory, parts)?.await?;
    let greetings = (0..size).map(|rank| memory[parts.range(rank)].to_vec()).collect();
    Ok((comms, Ok(greetings)))
}

/// Makes a process set's communicators, once all members have come.
async fn gather(world: Rc<World>, members: Vec<usize>, set: u64) -> Result<[CommId; 2], MpiError> {
    let all = world.all();
    let tag = set as u16;
    let place = members.binary_search(&all.rank()).expect("a member meets");
    // Everyone hears from everyone, by way of others: from then on, nobody waits long in the calls that block.
    for distance in distances(members.len()) {
        let to = members[(place + distance) % members.len()];
        let from = members[(place + members.len() - distance) % members.len()];
        let sent = all.send(vec![0], to, tag)?;
        all.receive(vec![0], Some(from), tag)?.await?;
        sent.await?;
    }
    Ok([world.of_members(&members, tag)?, world.of_members(&members, tag)?])
}

/// What MPI calls itself, its first line.
fn library() -> String {
    let version = ::mpi::environment::library_version().unwrap_or_default();
    version
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('\0')
        .to_owned()
}

fn understand(greetings: Result<Vec<Vec<u8>>, MeetingError>) -> Result<Vec<Hello>, MeetingError> {
    let hellos = greetings?.into_iter().enumerate().map(|(rank, bytes)| {
        postcard::from_bytes(&bytes).map_err(|_| MeetingError::Malformed {
            rank,
            bytes: bytes.len(),
        })
    });
    hellos.collect()
}

/// Fails with the first difference; all ranks find the same.
fn compare(hellos: &[Hello]) -> Result<(), MeetingError> {
    type Of = fn(&Hello) -> String;
    let what: [(&str, Of); 4] = [
        ("ronde", |hello| hello.version.clone()),
        ("context number", |hello| hello.init.to_string()),
        ("a response cache (HOROVOD_CACHE_CAPACITY) of at most", |hello| {
            format!("{} tensors", hello.cache_words * 64)
        }),
        ("process sets", |hello| format!("({})", hello.agreement)),
    ];
    for (what, of) in what {
        let expected = of(&hellos[0]);
        for (rank, hello) in hellos.iter().enumerate() {
            let found = of(hello);
            if found != expected {
                return Err(MeetingError::Mismatch(Box::new(Difference {
                    what,
                    first_rank: 0,
                    first_host: hellos[0].host.clone(),
                    expected,
                    rank,
                    host: hello.host.clone(),
                    found,
                })));
            }
        }
    }
    Ok(())
}

/// Gives up after a while.
struct Deadline(Duration);

impl Guard for Deadline {
    fn check(&self, waited: Duration) -> Result<(), Error> {
        if waited < self.0 {
            return Ok(());
        }
        Err(Error::Rendezvous(Arc::new(MeetingError::Timeout {
            waited_seconds: waited.as_secs(),
        })))
    }

    fn failure(&self, error: &MpiError) -> Error {
        Error::Rendezvous(Arc::new(MeetingError::Start(error.clone().into())))
    }
}

/// Gives up after a while, or once a rank of the job is gone.
struct Both<'a> {
    pulse: &'a Pulse,
    deadline: Deadline,
}

impl Guard for Both<'_> {
    fn check(&self, waited: Duration) -> Result<(), Error> {
        self.pulse.check()?;
        self.deadline.check(waited)
    }

    fn failure(&self, error: &MpiError) -> Error {
        self.pulse.failure(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version: "1.2.3".into(),
            host: "node".into(),
            host_key: "key".into(),
            init: 1,
            cache_words: 16,
            agreement: "[0, 1]".into(),
        }
    }

    #[test]
    fn the_first_difference_is_named_with_both_ranks_and_values() {
        assert!(compare(&[hello(), hello(), hello()]).is_ok());
        let smaller = Hello {
            cache_words: 8,
            host: "other".into(),
            ..hello()
        };
        let error = compare(&[hello(), hello(), smaller.clone()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(
                "rank 0 on node has a response cache (HOROVOD_CACHE_CAPACITY) of at most 1024 tensors"
            ),
            "{error}"
        );
        assert!(error.contains("rank 2 on other has 512 tensors"), "{error}");
        let older = Hello {
            version: "1.2.2".into(),
            ..hello()
        };
        let error = compare(&[hello(), older, smaller]).unwrap_err().to_string();
        assert!(
            error.contains("rank 0 on node has ronde 1.2.3, rank 1 on node has 1.2.2"),
            "{error}"
        );
    }
}
