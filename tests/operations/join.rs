//! Uneven data between real processes: ranks that run out of data join, and the others go on
//! without them.

#![allow(unsafe_code)] // kills its own process

use std::time::{Duration, Instant};

use crate::support::{Folder, job, job_with, start_separately};
use ronde::{ArgumentError, Context, Error, NegotiationError, PeerError, ReduceOp};

/// Time within which a survivor must have an error: the contract is two seconds, the rest is for a
/// busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Rounds in which every rank joins once.
const EPOCHS: usize = 4;

const OPS: [ReduceOp; 5] = [
    ReduceOp::Sum,
    ReduceOp::Average,
    ReduceOp::Min,
    ReduceOp::Max,
    ReduceOp::Product,
];

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Returns the number of `rank`'s batches in `epoch`: different for each rank, with another maximum
/// rank in each epoch.
fn batches(rank: usize, epoch: usize, size: usize) -> usize {
    2 + (rank + epoch) % size
}

/// Returns `rank`'s input of batch `batch`: small and positive, so that identity elements would
/// change any reduction.
fn value(rank: usize, batch: usize, index: usize) -> i64 {
    (2 + (rank + batch + index) % 3) as i64
}

/// Returns the reduction over the ranks that take part; an average divides by the size of the job.
fn reduced(op: ReduceOp, active: &[usize], size: usize, batch: usize, index: usize) -> f64 {
    let values = active.iter().map(|&rank| value(rank, batch, index) as f64);
    match op {
        ReduceOp::Sum => values.sum(),
        ReduceOp::Average => values.sum::<f64>() / size as f64,
        ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Product => values.product(),
    }
}

fn numbers<T>(length: usize, of: impl Fn(i64) -> T, rank: usize, batch: usize) -> Vec<T> {
    (0..length)
        .map(|index| of(value(rank, batch, index)))
        .collect()
}

