//! Tests of the local transport with ranks as threads, from the rendezvous on.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::clock::{Clock, MonotonicClock};
use crate::error::{LimitError, PeerError};
use crate::negotiation::block::{READY_US_MAX, attached_words};
use crate::negotiation::{Agreement, Block, Status};
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::transport::{FRAME_BYTES_MAX, Park, Role, Start};

mod processes;
mod rendezvous;
mod sets;

/// Rendezvous configuration with a name of its own in this test process.
pub(super) fn config(name: &str, size: usize) -> RendezvousConfig {
    static INIT: AtomicU32 = AtomicU32::new(0);
    RendezvousConfig {
        job_key: format!("test-{name}-{}", std::process::id()),
        init: INIT.fetch_add(1, Ordering::Relaxed),
        rank: 0,
        members: (0..size).collect(),
        start_timeout: Duration::from_secs(30),
        warn_after: Duration::ZERO,
        host_key: "host".to_owned(),
        contract: Vec::new(),
        alarm: None,
    }
}

/// No warnings in tests that succeed, and a time limit for those that do not.
pub(super) const PATIENCE: Patience = Patience {
    spin: Duration::ZERO,
    warn_after: Duration::ZERO,
    give_up_after: Some(Duration::from_secs(60)),
};

const WORDS: usize = 3;

