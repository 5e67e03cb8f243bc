//! Finalize: a last barrier of all ranks before `MPI_Finalize`, during which heartbeat messages are
//! still received.
//!
//! `MPI_Finalize` waits for the other ranks and uses the CPU meanwhile, and some MPIs warn about
//! messages that were not received. So a rank that has finished waits here first, and still receives
//! the messages of its heartbeats. When all ranks have arrived, `MPI_Finalize` should return at once.
//! MPICH 4.0 over UCX's TCP sometimes does not return from it, even in a program of three MPI calls:
//! a rank that has finished does not answer those that still close their connections. So the wait
//! has a limit.

use std::time::Duration;

use crate::hosts::comm::{Comm, CommError, Pending};
use crate::hosts::engine::SLEEP_MAX;
use crate::hosts::world::World;
use crate::mpi::{self, Session};

/// How long `MPI_Finalize` may take when all ranks are here.
pub(super) const FINALIZE_PATIENCE: Duration = Duration::from_secs(3);

/// A receive that stays open after its heartbeat has ended.
pub(in crate::hosts) struct Inbox {
    pub(in crate::hosts) comm: Comm,
    pub(in crate::hosts) tag: u16,
    pub(in crate::hosts) receive: Pending<Vec<u8>>,
}

impl Inbox {
    /// Cancels the receive.
    ///
    /// # Errors
    /// MPI's.
    pub(in crate::hosts) fn cancel(self) -> Result<(), CommError> {
        self.receive.cancel()
    }

    /// Receives and discards pending messages.
    fn empty(&mut self) -> Result<(), CommError> {
        while let Some(memory) = self.receive.test()? {
            self.receive = self.comm.receive(memory, None, self.tag)?;
        }
        Ok(())
    }
}

/// Returns once all ranks are here, or one was lost.
///
/// # Errors
/// MPI's.
pub(super) fn wait_for_all(world: &World, session: &Session) -> Result<(), CommError> {
    let mut inboxes = world.take_inboxes();
    let mut all_here = session.all().barrier()?;
    let mut sleep = Duration::from_micros(50);
    loop {
        let done = all_here.test()?.is_some();
        inboxes.iter_mut().try_for_each(Inbox::empty)?;
        if mpi::is_broken() {
            return Ok(());
        }
        if done {
            return inboxes.into_iter().try_for_each(Inbox::cancel);
        }
        std::thread::sleep(sleep);
        sleep = (2 * sleep).min(SLEEP_MAX);
    }
}
