//! Ends of process sets: with a member, with the context, in a forked child.

#![allow(unsafe_code)] // forks, and kills its own process

use std::sync::Arc;
use std::time::{Duration, Instant};

use ronde::{Error, PeerError, ProcessSet, ReduceOp};

use super::{DEADLINE, dynamic, rank_sum, sum, try_sum, with_sets};
use crate::support::holdings::Holdings;
use crate::support::{job, start_separately};

/// Kills this process as the kernel kills one that uses too much memory.
fn die() {
    // SAFETY: only kills this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn an_abort_ends_operations_that_wait_for_ranks_that_are_alive() {
    const TEST: &str = "endings::an_abort_ends_operations_that_wait_for_ranks_that_are_alive";
    let Some(job) = start_separately(TEST, 3, &[], || {
        let context = with_sets(&[&[0, 1]]);
        let pair = context.process_set(1).expect("made");
        if pair.included() {
            sum(&pair, "x", 1);
        }
        if context.rank() > 0 {
            // No other rank submits it; rank 0 leaves because of its own reason.
            let name = format!("of rank {} alone", context.rank());
            let error = try_sum(&context, &name, 1).expect_err("rank 0 ends");
            assert!(
                matches!(error, Error::Peer(PeerError::Failed { .. })),
                "{error}"
            );
            assert!(error.to_string().contains("by this test"), "{error}");
            return;
        }
        std::thread::scope(|scope| {
            let began = Instant::now();
            // Rank 1 does not take part.
            scope.spawn(|| {
                let error = try_sum(&pair, "of rank 0 alone", 1).expect_err("aborted");
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
            });
            std::thread::sleep(std::time::Duration::from_millis(300));
            context.abort("by this test");
            let error = try_sum(&context, "y", 1).expect_err("the context has ended");
            assert!(matches!(error, Error::Aborted { .. }), "{error}");
            assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
        });
    }) else {
        return;
    };
    for (rank, outcome) in job.finish().iter().enumerate() {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
}

/// The other ranks learn at once that this one has left, though a thread still has its context.
#[test]
fn a_rank_leaves_while_a_thread_waits_for_the_others_to_make_a_set() {
    let test = "endings::a_rank_leaves_while_a_thread_waits_for_the_others_to_make_a_set";
    job(test, 2, || {
        let context = Arc::new(dynamic());
        sum(&context, "both", 1);
        if context.rank() == 0 {
            let of_thread = Arc::clone(&context);
            let adds = std::thread::spawn(move || of_thread.add_process_set(&[0]));
            std::thread::sleep(Duration::from_millis(300));
            context.leave();
            let error = adds
                .join()
                .expect("it ends")
                .expect_err("this rank has left");
            assert!(matches!(error, Error::ShutDown), "{error}");
        } else {
            let error = try_sum(&context, "of rank 1 alone", 1).expect_err("rank 0 leaves");
            assert!(
                matches!(error, Error::Peer(PeerError::Left { .. })),
                "{error}"
            );
        }
    });
}

#[test]
fn the_death_of_a_member_ends_the_contexts_of_those_who_need_it() {
    const TEST: &str = "endings::the_death_of_a_member_ends_the_contexts_of_those_who_need_it";
    let Some(job) = start_separately(TEST, 5, &[], || {
        // Rank 4 dies. 2 and 3 work with it in set 1; 3 and 1 share set 2; 0 and 1 share set 3.
        let context = with_sets(&[&[2, 3, 4], &[1, 3], &[0, 1]]);
        let set = |id| context.process_set(id).expect("made");
        for set in context.process_sets().iter().filter(|set| set.included()) {
            sum(set, "warm", 1);
        }
        context.barrier().expect("all come");
        let fails = |set: &ProcessSet| {
            let began = Instant::now();
            let error = loop {
                if let Err(error) = try_sum(set, "x", 1) {
                    break error;
                }
            };
            assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
            error
        };
        let lost = |error: Error| {
            assert!(
                matches!(error, Error::Peer(PeerError::Lost { rank: 4, .. })),
                "{error}"
            )
        };
        let names_the_dead_rank = |error: &Error| {
            let named = error.to_string().contains("rank 4 died");
            assert!(error.is_peer_gone() && named, "{error}");
        };
        match context.rank() {
            4 => {
                (0..20).for_each(|_| assert_eq!(sum(&set(1), "x", 1), 3));
                die();
            }
            2 => {
                lost(fails(&set(1)));
                lost(try_sum(&context, "w", 1).expect_err("the context has ended"));
            }
            3 => {
                // All sets of this rank end at once.
                let other = set(2)
                    .allreduce("of rank 3 alone", vec![1i32], ReduceOp::Sum)
                    .expect("in");
                lost(fails(&set(1)));
                lost(other.wait().expect_err("told, too").error);
                lost(try_sum(&context, "w", 1).expect_err("the context has ended"));
            }
            1 => {
                // Rank 3 is alive and leaves because of rank 4, which is not in this set: the error
                // has this reason.
                let error = fails(&set(2));
                match &error {
                    Error::Peer(PeerError::Failed { rank: 3, reason }) => {
                        assert!(reason.contains("rank 4 died"), "{error}")
                    }
                    error => assert!(
                        matches!(error, Error::Peer(PeerError::Lost { rank: 4, .. })),
                        "{error}"
                    ),
                }
                let error = try_sum(&set(3), "x", 1).expect_err("this rank's context has ended");
                names_the_dead_rank(&error);
            }
            _ => {
                names_the_dead_rank(&fails(&set(3)));
                let error = try_sum(&context, "w", 1).expect_err("the context has ended");
                names_the_dead_rank(&error);
            }
        }
    }) else {
        return;
    };
    for (rank, outcome) in job.finish().iter().enumerate().take(4) {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
}

#[test]
fn a_set_that_a_death_does_not_concern_goes_on_until_all_ranks_are_needed() {
    const TEST: &str =
        "endings::a_set_that_a_death_does_not_concern_goes_on_until_all_ranks_are_needed";
    let Some(job) = start_separately(TEST, 4, &[], || {
        let context = with_sets(&[&[0, 1], &[2, 3]]);
        let mine = context
            .process_set(if context.rank() < 2 { 1 } else { 2 })
            .expect("made");
        context.barrier().expect("all come");
        match context.rank() {
            3 => die(),
            2 => {
                let error = try_sum(&mine, "x", 1).expect_err("rank 3 is dead");
                assert!(
                    matches!(error, Error::Peer(PeerError::Lost { rank: 3, .. })),
                    "{error}"
                );
                // This rank must not leave before the others are done: its leaving must not be the
                // reason that their context ends.
                std::thread::sleep(Duration::from_secs(6));
            }
            rank => {
                std::thread::sleep(Duration::from_millis(700));
                for _ in 0..50 {
                    assert_eq!(sum(&mine, "x", rank), 1);
                }
                mine.barrier().expect("both come");
                let error = context.barrier().expect_err("rank 3 is dead");
                assert!(
                    matches!(error, Error::Peer(PeerError::Lost { rank: 3, .. })),
                    "{error}"
                );
                let error = try_sum(&mine, "x", 1).expect_err("the context has ended");
                assert!(error.is_peer_gone(), "{error}");
            }
        }
    }) else {
        return;
    };
    for (rank, outcome) in job.finish().iter().enumerate().take(3) {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
}

#[test]
fn contexts_end_with_sets_open_and_others_begin() {
    job(
        "endings::contexts_end_with_sets_open_and_others_begin",
        3,
        || {
            let mut before = None;
            for round in 0..6 {
                let sets: [[&[usize]; 2]; 2] = [[&[0, 1], &[1, 2]], [&[0, 2], &[1]]];
                let context = with_sets(&sets[round % 2]);
                let mine: Vec<ProcessSet> = context
                    .process_sets()
                    .into_iter()
                    .filter(ProcessSet::included)
                    .collect();
                for set in &mine {
                    assert_eq!(sum(set, "x", context.rank()), rank_sum(set));
                }
                // No other rank submits this one, and it ends with the context. (In a set of one
                // rank it would complete.)
                let name = format!("of rank {} alone", context.rank());
                let pending: Vec<_> = mine
                    .iter()
                    .filter(|set| set.size() > 1)
                    .map(|set| {
                        set.allreduce(&name, vec![1u8], ReduceOp::Sum)
                            .map_err(|failed| failed.error)
                    })
                    .collect();
                if round % 3 == 0 {
                    context.shutdown();
                } else {
                    drop(context);
                }
                // Another rank may have left earlier.
                let over = |error: &Error| error.is_shut_down() || error.is_peer_gone();
                for pending in pending {
                    let error = pending.map(|handle| handle.wait().expect_err("nobody else").error);
                    let error = error.unwrap_or_else(|error| error);
                    assert!(over(&error), "{error}");
                }
                for set in &mine {
                    let errors = [
                        try_sum(set, "later", 1).err(),
                        set.barrier().err(),
                        set.join().err(),
                    ];
                    assert!(
                        errors.iter().flatten().filter(|error| over(error)).count() == 3,
                        "{errors:?}"
                    );
                }
                drop(mine);
                let round = format!("round {round}");
                before = Some(Holdings::no_more_than(before, &round));
            }
        },
    );
}

#[test]
fn a_forked_child_is_refused_by_all_sets() {
    job("endings::a_forked_child_is_refused_by_all_sets", 2, || {
        let context = dynamic();
        let set = context.add_process_set(&[0]).expect("made");
        let world = context.process_sets().remove(0);
        let pending = world
            .allreduce("before", vec![1i32], ReduceOp::Sum)
            .expect("in");
        // SAFETY: the child calls nothing that could block on a lock held by another thread: the
        // refusals under test come before any lock, and it ends with `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = [
                try_sum(&world, "child", 1).err(),
                context.add_process_set(&[1]).err(),
                context.remove_process_set(&set).err(),
                pending.wait().err().map(|failed| failed.error),
            ];
            let refused = refused
                .iter()
                .flatten()
                .filter(|error| matches!(error, Error::Forked))
                .count();
            drop((context, set, world));
            // SAFETY: ends the process at once, without the parent's exit handlers.
            unsafe { libc::_exit(if refused == 4 { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just forked; `status` is a valid location for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child was refused and ended by itself");
        assert_eq!(pending.wait().expect("out"), [2]);
        if set.included() {
            assert_eq!(sum(&set, "x", 5), 5);
        }
        context.remove_process_set(&set).expect("nothing in flight");
        let other = context.add_process_set(&[1]).expect("made");
        assert_eq!(other.id(), 1);
    });
}

/// Stopped at any point: in the members' rendezvous, or in the agreement of all ranks before and
/// after it.
#[test]
fn a_member_stopped_while_sets_come_and_go_is_named_in_time() {
    const TEST: &str = "endings::a_member_stopped_while_sets_come_and_go_is_named_in_time";
    const VICTIM: usize = 1;
    let rounds = if std::env::var("TEST_RONDE_QUICK").is_ok() {
        2
    } else {
        6
    };
    // Each job waits for its time limits: all wait at once.
    let mut jobs = Vec::new();
    for round in 0..rounds {
        let delay = (200 + 1_337 * round).to_string(); // microseconds
        let env = [
            ("HOROVOD_START_TIMEOUT", "12"), // in which all ranks come, on a busy machine too
            ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
            ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "12"),
            ("TEST_RONDE_DELAY", &delay),
        ];
        let job = start_separately(TEST, 3, &env, || {
            let context = dynamic();
            context.barrier().expect("all come");
            if context.rank() == VICTIM {
                let delay = std::env::var("TEST_RONDE_DELAY").expect("set above");
                let delay = Duration::from_micros(delay.parse().expect("a number"));
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    // SAFETY: only stops this process.
                    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
                });
            }
            let error = loop {
                let turn = context
                    .add_process_set(&[0, VICTIM])
                    .and_then(|set| context.remove_process_set(&set));
                if let Err(error) = turn {
                    break error;
                }
            };
            println!("error: {error}");
        });
        let Some(job) = job else { return };
        jobs.push(std::thread::spawn(|| job.finish_with_stopped(VICTIM)));
    }
    for (round, job) in jobs.into_iter().enumerate() {
        let outcomes = job.join().expect("waiting does not panic");
        for rank in [0, 2] {
            let text = &outcomes[rank].output;
            let names = [
                format!("rank {VICTIM} has not answered"),
                format!("ranks [{VICTIM}]"),
            ];
            assert!(
                names.iter().any(|name| text.contains(name)),
                "round {round}, rank {rank}: {text}"
            );
            // The start timeout, the time for an answer, the stall limit.
            assert!(
                outcomes[rank].took < Duration::from_secs(40) + DEADLINE,
                "round {round}, rank {rank}: {text}"
            );
        }
    }
}

/// Killed at any point: members may notice it one after another during their rendezvous.
#[test]
fn the_death_of_another_rank_while_members_meet_is_not_blamed_on_a_member() {
    const TEST: &str =
        "endings::the_death_of_another_rank_while_members_meet_is_not_blamed_on_a_member";
    for round in 0..10 {
        let delay = (500 + 1_337 * round).to_string(); // microseconds
        let job = start_separately(TEST, 6, &[("TEST_RONDE_DELAY", &delay)], || {
            let context = dynamic();
            context.barrier().expect("all come");
            if context.rank() == 0 {
                let delay = std::env::var("TEST_RONDE_DELAY").expect("set above");
                let delay = Duration::from_micros(delay.parse().expect("a number"));
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    die();
                });
            }
            let error = loop {
                let turn = context
                    .add_process_set(&[1, 2, 3, 4, 5])
                    .and_then(|set| context.remove_process_set(&set));
                if let Err(error) = turn {
                    break error;
                }
            };
            println!("error: {error}");
        });
        let Some(job) = job else { return };
        for (rank, outcome) in job.finish().iter().enumerate().skip(1) {
            let text = &outcome.output;
            assert!(
                text.contains("rank 0 died") && !text.contains("ended before"),
                "round {round}, rank {rank}: {text}"
            );
        }
    }
}
