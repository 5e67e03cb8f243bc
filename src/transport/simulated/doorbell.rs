//! Doorbell of a simulated set: the rules of the local doorbell, without futexes.
//!
//! The wake-up rules are those of shared memory (a ring wakes the driver if one is present, and
//! does not wake a paced sleeper), so that a wake-up which those rules lose is lost here too.
//! Between two calls other agents may run.

use std::sync::Arc;

use super::SimulatedClock;
use super::set::{SetState, SimulatedSet};
use crate::sync::lock;
use crate::transport::{Call, Doorbell, Park, Role, Start};

/// Bell of one member.
#[derive(Default)]
pub(super) struct Bell {
    wakes: u32,
    /// Highest cycle that the member would start at once.
    eager: u64,
    /// Number of drivers that are present: the next one may come before the last one has left.
    drivers: u32,
    background: Option<Sleeper>,
    driver: Option<Sleeper>,
}

struct Sleeper {
    paced: bool,
    /// A caller runs the cycle.
    driven: bool,
    roused: bool,
}

impl Bell {
    fn sleeper(&mut self, role: Role) -> &mut Option<Sleeper> {
        match role {
            Role::Background => &mut self.background,
            Role::Driver => &mut self.driver,
        }
    }

    /// Wakes the responsible sleeper, if there is one.
    fn wake(&mut self, call: Call) {
        self.wakes = self.wakes.wrapping_add(1);
        let hearer = match self.drivers {
            0 => Role::Background,
            _ => Role::Driver,
        };
        if let Some(sleeper) = self.sleeper(hearer) {
            sleeper.roused |= call.wakes(sleeper.paced, sleeper.driven);
        }
    }
}

impl SetState {
    /// Calls every member except `except`.
    fn call(&mut self, call: Call, except: Option<usize>) {
        let seats = self.seats.iter_mut().enumerate();
        seats
            .filter(|&(rank, _)| Some(rank) != except)
            .for_each(|(_, seat)| seat.bell.wake(call));
    }

    /// Wakes every member but `rank` at once.
    pub(super) fn alarm(&mut self, rank: usize) {
        self.call(Call::Urgent, Some(rank));
    }

    fn all_eager(&self, cycle: u64) -> bool {
        self.seats.iter().all(|seat| seat.bell.eager >= cycle)
    }
}

/// Access of one member to the bells of its set.
pub(super) struct SimulatedDoorbell {
    pub(super) set: Arc<SimulatedSet>,
    pub(super) rank: usize,
}

impl Doorbell for SimulatedDoorbell {
    fn ring(&self, cycle: u64) {
        self.set.world.interrupt();
        let mut state = lock(&self.set.state);
        if state.rung < cycle {
            state.rung = cycle;
            state.call(Call::Ring, None);
        }
    }

    fn rung(&self) -> u64 {
        lock(&self.set.state).rung
    }

    fn eager(&self, cycle: u64, start: Start) {
        self.set.world.interrupt();
        let mut state = lock(&self.set.state);
        let eager = &mut state.seats[self.rank].bell.eager;
        if *eager >= cycle {
            return;
        }
        *eager = cycle;
        if state.all_eager(cycle) {
            let except = (start != Start::Background).then_some(self.rank);
            state.call(start.call(), except);
        }
    }

    fn all_eager(&self, cycle: u64) -> bool {
        lock(&self.set.state).all_eager(cycle)
    }

    fn wakes(&self) -> u32 {
        self.set.world.interrupt();
        let wakes = lock(&self.set.state).seats[self.rank].bell.wakes;
        self.set.world.interrupt();
        wakes
    }

    fn park(&self, role: Role, seen: u32, park: Park) {
        let (deadline, paced) = match park {
            Park::Pace(end) | Park::Driven(end) => (Some(end), true),
            Park::Idle(end) => (end, false),
        };
        let driven = matches!(park, Park::Driven(_));
        let clock = SimulatedClock::new(&self.set.world, self.set.members()[self.rank]);
        let deadline = deadline.map(|end| clock.world_time(end));
        {
            let bell = &mut lock(&self.set.state).seats[self.rank].bell;
            if bell.wakes != seen {
                return;
            }
            let sleeper = bell.sleeper(role);
            assert!(sleeper.is_none(), "at most one sleeper of each role");
            *sleeper = Some(Sleeper {
                paced,
                driven,
                roused: false,
            });
        }
        let (set, rank) = (Arc::clone(&self.set), self.rank);
        self.set.world.wait("at the doorbell", deadline, move |_| {
            let bell = &mut lock(&set.state).seats[rank].bell;
            bell.sleeper(role)
                .as_ref()
                .is_none_or(|sleeper| sleeper.roused)
        });
        *lock(&self.set.state).seats[self.rank].bell.sleeper(role) = None;
    }

    fn wake_self(&self) {
        let bell = &mut lock(&self.set.state).seats[self.rank].bell;
        bell.wakes = bell.wakes.wrapping_add(1);
        let sleepers = [&mut bell.background, &mut bell.driver];
        for sleeper in sleepers.into_iter().flatten() {
            sleeper.roused = true;
        }
    }

    fn present(&self, driver: bool) {
        let mut state = lock(&self.set.state);
        let rung = state.rung;
        let entered = state.seats[self.rank].published;
        let eager = state.all_eager(entered + 1);
        let bell = &mut state.seats[self.rank].bell;
        if driver {
            bell.drivers += 1;
            return;
        }
        bell.drivers -= 1;
        // Requests that no cycle has answered are passed on to the background thread.
        if eager {
            bell.wake(Call::Urgent);
        } else if rung > entered {
            bell.wake(Call::Ring);
        }
    }
}