/// Runs one batch of every operation, with all tensors in flight at once; the ranks `active` take
/// part.
fn one_batch(context: &Context, epoch: usize, batch: usize, active: &[usize]) {
    let (rank, size) = (context.rank(), context.size());
    let close = |got: f64, want: f64| (got - want).abs() <= 1e-12 * want.abs();
    let wide = OPS.map(|op| {
        let name = format!("f64.{op}");
        let handle = context.allreduce(&name, numbers(300, |v| v as f64, rank, batch), op);
        (op, handle.expect("in"))
    });
    let narrow = OPS.map(|op| {
        let name = format!("i32.{op}");
        let handle = context.allreduce(&name, numbers(7, |v| v as i32, rank, batch), op);
        (op, handle.expect("in"))
    });
    let fresh = context
        .allreduce(
            &format!("fresh.{epoch}.{batch}"),
            numbers(5, |v| v, rank, batch),
            ReduceOp::Max,
        )
        .expect("in");
    let group = (0..3)
        .map(|tensor| numbers(4 + tensor, |v| v, rank, batch))
        .collect();
    let group = context
        .grouped_allreduce("group", group, ReduceOp::Min)
        .expect("in");
    // Equal rows in each batch, and rows that change from batch to batch.
    let steady = context
        .allgather("steady", vec![rank as i64; 2 * (rank + 1)], &[rank + 1, 2])
        .expect("in");
    let rows = |rank: usize| (rank + batch) % 3;
    let varying = context
        .allgather("varying", vec![rank as i16; rows(rank)], &[rows(rank)])
        .expect("in");
    let splits = |from: usize| {
        (0..size)
            .map(|to| (from + 2 * to + batch) % 3)
            .collect::<Vec<usize>>()
    };
    let sent: Vec<i64> = (0..size)
        .flat_map(|to| vec![(100 * rank + to) as i64; splits(rank)[to]])
        .collect();
    let shape = [sent.len()];
    let swapped = context
        .alltoall("swapped", sent, &shape, &splits(rank))
        .expect("in");
    let shared = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Average].map(|op| {
        let name = format!("shared.{op}");
        let options = ronde::Reduce::from(op).shape(&[2 * size + 1, 3]);
        let handle = context.reducescatter(
            &name,
            numbers(3 * (2 * size + 1), |v| v as f64, rank, batch),
            options,
        );
        (op, handle.expect("in"))
    });
    let root = active[batch % active.len()];
    let sent = context
        .broadcast("sent", vec![rank as u8; 9], root)
        .expect("in");

    let at = |what: &str| format!("{what}, epoch {epoch}, batch {batch}, active {active:?}");
    for (op, handle) in wide {
        for (index, got) in handle.wait().expect("out").into_iter().enumerate() {
            let want = reduced(op, active, size, batch, index);
            assert!(
                close(got, want),
                "{}: {got} for {want}",
                at(&op.to_string())
            );
        }
    }
    for (op, handle) in narrow {
        for (index, got) in handle.wait().expect("out").into_iter().enumerate() {
            let want = reduced(op, active, size, batch, index).trunc();
            assert_eq!(f64::from(got), want, "{}", at(&op.to_string()));
        }
    }
    for (index, got) in fresh.wait().expect("out").into_iter().enumerate() {
        assert_eq!(
            got as f64,
            reduced(ReduceOp::Max, active, size, batch, index),
            "{}",
            at("fresh")
        );
    }
    for (tensor, got) in group.wait().expect("out").into_iter().enumerate() {
        assert_eq!(got.len(), 4 + tensor);
        for (index, got) in got.into_iter().enumerate() {
            assert_eq!(
                got as f64,
                reduced(ReduceOp::Min, active, size, batch, index),
                "{}",
                at("group")
            );
        }
    }
    let steady = steady.wait().expect("out");
    let want: Vec<i64> = active
        .iter()
        .flat_map(|&rank| vec![rank as i64; 2 * (rank + 1)])
        .collect();
    assert_eq!(
        (steady.tensor, steady.shape),
        (want.clone(), vec![want.len() / 2, 2]),
        "{}",
        at("steady")
    );
    let varying = varying.wait().expect("out");
    let want: Vec<i16> = active
        .iter()
        .flat_map(|&rank| vec![rank as i16; rows(rank)])
        .collect();
    assert_eq!(varying.tensor, want, "{}", at("varying"));
    let swapped = swapped.wait().expect("out");
    let want_splits: Vec<usize> = (0..size)
        .map(|from| {
            if active.contains(&from) {
                splits(from)[rank]
            } else {
                0
            }
        })
        .collect();
    let want: Vec<i64> = (0..size)
        .flat_map(|from| vec![(100 * from + rank) as i64; want_splits[from]])
        .collect();
    assert_eq!(
        (swapped.tensor, swapped.splits),
        (want, want_splits),
        "{}",
        at("swapped")
    );
    for (op, handle) in shared {
        let shared = handle.wait().expect("out");
        let share = |rank: usize| 2 + usize::from(rank == 0);
        assert_eq!(shared.shape, [share(rank), 3]);
        let first: usize = (0..rank).map(share).sum::<usize>() * 3;
        for (index, got) in shared.tensor.into_iter().enumerate() {
            let want = reduced(op, active, size, batch, first + index);
            assert!(close(got, want), "{}: {got} for {want}", at("shared"));
        }
    }
    assert_eq!(sent.wait().expect("out"), [root as u8; 9], "{}", at("sent"));
    context.barrier().expect("all that have data come");
}

fn uneven_data() {
    let context = context();
    let (rank, size) = (context.rank(), context.size());
    for epoch in 0..EPOCHS {
        let own = batches(rank, epoch, size);
        for batch in 0..own {
            let active: Vec<usize> = (0..size)
                .filter(|&rank| batches(rank, epoch, size) > batch)
                .collect();
            one_batch(&context, epoch, batch, &active);
        }
        // Submitted by every rank before it joins, and complete only after the last rank has
        // joined.
        let tail = context
            .allgather(
                "tail",
                vec![rank as i32; rank + epoch % 2],
                &[rank + epoch % 2],
            )
            .expect("in");
        let steady = context
            .allreduce("tail sum", vec![1i64], ReduceOp::Sum)
            .expect("in");
        let last = context.join().expect("all join");
        let want: Vec<i32> = (0..size)
            .flat_map(|rank| vec![rank as i32; rank + epoch % 2])
            .collect();
        assert_eq!(tail.wait().expect("out").tensor, want, "epoch {epoch}");
        assert_eq!(steady.wait().expect("out"), [size as i64], "epoch {epoch}");
        let most = (0..size).max_by_key(|&rank| batches(rank, epoch, size));
        assert_eq!(Some(last), most, "epoch {epoch}");
        // No rank is absent once all have data again.
        let all = context
            .allgather("last", vec![last as i64], &[1])
            .expect("in")
            .wait()
            .expect("out");
        assert_eq!(all.tensor, vec![last as i64; size]);
    }
}

#[test]
fn uneven_data_on_two_ranks() {
    job("join::uneven_data_on_two_ranks", 2, uneven_data);
}

