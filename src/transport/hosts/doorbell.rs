//! The doorbell of a rank whose peers are on other hosts: its host's bells, and messages to the
//! other hosts.

use std::sync::Arc;

use crate::hosts::{Bell, Heartbeat};
use crate::transport::{Doorbell, Park, Role, Start};

/// Requests cycles of the ranks of this host through their bells, and of other hosts by messages.
pub(crate) struct HostsDoorbell {
    heartbeat: Arc<Heartbeat>,
    set: u64,
    /// The doorbell of this host's ranks.
    local: Arc<dyn Doorbell>,
}

impl HostsDoorbell {
    /// Creates the doorbell of the process set with the number `set` in messages.
    pub(super) fn new(heartbeat: &Arc<Heartbeat>, set: u64, local: Arc<dyn Doorbell>) -> Self {
        Self {
            heartbeat: Arc::clone(heartbeat),
            set,
            local,
        }
    }
}

impl Bell for HostsDoorbell {
    fn rung(&self, cycle: u64) -> bool {
        let is_news = self.local.rung() < cycle;
        self.local.ring(cycle);
        is_news
    }

    fn alarm(&self) {
        self.local.wake_self();
    }
}

impl Doorbell for HostsDoorbell {
    fn ring(&self, cycle: u64) {
        // The first rank of this host that rings forwards the request to the other hosts.
        if Bell::rung(self, cycle) {
            self.heartbeat.ring(self.set, cycle);
        }
    }

    fn rung(&self) -> u64 {
        self.local.rung()
    }

    fn eager(&self, cycle: u64, start: Start) {
        self.local.eager(cycle, start);
    }

    /// Whether every rank of this host is eager: a host enters a cycle when its own ranks are.
    fn all_eager(&self, cycle: u64) -> bool {
        self.local.all_eager(cycle)
    }

    fn wakes(&self) -> u32 {
        self.local.wakes()
    }

    fn park(&self, role: Role, seen: u32, park: Park) {
        self.local.park(role, seen, park);
    }

    fn wake_self(&self) {
        self.local.wake_self();
    }

    fn present(&self, driver: bool) {
        self.local.present(driver);
    }
}
