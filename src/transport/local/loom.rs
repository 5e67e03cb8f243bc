//! Loom tests: every interleaving of snapshot, counter and doorbell on two or three ranks, within
//! loom's bound.
//!
//! The tested code is that of the runtime; slices replace the views of shared memory, and loom's
//! primitives replace the standard ones. Sleeps have no timeout here, so a lost wake-up is a
//! deadlock, which loom reports.

use std::sync::Arc;
use std::time::Duration;

use loom::model::Builder;
use loom::sync::Mutex;
use loom::thread;

use super::doorbell::{Bell, LocalDoorbell};
use super::snapshot::{Snapshot, slot_words};
use crate::clock::Nanos;
use crate::error::Error;
use crate::negotiation::{Agreement, Block};
use crate::shm::primitive::AtomicU64;
use crate::shm::{Counter, Watch};
use crate::transport::{Doorbell, Park, Role, Start};

/// Watch of a test in which no rank dies.
struct Calm;

impl Watch for Calm {
    fn check(&self, _on: usize, _waited: Duration) -> Result<(), Error> {
        Ok(())
    }
}

/// Runs `body` with a bound on preemptions: all orders of two ranks with up to three involuntary
/// switches.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn words(count: usize) -> Arc<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn loom_a_counter_loses_no_wake_up_and_publishes_what_came_before() {
    model(|| {
        let counter = Arc::new(Counter::default());
        let data = words(1);
        let (raised, written) = (Arc::clone(&counter), Arc::clone(&data));
        let raiser = thread::spawn(move || {
            written[0].store(7, super::Ordering::Relaxed);
            raised.publish(1);
        });
        counter.wait(1, Duration::ZERO, 0, &Calm).unwrap();
        assert_eq!(data[0].load(super::Ordering::Relaxed), 7);
        raiser.join().unwrap();
    });
}

/// Three cycles, so that each slot is written again while the other rank may still read it.
#[test]
fn loom_two_slots_are_enough() {
    model(|| {
        let stride = slot_words(1);
        let slots = words(4 * stride);
        let sequence: Arc<[Counter]> = (0..2).map(|_| Counter::default()).collect();
        let rank = |rank: usize| {
            let mut snapshot = Snapshot::new(
                rank,
                1,
                stride,
                Arc::clone(&slots),
                Arc::clone(&sequence),
                Duration::ZERO,
            );
            move || {
                let mut agreed = Agreement::default();
                for cycle in 1..=3 {
                    let mut block = Block::new(1);
                    // Bit `cycle` on both ranks, and one different bit on each rank.
                    block.ready[0] = 1 << cycle | 1 << (10 + rank);
                    block.settings.version = cycle;
                    block.ready_us[cycle as usize] = cycle;
                    snapshot
                        .exchange(
                            cycle,
                            &block.contribution(false),
                            &[0, 1],
                            &mut agreed,
                            &Calm,
                        )
                        .unwrap();
                    assert_eq!(agreed.common(), [1 << cycle]);
                    assert_eq!(agreed.settings().version, cycle);
                }
            }
        };
        let other = thread::spawn(rank(1));
        rank(0)();
        other.join().unwrap();
    });
}

type LoomBell = LocalDoorbell<Arc<[AtomicU64]>, Arc<[Bell]>>;

/// The doorbells of two ranks.
fn bells() -> [Arc<LoomBell>; 2] {
    let rung = words(1);
    let bells: Arc<[Bell]> = (0..2).map(|_| Bell::default()).collect();
    [0, 1].map(|rank| {
        Arc::new(LocalDoorbell::new(
            rank,
            Arc::clone(&rung),
            Arc::clone(&bells),
            Arc::new(AtomicU64::new(0)),
            Duration::ZERO,
        ))
    })
}

fn sleep_until_rung(bell: &LoomBell, role: Role) {
    loop {
        let seen = bell.wakes();
        if bell.rung() >= 1 {
            break;
        }
        bell.park(role, seen, Park::Idle(None));
    }
}

#[test]
fn loom_a_ring_wakes_the_background() {
    model(|| {
        let [ringer, sleeper] = bells();
        let ringing = thread::spawn(move || ringer.ring(1));
        sleep_until_rung(&sleeper, Role::Background);
        ringing.join().unwrap();
    });
}

#[test]
fn loom_a_ring_wakes_the_background_although_a_driver_comes_and_goes() {
    model(|| {
        let [ringer, sleeper] = bells();
        let ringing = thread::spawn(move || ringer.ring(1));
        let driver = Arc::clone(&sleeper);
        let driving = thread::spawn(move || {
            driver.present(true);
            driver.present(false);
        });
        sleep_until_rung(&sleeper, Role::Background);
        ringing.join().unwrap();
        driving.join().unwrap();
    });
}

/// As in the engine, the background thread sleeps if the cycle is locked, whatever has rung.
#[test]
fn loom_a_driver_that_leaves_wakes_the_background_that_found_the_cycle_locked() {
    model(|| {
        let [ringer, sleeper] = bells();
        let cycle = Arc::new(Mutex::new(()));
        let ringing = thread::spawn(move || ringer.ring(1));
        let (bell, lock) = (Arc::clone(&sleeper), Arc::clone(&cycle));
        let driving = thread::spawn(move || {
            if let Ok(driven) = lock.try_lock() {
                bell.present(true);
                drop(driven);
                bell.present(false);
            }
        });
        loop {
            let seen = sleeper.wakes();
            if cycle.try_lock().is_ok_and(|_driven| sleeper.rung() >= 1) {
                break;
            }
            sleeper.park(Role::Background, seen, Park::Idle(None));
        }
        ringing.join().unwrap();
        driving.join().unwrap();
    });
}

/// As in the engine, where a shutdown ends the cycle and then wakes the thread that is to return.
#[test]
fn loom_a_rank_that_wakes_itself_wakes_the_background_although_drivers_come_and_go() {
    for drivers in [1, 2] {
        model(move || {
            let [bell, _] = bells();
            let has_ended = Arc::new(Mutex::new(false));
            let driving: Vec<_> = (0..drivers)
                .map(|_| {
                    let (bell, cycle) = (Arc::clone(&bell), Arc::clone(&has_ended));
                    thread::spawn(move || {
                        if let Ok(driven) = cycle.try_lock() {
                            bell.present(true);
                            drop(driven);
                            bell.present(false);
                        }
                    })
                })
                .collect();
            let (own, cycle) = (Arc::clone(&bell), Arc::clone(&has_ended));
            let ending = thread::spawn(move || {
                *cycle.lock().unwrap() = true;
                own.wake_self();
            });
            loop {
                let seen = bell.wakes();
                match has_ended.try_lock().map(|has_ended| *has_ended) {
                    Ok(true) => break,
                    Ok(false) => bell.park(Role::Background, seen, Park::Idle(None)),
                    Err(_) => thread::yield_now(), // it sleeps for some time only
                }
            }
            ending.join().unwrap();
            driving
                .into_iter()
                .for_each(|driver| driver.join().unwrap());
        });
    }
}

#[test]
fn loom_of_two_eager_ranks_the_last_wakes_the_first() {
    model(|| {
        let [one, two] = bells();
        let until_both = |bell: Arc<LoomBell>| {
            move || {
                bell.eager(1, Start::Here);
                loop {
                    let seen = bell.wakes();
                    if bell.all_eager(1) {
                        break;
                    }
                    bell.park(Role::Background, seen, Park::Pace(Nanos(u64::MAX)));
                }
            }
        };
        let other = thread::spawn(until_both(one));
        until_both(two)();
        other.join().unwrap();
    });
}