#[test]
fn uneven_data_on_three_ranks() {
    job("join::uneven_data_on_three_ranks", 3, uneven_data);
}

#[test]
fn uneven_data_on_five_ranks() {
    job("join::uneven_data_on_five_ranks", 5, uneven_data);
}

#[test]
fn uneven_data_without_fusion_and_with_a_cache_that_is_too_small() {
    let test = "join::uneven_data_without_fusion_and_with_a_cache_that_is_too_small";
    let env = [
        ("HOROVOD_FUSION_THRESHOLD", "0"),
        ("HOROVOD_CACHE_CAPACITY", "1"),
        ("RONDE_CACHE_CAPACITY_MAX", "1"),
    ];
    // One word of the cache: 64 tensors. New names evict the others.
    job_with(test, 3, &env, || {
        let context = context();
        let (rank, size) = (context.rank(), context.size());
        for epoch in 0..3 {
            for batch in 0..batches(rank, epoch, size) {
                let active: Vec<usize> = (0..size)
                    .filter(|&rank| batches(rank, epoch, size) > batch)
                    .collect();
                let name = |tensor: usize| format!("{epoch}.{batch}.{tensor}");
                let fresh: Vec<_> = (0..60)
                    .map(|tensor| {
                        context
                            .allreduce(&name(tensor), vec![1i32], ReduceOp::Sum)
                            .expect("in")
                    })
                    .collect();
                one_batch(&context, epoch, batch, &active);
                for handle in fresh {
                    assert_eq!(handle.wait().expect("out"), [active.len() as i32]);
                }
            }
            let kept = context
                .allreduce("kept", numbers(300, |v| v as f64, rank, 0), ReduceOp::Sum)
                .expect("in");
            context.join().expect("all join");
            let all: Vec<usize> = (0..size).collect();
            assert_eq!(
                kept.wait().expect("out")[1],
                reduced(ReduceOp::Sum, &all, size, 0, 1)
            );
        }
    });
}

/// Waits until all other ranks have joined: no other rank submits this tensor.
fn until_the_others_have_joined(context: &Context) {
    let alone = context.allreduce("of one rank", vec![1i32], ReduceOp::Sum);
    assert_eq!(alone.expect("in").wait().expect("out"), [1]);
}

/// A tensor that a rank submits before it joins includes that rank, even if it is cached there and
/// another rank requests it in another form, in any order and in any cycle.
#[test]
fn what_was_submitted_before_the_join_takes_part_though_its_cache_slot_is_emptied() {
    let test =
        "join::what_was_submitted_before_the_join_takes_part_though_its_cache_slot_is_emptied";
    job(test, 3, || {
        let context = context();
        let rank = context.rank();
        let gather = |rows: usize| {
            context
                .allgather("g", vec![rank as i32; rows], &[rows])
                .expect("in")
        };
        let want = |rows: [usize; 3]| -> Vec<i32> {
            (0..3)
                .flat_map(|rank| vec![rank as i32; rows[rank]])
                .collect()
        };
        let pause = || std::thread::sleep(Duration::from_millis(120));
        for round in 0..3 {
            assert_eq!(
                gather(5).wait().expect("out").tensor,
                want([5; 3]),
                "cached, round {round}"
            );
            // Rank 1 has its cached form ready and joins, rank 2 joins without it; then rank 0
            // submits more rows.
            match rank {
                0 => {
                    until_the_others_have_joined(&context);
                    assert_eq!(
                        gather(7).wait().expect("out").tensor,
                        want([7, 5, 0]),
                        "round {round}"
                    );
                    context.join().expect("all join");
                }
                1 => {
                    let handle = gather(5);
                    context.join().expect("all join");
                    assert_eq!(
                        handle.wait().expect("out").tensor,
                        want([7, 5, 0]),
                        "round {round}"
                    );
                }
                _ => drop(context.join().expect("all join")),
            }

            assert_eq!(
                gather(5).wait().expect("out").tensor,
                want([5; 3]),
                "cached, round {round}"
            );
            // As above, but rank 0 joins in the same cycle in which it sends the request: it is the
            // last to join.
            if rank == 0 {
                until_the_others_have_joined(&context);
            }
            let handle = (rank < 2).then(|| gather(if rank == 0 { 7 } else { 5 }));
            assert_eq!(context.join().expect("all join"), 0);
            if let Some(handle) = handle {
                assert_eq!(
                    handle.wait().expect("out").tensor,
                    want([7, 5, 0]),
                    "round {round}"
                );
            }

            assert_eq!(
                gather(5).wait().expect("out").tensor,
                want([5; 3]),
                "cached, round {round}"
            );
            // All others have the cached form ready; rank 2 requests another one and joins in the
            // same cycle.
            if rank == 2 {
                pause();
            }
            let handle = gather(if rank == 2 { 6 } else { 5 });
            if rank != 2 {
                assert_eq!(
                    handle.wait().expect("out").tensor,
                    want([5, 5, 6]),
                    "round {round}"
                );
                context.join().expect("all join");
            } else {
                context.join().expect("all join");
                assert_eq!(
                    handle.wait().expect("out").tensor,
                    want([5, 5, 6]),
                    "round {round}"
                );
            }
        }
    });
}

