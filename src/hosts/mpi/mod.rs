//! Jobs over MPI: the engine, which lives as long as the process, and the rendezvous.
//!
//! MPI can be initialized once in a process's life, contexts come and go. So the first context that
//! needs it starts the engine, and all of them use it. It makes every call from `MPI_Init_thread`
//! to `MPI_Finalize`.
//!
//! - `rendezvous`: creates the communicators of a job; `startup_barrier`: finds missing ranks;
//!   `hello`: the versions and settings that ranks compare.
//! - `finalize`: the last barrier of all ranks.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ronde_net::not_come;

use super::engine::{Engine, NotStarted};
use super::world::{Carrier, World};
use crate::logging;
use crate::mpi::{self, Mpi, MpiStartError};
use crate::rendezvous::RendezvousConfig;
use crate::sync::lock;

pub(super) mod finalize;
mod hello;
mod rendezvous;
mod startup_barrier;

pub(crate) use rendezvous::connect_job;

use finalize::FINALIZE_PATIENCE;

/// Interval of the checks of a process that waits for `MPI_Finalize` for lost ranks. After a failure
/// of the job the other ranks have so long to end, too.
const FINALIZE_INTERVAL: Duration = Duration::from_secs(30);

/// The engine: MPI is initialized once in a process. `Err`: `MPI_Init_thread` had not returned after
/// this number of seconds; it must not be called again.
static ENGINE: Mutex<Option<Result<Arc<Engine>, u64>>> = Mutex::new(None);

/// Returns the engine, which the first call starts; that may take the start timeout.
///
/// # Errors
/// Any [`MpiStartError`].
fn engine(mpi: &'static Mpi, config: &RendezvousConfig) -> Result<Arc<Engine>, MpiStartError> {
    mpi::check(mpi)?;
    let mut engine = lock(&ENGINE);
    let silent = |waited_seconds| MpiStartError::Silent { waited_seconds };
    if let Some(started) = &*engine {
        return started.clone().map_err(silent);
    }
    let open = move || {
        let session = mpi::initialize(mpi)?;
        let is_ours = session.is_ours();
        Ok((World::new(Carrier::Mpi(session)), is_ours))
    };
    // MPI_Init_thread may wait for all ranks.
    let late = config.late_warnings();
    let warn = || late.warn(|| not_come(&[]));
    let started = Engine::start("ronde-mpi", config.start_timeout, &warn, open);
    let (new, is_ours) = started.map_err(|error| match error {
        NotStarted::Failed(error) => error,
        NotStarted::Silent => {
            let waited_seconds = config.start_timeout.as_secs();
            *engine = Some(Err(waited_seconds));
            silent(waited_seconds)
        }
        NotStarted::Thread(error) => MpiStartError::Thread {
            reason: error.to_string(),
        },
    })?;
    if is_ours {
        mpi::finalize_at_exit(finalize_mpi);
    }
    *engine = Some(Ok(Arc::clone(&new)));
    Ok(new)
}

/// Finalizes MPI, which the engine has initialized.
fn finalize_mpi() {
    // A process may end while a thread of it holds the lock: then it ends without.
    let Some(Ok(engine)) = ENGINE.try_lock().ok().and_then(|engine| engine.clone()) else {
        return;
    };
    let (done, finalized) = mpsc::sync_channel(2);
    engine.end(move |world| {
        let session = rendezvous::session(world);
        let mut outcome = finalize::wait_for_all(world, session);
        let _ = done.send(());
        if !mpi::is_broken() && outcome.is_ok() {
            outcome = session.finalize().map_err(Into::into);
        }
        if let Err(error) = outcome {
            logging::tell(error);
        }
        let _ = done.send(());
    });
    // First for all ranks, of which some may go on for long; a lost rank ends it.
    while finalized.recv_timeout(FINALIZE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        if mpi::is_broken() {
            return;
        }
        // A rank that was waited for in vain may never end; `mpirun` ends it when this one has.
        if mpi::has_failed() {
            let seconds = FINALIZE_INTERVAL.as_secs();
            logging::tell(format_args!(
                "other ranks have not ended within {seconds} s after the job has failed: \
                 this one ends without MPI_Finalize"
            ));
            return;
        }
    }
    if finalized.recv_timeout(FINALIZE_PATIENCE) == Err(RecvTimeoutError::Timeout) {
        tracing::info!("MPI_Finalize does not return though all ranks are done: ending without it");
    }
}
