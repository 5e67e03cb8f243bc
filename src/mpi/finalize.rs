//! Finalize: a last barrier of all ranks before `MPI_Finalize`, during which heartbeat messages are still received.
//!
//! `MPI_Finalize` waits for ranks that go on, busily; and a message that nobody has received is one that some MPIs warn of. So
//! a rank that is done waits here first, and keeps receiving on the inboxes of its heartbeats. When all are here, finalizing
//! should take no time. MPICH 4.0 over UCX's TCP at times never returns from it, a two-line program neither: a rank that
//! is through does not answer those that still close their connections. So it is not waited for without end.

use std::time::Duration;

use super::calls::{Comm, MpiError};
use super::engine::SLEEP_MAX;
use super::pending::Pending;
use super::start;
use super::world::World;

/// How long `MPI_Finalize` may take when all ranks are here.
pub(super) const FINALIZE_PATIENCE: Duration = Duration::from_secs(3);

/// A receive that stays open after its heartbeat has ended.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) comm: Comm,
    pub(super) tag: u16,
    pub(super) receive: Pending<Vec<u8>>,
}

impl Inbox {
    /// Receives and discards pending messages.
    fn empty(&mut self) -> Result<(), MpiError> {
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
pub(super) fn wait_for_all(world: &World) -> Result<(), MpiError> {
    let mut inboxes = world.take_inboxes();
    let mut all_here = world.all().barrier()?;
    let mut sleep = Duration::from_micros(50);
    loop {
        let done = all_here.test()?.is_some();
        inboxes.iter_mut().try_for_each(Inbox::empty)?;
        if start::is_broken() {
            return Ok(());
        }
        if done {
            return inboxes
                .into_iter()
                .try_for_each(|inbox| inbox.receive.cancel());
        }
        std::thread::sleep(sleep);
        sleep = (2 * sleep).min(SLEEP_MAX);
    }
}