#[test]
fn a_root_that_has_joined_and_submissions_after_the_join_are_refused() {
    job(
        "join::a_root_that_has_joined_and_submissions_after_the_join_are_refused",
        3,
        || {
            let context = context();
            let rank = context.rank();
            // A root that submitted before it joined is still valid for that operation.
            if rank == 1 {
                let before = context.broadcast("before", vec![7i32], 1).expect("in");
                std::thread::scope(|scope| {
                    let joining = scope.spawn(|| context.join());
                    let refused = loop {
                        // Until the other thread's join has been processed.
                        match context.allreduce("late", vec![1i32], ReduceOp::Sum) {
                            Err(failed) => break failed.error,
                            Ok(handle) => assert_eq!(handle.wait().expect("out"), [3]),
                        }
                    };
                    assert!(
                        matches!(
                            refused,
                            Error::Argument(ArgumentError::HasJoined { rank: 1, .. })
                        ),
                        "{refused}"
                    );
                    assert_eq!(joining.join().expect("no panic").expect("all join"), 0);
                });
                assert_eq!(before.wait().expect("out"), [7]);
            } else {
                // As many as rank 1 submits before its join; later ones have fewer ranks in the
                // sum.
                while context
                    .allreduce("late", vec![1i32], ReduceOp::Sum)
                    .expect("in")
                    .wait()
                    .expect("out")
                    == [3]
                {}
                let got = context
                    .broadcast("before", vec![0i32], 1)
                    .expect("in")
                    .wait()
                    .expect("out");
                assert_eq!(got, [7]);
                let failed = context
                    .broadcast("after", vec![0i32], 1)
                    .expect("in")
                    .wait()
                    .expect_err("has joined");
                assert!(
                    matches!(
                        failed.error,
                        Error::Negotiation(NegotiationError::RankJoined { rank: 1, .. })
                    ),
                    "{}",
                    failed.error
                );
                if rank == 0 {
                    until_the_others_have_joined(&context);
                }
                assert_eq!(context.join().expect("all join"), 0);
            }
            context.barrier().expect("all come");
        },
    );
}

#[test]
fn timeline_and_tuner_live_through_joins() {
    let test = "join::timeline_and_tuner_live_through_joins";
    let folder = Folder::new();
    let timeline = folder.file("timeline.json");
    let env = [
        ("HOROVOD_TIMELINE", timeline.to_str().expect("text")),
        ("HOROVOD_AUTOTUNE", "1"),
        ("RONDE_AUTOTUNE_START", "fusion_mb=0,cycle_ms=3"),
    ];
    job_with(test, 3, &env, || {
        uneven_data();
        println!("done");
    });
    let text = std::fs::read_to_string(&timeline).expect("written");
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!(count("NEGOTIATE_JOIN"), EPOCHS);
    // Every batch of every epoch, including those without rank 0.
    let all: usize = (0..EPOCHS)
        .map(|epoch| {
            (0..3)
                .map(|rank| batches(rank, epoch, 3))
                .max()
                .unwrap_or(0)
        })
        .sum();
    assert_eq!((count("ALLTOALL"), count("NEGOTIATE_ALLTOALL")), (all, all));
}

