//! A simulated transport: ranks as threads of one process, of which only one runs at a time.
//!
//! Problem: the runtime blocks in straight-line code (wait for all blocks, wait for rank 0's answer), on several
//! threads of each rank: the program, and a background thread for each process set. That reads well and must be tested
//! under every order of events, reproducibly. So a [`World`] holds a baton. An *agent* (such a thread) that has to
//! wait gives it back and says what for; the world passes it on to an agent drawn by the seed among those that can go
//! on. When nobody can, simulated time jumps to the next deadline; when there is none, or twenty minutes have passed, the
//! world fails and says who waits for what. One seed, one run: the same interleaving every time.
//!
//! A [`SimulatedSet`] is what the members of one process set share; any number of them live in one world, and overlap.
//! Rules for what runs here: nothing sleeps or blocks except in the world, and no agent is in the world while it holds
//! a lock that another one blocks on (trying such a lock is fine).
//!
//! A world may be [spread](World::spread): then each rank has a clock of its own ([`SimulatedClock`]), and what it sends takes its
//! time. The engines see their rank's clock; everything in here keeps the world's time.
//!
//! Faults: [`World::kill`] makes a rank vanish with all its agents when they next enter the world, as SIGKILL would;
//! delays come from the programs. Vanishing unwinds the agents' stacks, and no agent of a dead rank touches memory of
//! another's after that.

use std::sync::Arc;

use super::{Combine, Contribution, Doorbell, Transport};
use crate::error::Error;

mod clock;
mod doorbell;
mod set;
mod worker;
mod world;

pub(crate) use clock::SimulatedClock;
pub(crate) use set::SimulatedSet;
pub(crate) use worker::SimulatedWorker;
pub(crate) use world::World;

use doorbell::SimulatedDoorbell;

/// One member's transport in a [`SimulatedSet`].
pub(crate) struct SimulatedTransport {
    set: Arc<SimulatedSet>,
    rank: usize,
}

impl SimulatedTransport {
    /// The transport of set rank `rank`.
    pub(crate) fn new(set: &Arc<SimulatedSet>, rank: usize) -> Self {
        Self {
            set: Arc::clone(set),
            rank,
        }
    }
}

impl Transport for SimulatedTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.set.members().len()
    }

    fn shares_clock(&self) -> bool {
        !self.set.world.is_spread()
    }

    fn exchange(
        &mut self,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        self.set.exchange(self.rank, cycle, block, combine)
    }

    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        let first = self.rank == 0;
        *frames = self.set.share(self.rank, frame.to_vec(), "gather", |all| {
            let all = all.iter().filter(|_| first);
            all.map(|frame| frame.to_vec()).collect()
        })?;
        Ok(())
    }

    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        let own = if self.rank == 0 { frame.clone() } else { Vec::new() };
        *frame = self
            .set
            .share(self.rank, own, "broadcast", |all| all[0].to_vec())?;
        Ok(())
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::new(SimulatedDoorbell {
            set: Arc::clone(&self.set),
            rank: self.rank,
        })
    }

    fn check_peers(&mut self) -> Result<(), Error> {
        self.set.check()
    }

    fn leave(&mut self, because: Option<&Error>) {
        self.set.leave(self.rank, because);
    }
}
