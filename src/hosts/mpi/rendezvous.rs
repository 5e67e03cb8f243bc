//! Rendezvous over MPI: compares versions and settings of all ranks and creates communicators.

use std::rc::Rc;
use std::time::Duration;

use ronde_net::Parts;

use super::hello::{self, Difference, Hello, VersionMix};
use super::startup_barrier::StartupBarrier;
use crate::error::{Error, Failure, StartError, failure};
use crate::hosts::comm::{Comm, CommError};
use crate::hosts::job::{Communicators, Deadline, HostsJob, OfAll, RankHost};
use crate::hosts::world::{Carrier, CommId, World};
use crate::mpi::{self, Contradiction, Mpi, MpiError, MpiStartError, Session};
use crate::rendezvous::{Patience, RendezvousConfig};

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
    /// A rank has sent a message that is not of this version.
    #[error(
        "rank {rank} sent {bytes} bytes that this version of Ronde does not understand; install the same for all ranks"
    )]
    Malformed { rank: usize, bytes: usize },
}

/// Largest number of bytes in which a rank introduces itself: its texts are settings and names of
/// hosts and sets.
const GREETING_BYTES_MAX: usize = 1 << 20;

/// Connects the ranks of the job. `patience` is called with the number of ranks on this host.
///
/// # Errors
/// Any [`MpiRendezvousError`], as [`StartError::Rendezvous`] has it.
pub(crate) fn connect_job(
    mpi: &'static Mpi,
    config: &RendezvousConfig,
    patience: impl FnOnce(usize) -> Patience,
) -> Result<(HostsJob, Communicators), Failure> {
    let engine =
        super::engine(mpi, config).map_err(|error| failure(MpiRendezvousError::from(error)))?;
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
    let (said, tag, barrier) = (hello.encode(), config.init as u16, startup_barrier.clone());
    let guard = Deadline {
        limit: config.start_timeout,
        late: config.late_warnings(),
        missing: &|| startup_barrier.missing(),
    };
    // Where this rank ends while others go on, finalizing MPI would wait for them.
    let alone = |failure: Failure| {
        mpi::set_broken();
        failure
    };
    let left = |error| {
        alone(match error {
            Error::Start(StartError::Rendezvous(source)) => source,
            other => failure(other),
        })
    };
    let communicators = engine.run(Duration::ZERO, &guard, move |world| async move {
        let session = session(&world);
        let by_mpi = (session.all().rank(), session.all().size());
        if by_mpi != (rank, size) {
            return Ok(Err(Contradiction::new((rank, size), by_mpi, &mpi.version)));
        }
        let all = Comm::over_mpi(session.all().clone(), &Rc::default());
        if session.is_ours() {
            barrier.wait(&all, tag).await?;
        }
        let control = duplicate(&world, &all).await?;
        greet(&world.comm(control), said)
            .await
            .map(|greetings| Ok((control, greetings)))
    });
    let (control, greetings) = communicators.map_err(left)?.map_err(|contradiction| {
        alone(failure(MpiRendezvousError::Contradiction(Box::new(
            contradiction,
        ))))
    })?;
    let hellos =
        Hello::understand(&hello, rank, &greetings).map_err(|error| alone(failure(error)))?;
    hello::compare(&hellos).map_err(failure)?;
    let comms = engine
        .run(Duration::ZERO, &guard, move |world| async move {
            let all = world.comm(control);
            Ok(OfAll {
                control,
                data: duplicate(&world, &all).await?,
                heartbeat: duplicate(&world, &all).await?,
                lobby: duplicate(&world, &all).await?,
            })
        })
        .map_err(left)?;
    mpi::set_failed(false); // all ranks of an earlier job have come
    let hosts = hellos.into_iter().map(|hello| RankHost {
        name: hello.host,
        key: hello.host_key,
    });
    Ok(HostsJob::new(
        engine,
        comms,
        config,
        hosts.collect(),
        patience,
    ))
}

/// The session of a world over MPI.
pub(super) fn session(world: &World) -> &Session {
    match world.carrier() {
        Carrier::Mpi(session) => session,
        Carrier::Tcp(_) => unreachable!("an engine of MPI has a world over MPI"),
    }
}

/// Copies `comm`; every rank of it makes this call.
async fn duplicate(world: &World, comm: &Comm) -> Result<CommId, CommError> {
    let session = session(world);
    let mut copy = session.duplicate(comm.as_mpi())?;
    loop {
        if let Some(raw) = copy.test()? {
            let copy = session.duplicated(&raw)?;
            return Ok(world.add(|moved| Comm::over_mpi(copy, moved)));
        }
        crate::hosts::engine::turn().await;
    }
}

/// Exchanges what all ranks say of themselves over `control`: two versions of Ronde understand each
/// other up to here.
async fn greet(control: &Comm, said: Vec<u8>) -> Result<Vec<Vec<u8>>, CommError> {
    let size = control.size();
    let length = (said.len() as u64).to_le_bytes().to_vec();
    let (_, lengths) = control.allgather(length, vec![0; 8 * size], 8)?.await?;
    let lengths = lengths
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as usize);
    if let Some(rank) = lengths.clone().position(|bytes| bytes > GREETING_BYTES_MAX) {
        return Err(CommError::Mpi(MpiError {
            call: "MPI_Allgather",
            text: format!("rank {rank} does not introduce itself as a rank of ronde does"),
        }));
    }
    let parts = Parts::of(lengths);
    let memory = vec![0; parts.bytes()];
    let (_, memory, parts) = control.allgather_parts(said, memory, parts)?.await?;
    let greetings = (0..size)
        .map(|rank| memory[parts.range(rank)].to_vec())
        .collect();
    Ok(greetings)
}
