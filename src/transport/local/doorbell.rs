//! Doorbell in shared memory: ranks wake each other when a cycle is requested.
//!
//! Each rank has a futex word, `wakes`, which is raised to wake it, and a word `parked`, which
//! tells which of its threads sleep. No system call is made to wake a rank that is awake. A rank
//! may have two sleepers, the cycle thread and a driver (a caller that runs the cycle from inside
//! `wait`); both sleep on the same word, with one bit each. While a driver is present, it receives
//! the calls of other ranks. When it leaves, it passes on the requests that no cycle has answered:
//! after a lost ring, the ringing rank would wait in the exchange for ever.
//!
//! No wake-up is lost, because a sleeper writes `parked` before the kernel compares `wakes`, and a
//! waker writes `wakes` before it reads `parked`, each with a full fence between (Dekker's
//! algorithm): at least one sees the other.

#![allow(unsafe_code)] // a type in shared memory

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::shm::primitive::{
    AtomicU32, AtomicU64, Ordering, fence, futex_wait_bits, futex_wake_bits,
};
use crate::shm::{Shareable, View};
use crate::transport::{Call, Doorbell, Park, Role, Start};

/// The background thread sleeps. Also its futex bit.
const BACKGROUND_PARKED: NonZeroU32 = NonZeroU32::new(1).unwrap();
/// The driver sleeps. Also its futex bit.
const DRIVER_PARKED: NonZeroU32 = NonZeroU32::new(2).unwrap();
/// Both futex bits.
const BOTH_PARKED: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// The background thread sleeps while a caller runs the cycle: callers that are about to wait need
/// not wake it.
const BACKGROUND_DRIVEN: u32 = 4;
/// The background thread or the driver sleeps until the cycle time has passed: a ring need not wake
/// it.
const BACKGROUND_PACED: u32 = 8;
const DRIVER_PACED: u32 = 16;
/// A driver is present. The bits from here on count drivers: the next one may come before the last
/// one has left.
const DRIVER_PRESENT: u32 = 32;

/// Bell of one rank, in shared memory.
#[derive(Debug, Default)]
#[repr(C, align(128))] // two cache lines, as for `Counter`
pub(crate) struct Bell {
    /// Number of wake-ups so far, modulo 2³²: the futex word.
    wakes: AtomicU32,
    /// Sleeping threads, and the number of drivers present.
    parked: AtomicU32,
    /// Highest cycle that the rank would start at once.
    eager: AtomicU64,
}

// SAFETY: three atomic integers and padding.
unsafe impl Shareable for Bell {}

/// Access of one rank to the bells of a process set.
pub(crate) struct LocalDoorbell<R = View<AtomicU64>, B = View<Bell>> {
    rank: usize,
    /// One word: the highest cycle that any rank has requested.
    rung: R,
    bells: B,
    /// Last cycle that this rank has entered: it answers every ring up to it.
    entered: Arc<AtomicU64>,
    /// Time that a driver spins before it sleeps.
    spin: Duration,
}