/// Runs `body` on every rank of a new job, each in a thread, and returns the results in rank order.
pub(super) fn on_ranks<T: Send>(
    name: &str,
    size: usize,
    body: impl Fn(LocalTransport) -> T + Sync,
) -> Vec<T> {
    let config = config(name, size);
    let (config, body) = (&config, &body);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                scope.spawn(move || {
                    let config = RendezvousConfig {
                        rank,
                        ..config.clone()
                    };
                    // Two ranks have a core each on most machines, so they also spin; more ranks
                    // only sleep.
                    let spin = Duration::from_micros(if size == 2 { 20 } else { 0 });
                    let patience = Patience { spin, ..PATIENCE };
                    let opened =
                        LocalTransport::open(&config, WORDS, 1 << 16, |_| patience).unwrap();
                    body(opened.transport)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Block of `rank` of `size` for `cycle`: known to every rank, so that each can check its fold.
fn block(rank: usize, size: usize, cycle: u64) -> Block {
    let mut random = SmallRng::seed_from_u64(cycle << 8 | rank as u64);
    let words = 1 + (cycle as usize % WORDS);
    let mut block = Block::new(words);
    let inputs = (0..attached_words(size)).map(|_| random.random());
    block.attached = inputs.collect();
    for status in [
        Status::UNCACHED,
        Status::BETWEEN_STEPS,
        Status::ATTACHED,
        Status::TRACES,
    ] {
        if random.random_bool(0.5) && (rank == 0 || status != Status::TRACES) {
            block.status = block.status.with(status);
        }
    }
    block.settings.version = cycle + rank as u64 % 2;
    for bit in 0..64 * words {
        if random.random_bool(0.9) {
            block.set(bit, random.random_range(0..=READY_US_MAX));
        }
    }
    block
}

fn exchange_agrees(size: usize, cycles: u64) {
    on_ranks("exchange", size, |mut transport| {
        let rank = transport.rank();
        let mut random = SmallRng::seed_from_u64(rank as u64);
        let [mut agreed, mut expected] = [0; 2].map(|_| Agreement::new(size, true));
        for cycle in 1..=cycles {
            if random.random_bool(0.1) {
                thread::sleep(Duration::from_micros(random.random_range(0..500)));
            }
            let own = block(rank, size, cycle);
            // In one cycle of four all ranks have joined, in another one every second rank.
            let joined: Vec<u32> = match cycle % 4 {
                0 => (0..size as u32).collect(),
                1 => (0..size as u32).step_by(2).collect(),
                _ => Vec::new(),
            };
            let mut is_timed = false;
            for agreement in [&mut agreed, &mut expected] {
                is_timed = agreement.prepare(&vec![u64::MAX; own.ready.len()]);
                agreement.rejoin();
                let has_joined = joined.contains(&(rank as u32));
                agreement.join(&joined, rank, has_joined).unwrap();
            }
            let own = own.contribution(is_timed);
            transport.exchange(cycle, &own, &mut agreed).unwrap();
            expected.start(own.fact_words());
            for rank in 0..size {
                expected.add(rank, &block(rank, size, cycle)).unwrap();
            }
            assert_eq!(
                format!("{agreed:?}"),
                format!("{expected:?}"),
                "rank {rank}, cycle {cycle}"
            );
        }
    });
}

#[test]
fn every_rank_folds_the_same_blocks() {
    for size in 1..=8 {
        exchange_agrees(size, 200);
    }
}

#[test]
fn sixty_four_ranks_fold_the_same_blocks() {
    exchange_agrees(SIZE_MAX, 5);
}

#[test]
fn frames_of_any_length_arrive_whole() {
    const CHUNK_BYTES: usize = 8 * mailbox::CHUNK_WORDS;
    let lengths = [
        0,
        1,
        7,
        8,
        9,
        CHUNK_BYTES - 9,
        CHUNK_BYTES - 8,
        CHUNK_BYTES - 7,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        1 << 20,
        0,
    ];
    let frame = |rank: usize, round: usize| -> Vec<u8> {
        // Lengths differ between ranks too, so that frames of different numbers of chunks occur
        // together.
        let length = lengths[(round + rank) % lengths.len()];
        (0..length)
            .map(|index| (index * 31 + rank * 7 + round) as u8)
            .collect()
    };
    for size in [1, 2, 5] {
        on_ranks("frames", size, |mut transport| {
            let rank = transport.rank();
            let mut frames = vec![vec![1; 3]; 9]; // earlier contents must not remain
            for round in 0..2 * lengths.len() {
                frames.truncate(size);
                transport.gather(&frame(rank, round), &mut frames).unwrap();
                let expected: Vec<_> = match rank {
                    0 => (0..size).map(|rank| frame(rank, round)).collect(),
                    _ => Vec::new(),
                };
                assert!(frames == expected, "gather on rank {rank}, round {round}");
                let mut news = match rank {
                    0 => frame(0, round + 1),
                    _ => vec![5; 5],
                };
                transport.broadcast(&mut news).unwrap();
                assert!(
                    news == frame(0, round + 1),
                    "broadcast on rank {rank}, round {round}"
                );
            }
        });
    }
}

#[test]
fn a_frame_beyond_the_limit_is_refused_with_its_length() {
    let mut errors = on_ranks("long-frame", 2, |mut transport| match transport.rank() {
        0 => transport.gather(&[], &mut Vec::new()),
        _ => {
            let error = transport.gather(&vec![0; FRAME_BYTES_MAX + 1], &mut Vec::new());
            transport.leave(error.as_ref().err());
            error
        }
    });
    let own = errors.pop().unwrap().unwrap_err();
    assert!(
        matches!(
            own,
            Error::Limit(LimitError::ControlFrame {
                rank: 1,
                bytes: 67_108_865,
                limit_bytes: 67_108_864
            })
        ),
        "{own}"
    );
    let other = errors.pop().unwrap().unwrap_err();
    assert!(
        matches!(&other, Error::Peer(PeerError::Failed { rank: 1, reason }) if reason.contains("67108865 bytes")),
        "{other}"
    );
}

#[test]
fn a_rank_that_has_left_is_reported_by_ranks_that_still_need_it() {
    on_ranks("left", 2, |mut transport| {
        let mut agreed = Agreement::default();
        transport
            .exchange(1, &Block::new(1).contribution(false), &mut agreed)
            .unwrap();
        if transport.rank() == 1 {
            transport.leave(None);
            transport.leave(Some(&Error::ShutDown)); // the first call counts
            return;
        }
        let error = transport
            .exchange(2, &Block::new(1).contribution(false), &mut agreed)
            .unwrap_err();
        assert!(
            matches!(error, Error::Peer(PeerError::Left { rank: 1 })),
            "{error}"
        );
        assert!(matches!(
            transport.check_peers(),
            Err(Error::Peer(PeerError::Left { rank: 1 }))
        ));
    });
}

#[test]
fn data_that_a_rank_published_before_it_left_still_count() {
    on_ranks("left-late", 2, |mut transport| {
        let mut agreed = Agreement::default();
        if transport.rank() == 1 {
            transport.broadcast(&mut Vec::new()).unwrap();
            return; // dropped, and so left, after its frame was taken
        }
        transport.broadcast(&mut b"news".to_vec()).unwrap();
        while transport.check_peers().is_ok() {
            thread::yield_now();
        }
        // Rank 1 has left, but it has taken its chunks: a wait for that alone is not an error.
        let watch: &dyn Watch = &*transport.peers;
        assert!(matches!(
            watch.check(1, Duration::ZERO),
            Err(Error::Peer(PeerError::Left { rank: 1 }))
        ));
        transport.broadcast(&mut b"more".to_vec()).unwrap();
        let error = transport
            .exchange(1, &Block::new(1).contribution(false), &mut agreed)
            .unwrap_err();
        assert!(
            matches!(error, Error::Peer(PeerError::Left { rank: 1 })),
            "{error}"
        );
    });
}

#[test]
fn a_failure_is_reported_with_its_reason_on_every_rank() {
    on_ranks("failed", 4, |mut transport| {
        let mut agreed = Agreement::default();
        let outcome = match transport.rank() {
            2 => Err(Error::Internal {
                rank: 2,
                message: "é".repeat(300),
            }),
            _ => transport.exchange(1, &Block::new(1).contribution(false), &mut agreed),
        };
        let error = outcome.unwrap_err();
        transport.leave(Some(&error));
        if transport.rank() != 2 {
            let Error::Peer(PeerError::Failed { rank, reason }) = error else {
                panic!("{error}");
            };
            assert_eq!(rank, 2);
            assert!(
                reason.starts_with("internal error on rank 2: é"),
                "{reason}"
            );
            assert!(
                !reason.contains('\u{fffd}') && reason.len() <= 256,
                "cut inside a character"
            );
        }
    });
}

#[test]
fn a_departure_passed_on_names_the_rank_that_left_first() {
    let done = AtomicU32::new(0);
    on_ranks("left-first", 3, |mut transport| {
        let mut agreed = Agreement::default();
        match transport.rank() {
            1 => transport.leave(None),
            rank => {
                let error = transport
                    .exchange(1, &Block::new(1).contribution(false), &mut agreed)
                    .unwrap_err();
                transport.leave(Some(&error));
                assert!(
                    matches!(error, Error::Peer(PeerError::Left { rank: 1 })),
                    "rank {rank}: {error}"
                );
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(done.into_inner(), 2);
}

#[test]
fn a_silent_rank_is_given_up_on_at_the_limit() {
    let config = config("stalled", 2);
    let over = AtomicBool::new(false);
    let open = |rank: usize| {
        let config = RendezvousConfig {
            rank,
            ..config.clone()
        };
        let patience = Patience {
            warn_after: Duration::from_millis(100),
            give_up_after: Some(Duration::from_secs(1)),
            ..PATIENCE
        };
        LocalTransport::open(&config, WORDS, 0, |_| patience)
            .unwrap()
            .transport
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _silent = open(1);
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let error = open(0)
            .exchange(
                1,
                &Block::new(1).contribution(false),
                &mut Agreement::default(),
            )
            .unwrap_err();
        over.store(true, Ordering::Relaxed);
        assert!(
            matches!(
                error,
                Error::Peer(PeerError::Stalled {
                    rank: 1,
                    waited_seconds: 1..,
                    limit_seconds: 1
                })
            ),
            "{error}"
        );
    });
}

/// Rank r rings for every cycle that is r modulo the size; all others sleep without a deadline
/// until it does. A lost wake-up would be a hang.
#[test]
fn no_ring_is_lost() {
    for size in [2, 3, 8] {
        on_ranks("ring", size, |transport| {
            let rank = transport.rank() as u64;
            let bell = transport.doorbell();
            for cycle in 1..=1000 {
                if cycle % size as u64 == rank {
                    bell.ring(cycle);
                    bell.ring(cycle);
                }
                // Background thread and driver sleep in turn.
                let role = match cycle % 2 {
                    0 => Role::Background,
                    _ => Role::Driver,
                };
                if role == Role::Driver {
                    bell.present(true);
                }
                loop {
                    let seen = bell.wakes();
                    if bell.rung() >= cycle {
                        break;
                    }
                    bell.park(role, seen, Park::Idle(None));
                }
                if role == Role::Driver {
                    bell.present(false);
                }
            }
        });
    }
}

#[test]
fn the_rank_that_completes_the_eager_condition_wakes_the_others() {
    on_ranks("eager", 3, |transport| {
        let bell = transport.doorbell();
        for cycle in 1..=1000 {
            bell.eager(cycle, Start::Background);
            loop {
                let seen = bell.wakes();
                if bell.all_eager(cycle) {
                    break;
                }
                bell.park(Role::Background, seen, Park::Idle(None));
            }
        }
        assert!(!bell.all_eager(1001));
    });
}

#[test]
fn one_ring_is_one_wake_up_and_repeats_wake_no_thread() {
    on_ranks("wakes", 2, |mut transport| {
        let bell = transport.doorbell();
        if transport.rank() == 0 {
            bell.ring(5);
            bell.ring(5);
            bell.ring(4);
        }
        let mut agreed = Agreement::default();
        transport
            .exchange(1, &Block::new(1).contribution(false), &mut agreed)
            .unwrap();
        // The ringing rank's own sleeper receives it too.
        assert_eq!((bell.rung(), bell.wakes()), (5, 1));
    });
}

#[test]
fn a_ring_lets_a_paced_sleeper_sleep_and_eagerness_wakes_it() {
    on_ranks("paced", 2, |mut transport| {
        let bell = transport.doorbell();
        let mut agreed = Agreement::default();
        transport
            .exchange(1, &Block::new(1).contribution(false), &mut agreed)
            .unwrap();
        let began = MonotonicClock.now();
        if transport.rank() == 0 {
            std::thread::sleep(Duration::from_millis(50));
            bell.ring(2);
        } else {
            let deadline = began + Duration::from_millis(300);
            bell.park(Role::Background, bell.wakes(), Park::Pace(deadline));
            assert!(
                MonotonicClock.now() >= deadline,
                "a ring woke a paced sleeper"
            );
        }
        // Before rank 0 can be eager.
        let seen = bell.wakes();
        if transport.rank() == 1 {
            bell.eager(3, Start::Here);
        }
        transport
            .exchange(2, &Block::new(1).contribution(false), &mut agreed)
            .unwrap();
        if transport.rank() == 0 {
            std::thread::sleep(Duration::from_millis(50));
            bell.eager(3, Start::Here);
        } else {
            bell.park(
                Role::Background,
                seen,
                Park::Pace(began + Duration::from_secs(60)),
            );
            assert!(
                MonotonicClock.now() < began + Duration::from_secs(30),
                "eagerness woke nobody"
            );
        }
    });
}

#[test]
fn callers_that_are_about_to_wait_wake_no_thread_that_has_left_the_cycle_to_one() {
    on_ranks("driven", 2, |mut transport| {
        let (bell, rank) = (transport.doorbell(), transport.rank());
        let mut agreed = Agreement::default();
        let mut met = 0;
        let mut meet = || {
            met += 1;
            let block = Block::new(1);
            let exchanged = transport.exchange(met, &block.contribution(false), &mut agreed);
            exchanged.unwrap();
        };
        // Rank 1 is eager first, and sleeps; rank 0 completes the condition.
        let mut round = |cycle: u64, start, park| {
            let seen = bell.wakes();
            if rank == 1 {
                bell.eager(cycle, start);
            }
            meet();
            if rank == 0 {
                std::thread::sleep(Duration::from_millis(150));
                bell.eager(cycle, start);
            } else {
                bell.park(Role::Background, seen, park);
            }
            let end = MonotonicClock.now();
            meet();
            end
        };
        let after = |time| MonotonicClock.now() + Duration::from_millis(time);
        let deadline = after(500);
        let end = round(3, Start::Callers, Park::Driven(deadline));
        assert!(
            rank == 0 || end >= deadline,
            "callers woke a background thread"
        );
        let deadline = after(60_000);
        for (cycle, start, park) in [
            (4, Start::Callers, Park::Pace(deadline)),
            (5, Start::Here, Park::Driven(deadline)),
        ] {
            let end = round(cycle, start, park);
            assert!(end < deadline, "nothing was woken for cycle {cycle}");
        }
    });
}

#[test]
fn a_park_ends_at_its_deadline() {
    on_ranks("deadline", 1, |transport| {
        let bell = transport.doorbell();
        for role in [Role::Background, Role::Driver] {
            let deadline = MonotonicClock.now() + Duration::from_millis(20);
            bell.park(role, bell.wakes(), Park::Idle(Some(deadline)));
            assert!(MonotonicClock.now() >= deadline, "{role:?} woke early");
        }
        bell.wake_self();
        bell.park(
            Role::Background,
            bell.wakes().wrapping_sub(1),
            Park::Idle(None),
        ); // returns: there was one since
    });
}

/// A ring that only the driver could receive must reach the background thread when the driver
/// leaves.
#[test]
fn a_driver_that_leaves_passes_on_unanswered_rings() {
    on_ranks("hand-over", 2, |transport| {
        let bell = transport.doorbell();
        if transport.rank() == 1 {
            for cycle in 1..=200 {
                bell.ring(2 * cycle - 1);
                while bell.rung() < 2 * cycle {
                    let seen = bell.wakes();
                    if bell.rung() < 2 * cycle {
                        bell.park(Role::Background, seen, Park::Idle(None));
                    }
                }
            }
            return;
        }
        let heard = AtomicU64::new(0);
        thread::scope(|scope| {
            // Drivers come and go without checking for rings.
            scope.spawn(|| {
                while heard.load(Ordering::Relaxed) < 200 {
                    bell.present(true);
                    thread::sleep(Duration::from_micros(50));
                    bell.present(false);
                }
            });
            for cycle in 1..=200 {
                loop {
                    let seen = bell.wakes();
                    if bell.rung() >= 2 * cycle - 1 {
                        break;
                    }
                    bell.park(Role::Background, seen, Park::Idle(None));
                }
                heard.store(cycle, Ordering::Relaxed);
                bell.ring(2 * cycle);
            }
        });
    });
}