#[test]
fn a_rank_that_dies_while_others_have_joined_is_named_to_all() {
    const TEST: &str = "join::a_rank_that_dies_while_others_have_joined_is_named_to_all";
    let Some(job) = start_separately(TEST, 3, &[], || {
        let context = context();
        let ones = || {
            context
                .allreduce("x", vec![1i32], ReduceOp::Sum)
                .map(|handle| handle.wait())
        };
        assert_eq!(ones().expect("in").expect("out"), [3]);
        let began = Instant::now();
        let error = match context.rank() {
            0 => context.join().expect_err("rank 2 dies"),
            1 => loop {
                match ones() {
                    Ok(Ok(sum)) => assert!(sum[0] >= 1),
                    Ok(Err(failed)) | Err(failed) => break failed.error,
                }
            },
            _ => {
                for _ in 0..20 {
                    ones().expect("in").expect("out");
                }
                std::thread::sleep(Duration::from_millis(200));
                // SAFETY: kills this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                return;
            }
        };
        assert!(
            matches!(
                error,
                Error::Peer(
                    PeerError::Lost { rank: 2, .. } | PeerError::Disconnected { rank: 2, .. }
                )
            ),
            "{error}"
        );
        assert!(began.elapsed() < DEADLINE);
        let later = context.join().expect_err("the context has ended");
        assert!(
            matches!(
                later,
                Error::Peer(
                    PeerError::Lost { rank: 2, .. } | PeerError::Disconnected { rank: 2, .. }
                )
            ),
            "{later}"
        );
    }) else {
        return;
    };
    for (rank, outcome) in job.finish().iter().enumerate().take(2) {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
}

#[test]
fn a_join_may_wait_and_a_tensor_does_not_miss_who_has_joined() {
    let test = "join::a_join_may_wait_and_a_tensor_does_not_miss_who_has_joined";
    let env = [("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")];
    let outcomes = job_with(test, 3, &env, || {
        let context = context();
        let sum = |name: &str| {
            let handle = context
                .allreduce(name, vec![1i32], ReduceOp::Sum)
                .expect("in");
            handle.wait().expect("out")[0]
        };
        assert_eq!((sum("busy"), sum("late")), (3, 3)); // cached
        if context.rank() != 1 {
            for _ in 0..15 {
                assert_eq!(sum("busy"), 2); // rank 1's join is still pending
                std::thread::sleep(Duration::from_millis(100));
            }
            if context.rank() == 2 {
                std::thread::sleep(Duration::from_secs(4)); // a few warnings, on a busy machine too
            }
            assert_eq!((sum("late"), sum("uncached")), (2, 2));
        }
        context.join().expect("all join");
    });
    if let Some(first) = outcomes.first() {
        let text = &first.output;
        assert!(text.contains("2: [late]"), "{text}");
        assert!(!text.contains("1: [") && !text.contains("[join"), "{text}");
        let warnings = text.matches("have been waiting").count();
        assert!((1..=10).contains(&warnings), "{warnings}: {text}");
    }
}

#[test]
fn a_strict_join_leaves_allreduces_alone_and_fails_all_else() {
    job(
        "join::a_strict_join_leaves_allreduces_alone_and_fails_all_else",
        2,
        || {
            let context = Context::builder()
                .strict_join()
                .build()
                .expect("the job starts");
            let rank = context.rank();
            let of_all = |what: &str| {
                let row = || vec![1.0f32; 2];
                let name = |operation: &str| format!("{what}.{operation}");
                let sum = context
                    .allreduce(&name("sum"), row(), ReduceOp::Sum)
                    .expect("in")
                    .wait();
                let others = [
                    context
                        .allgather(&name("gather"), row(), &[2])
                        .expect("in")
                        .wait()
                        .err(),
                    context
                        .alltoall(&name("all"), row(), &[2], &[])
                        .expect("in")
                        .wait()
                        .err(),
                    context
                        .reducescatter(&name("scatter"), row(), ReduceOp::Sum)
                        .expect("in")
                        .wait()
                        .err(),
                ];
                let broadcast = context
                    .broadcast(&name("broadcast"), row(), 1)
                    .expect("in")
                    .wait()
                    .err();
                let errors = others
                    .into_iter()
                    .chain([broadcast])
                    .flatten()
                    .map(|failed| failed.error);
                (sum.expect("out"), errors.collect::<Vec<_>>())
            };
            // Cached, and not cached.
            for _ in 0..2 {
                assert!(of_all("known").1.is_empty());
            }
            if rank == 1 {
                for what in ["known", "new"] {
                    let (sum, errors) = of_all(what);
                    assert_eq!(sum, [1.0, 1.0]); // this rank's input alone
                    assert_eq!(errors.len(), 4, "{what}: {errors:?}");
                    let joined = |error: &Error| {
                        matches!(
                            error,
                            Error::Negotiation(NegotiationError::RankJoined { rank: 0, .. })
                        )
                    };
                    assert!(errors.iter().all(joined), "{what}: {errors:?}");
                }
            }
            assert_eq!(context.join().expect("all join"), 1);
            assert!(of_all("known").1.is_empty());
        },
    );
}