impl<R, B> LocalDoorbell<R, B>
where
    R: Deref<Target = [AtomicU64]> + Send + Sync,
    B: Deref<Target = [Bell]> + Send + Sync,
{
    /// `rung` has one word, `bells` one bell per rank; a thread that enters a cycle stores its
    /// number in `entered`.
    pub(super) fn new(
        rank: usize,
        rung: R,
        bells: B,
        entered: Arc<AtomicU64>,
        spin: Duration,
    ) -> Self {
        Self {
            rank,
            rung,
            bells,
            entered,
            spin,
        }
    }

    fn mine(&self) -> &Bell {
        &self.bells[self.rank]
    }

    /// Wakes every other rank at once.
    pub(super) fn alarm(&self) {
        self.call(Call::Urgent, false);
    }

    /// Calls every other rank, and this one if `own`.
    fn call(&self, call: Call, own: bool) {
        let called = || {
            self.bells
                .iter()
                .enumerate()
                .filter(|&(rank, _)| own || rank != self.rank)
        };
        for (_, bell) in called() {
            bell.wakes.fetch_add(1, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        for (_, bell) in called() {
            rouse(bell, call);
        }
    }

    fn wake_mine(&self, call: Call) {
        self.mine().wakes.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        rouse(self.mine(), call);
    }

    /// Spins until `wakes` differs from `seen`, at most for the driver's spin time; returns whether
    /// it does. The deadline of a park is not checked: a spin exceeds it by little.
    fn spin_while(&self, seen: u32) -> bool {
        if self.spin.is_zero() {
            return false;
        }
        let began = Instant::now();
        loop {
            for _ in 0..64 {
                if self.wakes() != seen {
                    return true;
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= self.spin {
                return false;
            }
        }
    }
}

/// Doorbell of a rank that is alone on its host: it has its own bell. Arguments as for
/// [`LocalDoorbell::new`].
pub(crate) fn own_bell(entered: Arc<AtomicU64>, spin: Duration) -> impl Doorbell {
    let rung: Box<[AtomicU64]> = Box::new([AtomicU64::new(0)]);
    let bells: Box<[Bell]> = Box::new([Bell::default()]);
    LocalDoorbell::new(0, rung, bells, entered, spin)
}

/// Wakes the sleeper at `bell` that is responsible; the caller has raised `wakes` and fenced.
fn rouse(bell: &Bell, call: Call) {
    let parked = bell.parked.load(Ordering::Relaxed);
    let (hearer, paced) = if parked >= DRIVER_PRESENT {
        (DRIVER_PARKED, DRIVER_PACED)
    } else {
        (BACKGROUND_PARKED, BACKGROUND_PACED)
    };
    let is_driven = hearer == BACKGROUND_PARKED && parked & BACKGROUND_DRIVEN != 0;
    if parked & hearer.get() != 0 && call.wakes(parked & paced != 0, is_driven) {
        futex_wake_bits(&bell.wakes, hearer);
    }
}

impl<R, B> Doorbell for LocalDoorbell<R, B>
where
    R: Deref<Target = [AtomicU64]> + Send + Sync,
    B: Deref<Target = [Bell]> + Send + Sync,
{
    fn ring(&self, cycle: u64) {
        // A load first: most rings repeat an earlier one, and need not take the cache line from its
        // readers.
        if self.rung() < cycle && self.rung[0].fetch_max(cycle, Ordering::AcqRel) < cycle {
            self.call(Call::Ring, true);
        }
    }

    fn rung(&self) -> u64 {
        self.rung[0].load(Ordering::Acquire)
    }

    fn eager(&self, cycle: u64, start: Start) {
        let eager = &self.mine().eager;
        if eager.load(Ordering::Relaxed) >= cycle
            || eager.fetch_max(cycle, Ordering::AcqRel) >= cycle
        {
            return;
        }
        // If two ranks complete the condition together, at least one sees the other's store.
        fence(Ordering::SeqCst);
        if self.all_eager(cycle) {
            self.call(start.call(), start == Start::Background);
        }
    }

    fn all_eager(&self, cycle: u64) -> bool {
        self.bells
            .iter()
            .all(|bell| bell.eager.load(Ordering::Acquire) >= cycle)
    }

    fn wakes(&self) -> u32 {
        self.mine().wakes.load(Ordering::Acquire)
    }

    fn park(&self, role: Role, seen: u32, park: Park) {
        let bell = self.mine();
        let (bit, paced) = match role {
            Role::Background => (BACKGROUND_PARKED, BACKGROUND_PACED),
            Role::Driver => (DRIVER_PARKED, DRIVER_PACED),
        };
        let (deadline, bits) = match park {
            Park::Pace(end) => (Some(end), bit.get() | paced),
            Park::Driven(end) => (Some(end), bit.get() | paced | BACKGROUND_DRIVEN),
            Park::Idle(end) => (end, bit.get()),
        };
        if role == Role::Driver && self.spin_while(seen) {
            return;
        }
        bell.parked.fetch_or(bits, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.wakes() == seen && !futex_wait_bits(&bell.wakes, seen, deadline, bit) {}
        bell.parked.fetch_and(!bits, Ordering::Relaxed);
    }

    fn wake_self(&self) {
        let bell = self.mine();
        bell.wakes.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        // Whichever sleeps: a driver that is still present may not look again before it leaves.
        if bell.parked.load(Ordering::Relaxed) & BOTH_PARKED.get() != 0 {
            futex_wake_bits(&bell.wakes, BOTH_PARKED);
        }
    }

    fn present(&self, driver: bool) {
        let parked = &self.mine().parked;
        if driver {
            parked.fetch_add(DRIVER_PRESENT, Ordering::Relaxed);
            return;
        }
        parked.fetch_sub(DRIVER_PRESENT, Ordering::Relaxed);
        // A rank that rang before this fence has seen a driver; one that rings after it finds the
        // background thread.
        fence(Ordering::SeqCst);
        // The background thread may be about to sleep, having found the cycle locked.
        let entered = self.entered.load(Ordering::Acquire);
        if self.all_eager(entered + 1) {
            self.wake_mine(Call::Urgent);
        } else if self.rung() > entered {
            self.wake_mine(Call::Ring);
        }
    }
}
