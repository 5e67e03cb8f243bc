//! The doorbell of a rank whose peers are on other hosts: a bell of its own, and messages for theirs.

use std::sync::Arc;
use std::time::Duration;

use crate::mpi::{Bell, Pulse};
use crate::shm::primitive::AtomicU64;
use crate::transport::local::{OwnBell, own_bell};
use crate::transport::{Doorbell, Nap, Role};

/// See the module.
pub(crate) struct MpiDoorbell {
    pulse: Arc<Pulse>,
    set: u64,
    /// This rank's sleepers.
    bell: OwnBell,
}

impl MpiDoorbell {
    /// For the process set that messages call `set`; a driver spins for `spin` before it sleeps. Whoever enters a cycle
    /// stores its number in `entered`.
    pub(crate) fn new(pulse: &Arc<Pulse>, set: u64, entered: Arc<AtomicU64>, spin: Duration) -> Self {
        Self {
            pulse: Arc::clone(pulse),
            set,
            bell: own_bell(entered, spin),
        }
    }
}

impl Bell for MpiDoorbell {
    fn rung(&self, cycle: u64) {
        self.bell.ring(cycle);
    }

    fn alarm(&self) {
        self.bell.wake_self();
    }
}

impl Doorbell for MpiDoorbell {
    fn ring(&self, cycle: u64) {
        if self.bell.rung() < cycle {
            self.bell.ring(cycle);
            self.pulse.ring(self.set, cycle);
        }
    }

    fn rung(&self) -> u64 {
        self.bell.rung()
    }

    fn eager(&self, cycle: u64, own: bool) {
        self.bell.eager(cycle, own);
    }

    /// Whether this rank would: each enters when its own part holds.
    fn all_eager(&self, cycle: u64) -> bool {
        self.bell.all_eager(cycle)
    }

    fn wakes(&self) -> u32 {
        self.bell.wakes()
    }

    fn park(&self, role: Role, seen: u32, nap: Nap) {
        self.bell.park(role, seen, nap);
    }

    fn wake_self(&self) {
        self.bell.wake_self();
    }

    fn present(&self, driver: bool) {
        self.bell.present(driver);
    }
}
