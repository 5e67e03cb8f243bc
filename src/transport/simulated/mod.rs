//! Simulated transport: ranks are threads of one process, of which only one runs at a time.
//!
//! The runtime blocks in straight-line code (it waits for all blocks, or for rank 0's answer), on
//! several threads of each rank: the program, and a background thread for each process set. Such
//! code must be tested under every order of events, reproducibly. So a [`World`] lets one *agent*
//! (one of these threads) run at a time. An agent that has to wait returns control with a
//! condition. The world then continues an agent that the seed draws among those whose condition
//! holds. If there is none, simulated time jumps to the next deadline. If there is no deadline, or
//! twenty minutes have passed, the world fails and reports the condition that each agent waits for.
//! One seed gives one run: the same interleaving every time.
//!
//! The members of one process set share a [`SimulatedSet`]. One world has any number of sets, which
//! may overlap. Code in a world must follow two rules: it sleeps and blocks only in the world, and
//! no agent waits in the world while it holds a lock that another agent blocks on (trying such a
//! lock is allowed).
//!
//! In a [spread](World::spread) world each rank has its own clock ([`SimulatedClock`]), and its
//! messages take time. The engines read their rank's clock; all other code here uses the world's
//! time.
//!
//! Faults: [`World::kill`] ends a rank with all its agents when they next enter the world, as
//! SIGKILL would; delays come from the programs. The end of a rank unwinds its agents' stacks, and
//! no agent of a dead rank accesses memory of another rank after that.

use std::sync::Arc;

use super::{Combine, Contribution, Doorbell, Transport};
use crate::error::Error;

mod clock;
mod doorbell;
mod network;
mod set;
mod worker;
mod world;

pub(crate) use clock::SimulatedClock;
pub(crate) use network::{Costs, Network};
pub(crate) use set::{HostileStates, SimulatedSet};
pub(crate) use worker::SimulatedWorker;
pub(crate) use world::World;

use doorbell::SimulatedDoorbell;

/// Transport of one member of a [`SimulatedSet`].
pub(crate) struct SimulatedTransport {
    set: Arc<SimulatedSet>,
    rank: usize,
}

impl SimulatedTransport {
    /// Makes the transport of set rank `rank`.
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
        let own = if self.rank == 0 {
            frame.clone()
        } else {
            Vec::new()
        };
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
