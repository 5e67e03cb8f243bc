//! Process sets: invalid lists of ranks, mismatches between ranks, ranks outside a set, sets in
//! use, removed sets.

use std::time::{Duration, Instant};

use ronde::error::{
    ArgumentError, Mismatch, NegotiationError, ProcessSetError, ProcessSetProblem, StartError,
};
use ronde::{Context, Dtype, Error, Operation, ProcessSet, ReduceOp};

use super::{Ask, SUM, alike, goes_on, says, scatter};

const ONE: Ask<'static> = Ask {
    operation: SUM,
    dtype: Dtype::I32,
    shape: &[6],
};

fn problem(error: Error) -> ProcessSetProblem {
    match error {
        Error::ProcessSet(ProcessSetError::Invalid { problem, .. }) => problem,
        error => panic!("{error}"),
    }
}

/// Invalid lists of ranks; detected without communication.
pub(crate) fn not_sets(context: &Context) {
    let add = |ranks: &[usize]| context.add_process_set(ranks).expect_err("refused");
    let cases: [(&[usize], ProcessSetProblem, &str); 4] = [
        (
            &[],
            ProcessSetProblem::Empty,
            "process set of ranks []: the list is empty",
        ),
        (
            &[0, 3],
            ProcessSetProblem::NotInJob { rank: 3, size: 3 },
            "process set of ranks [0, 3]: rank 3 is not in the job, whose ranks are 0..3",
        ),
        (
            &[2, 0, 2],
            ProcessSetProblem::Duplicate { rank: 2 },
            "process set of ranks [2, 0, 2]: rank 2 is in the list twice",
        ),
        (
            &[2, 1, 0],
            ProcessSetProblem::Exists { set: 0 },
            "process set of ranks [2, 1, 0]: process set 0 has the same ranks; use that one",
        ),
    ];
    for (ranks, expected, text) in cases {
        says(&add(ranks), text);
        assert_eq!(problem(add(ranks)), expected);
    }
    let world = context.remove_process_set(context).expect_err("refused");
    assert_eq!(problem(world), ProcessSetProblem::World);
    assert_eq!(context.process_sets().len(), 1);
}

/// Ranks that add different sets, or remove different ones.
pub(crate) fn differ(context: &Context) {
    let odd = context.rank() == 1;
    let error = context.add_process_set(if odd { &[1, 2] } else { &[0, 1] });
    let error = error.expect_err("they differ");
    mismatch(&error, "ronde.process_set.add", ["[0, 1]", "[1, 2]"]);
    alike(context, &error);
    assert_eq!(context.process_sets().len(), 1);

    let first = context.add_process_set(&[0, 1]).expect("added");
    let second = context.add_process_set(&[2, 1]).expect("added"); // in any order
    assert_eq!(
        (first.id(), second.id(), second.ranks()),
        (1, 2, &[1, 2][..])
    );
    let error = context.remove_process_set(if odd { &second } else { &first });
    let error = error.expect_err("they differ");
    mismatch(&error, "ronde.process_set.remove", ["[1]", "[2]"]);
    alike(context, &error);
    for set in [&first, &second] {
        if set.included() {
            goes_on(set);
        }
        context.remove_process_set(set).expect("removed");
    }
}

/// Checks that rank 1 has the second value and another rank the first.
fn mismatch(error: &Error, name: &str, values: [&str; 2]) {
    let Error::Negotiation(NegotiationError::Mismatch(mismatch)) = error else {
        panic!("{error}");
    };
    let Mismatch {
        tensor,
        what,
        first_rank,
        expected,
        rank,
        found,
    } = &**mismatch;
    assert_eq!((tensor.as_str(), what.name()), (name, "process sets"));
    let shown = if *rank == 1 {
        [expected, found]
    } else {
        [found, expected]
    };
    assert!((*rank == 1) != (*first_rank == 1), "{error}");
    assert_eq!(shown.map(|value| value.to_string()), values, "{error}");
}

/// Calls of a rank outside the set, and roots outside it.
pub(crate) fn non_members(context: &Context) {
    let set = context.add_process_set(&[0, 2]).expect("added");
    let is_member = context.rank() != 1;
    assert_eq!(
        (set.included(), set.rank().is_some()),
        (is_member, is_member)
    );
    if is_member {
        let ask = Ask {
            operation: Operation::Broadcast { root: 1 },
            ..ONE
        };
        let error = ask.submit(&set, "t").expect_err("refused");
        assert!(
            matches!(
                error,
                Error::Argument(ArgumentError::RootNotAMember {
                    root: 1,
                    set: 1,
                    ..
                })
            ),
            "{error:?}"
        );
        says(
            &error,
            "invalid root rank 1 for tensor t: the ranks of process set 1 are [0, 2]",
        );
        goes_on(&set);
    } else {
        let check = |error: Error| {
            assert!(
                matches!(
                    error,
                    Error::ProcessSet(ProcessSetError::NotAMember {
                        rank: 1,
                        set: 1,
                        ..
                    })
                ),
                "{error:?}"
            );
            says(
                &error,
                "rank 1 is not a member of process set 1, whose ranks are [0, 2]",
            );
        };
        for operation in [
            SUM,
            Operation::Allgather,
            Operation::Broadcast { root: 0 },
            Operation::Alltoall { splits: &[3, 3] },
            scatter(ReduceOp::Sum, 1.0, 1.0),
        ] {
            check(
                Ask { operation, ..ONE }
                    .submit(&set, "t")
                    .expect_err("refused"),
            );
        }
        check(set.barrier().expect_err("refused"));
        check(set.join().expect_err("refused"));
        let failed = set.grouped_allreduce("t", vec![vec![1u8]; 2], ReduceOp::Sum);
        check(failed.expect_err("refused").error);
    }
    context.remove_process_set(&set).expect("removed");
}

/// Removal of a set with operations in flight, on one rank or on all; the set stays, and the
/// operations complete.
pub(crate) fn busy(context: &Context) {
    let set = context.add_process_set(&[0, 2]).expect("added");
    let rank = context.rank();
    let is_busy = |error: &Error, ranks: &[usize], count: usize| {
        let Error::ProcessSet(ProcessSetError::Busy {
            set: 1,
            rank,
            in_flight,
        }) = *error
        else {
            panic!("{error}");
        };
        assert!(ranks.contains(&rank) && in_flight == count, "{error}");
        let text = format!(
            "process set 1 has {count} tensors in flight on rank {rank}; wait for their handles, then remove it"
        );
        says(error, &text);
    };
    // Only on rank 2.
    let early =
        (rank == 2).then(|| ["a", "b"].map(|name| ONE.submit(&set, name).expect("submitted")));
    let error = context.remove_process_set(&set).expect_err("busy");
    is_busy(&error, &[2], 2);
    alike(context, &error);
    if rank == 0 {
        let late = ["a", "b"].map(|name| ONE.submit(&set, name).expect("the set is still there"));
        late.iter().for_each(|handle| handle.wait().expect("done"));
    }
    early
        .iter()
        .flatten()
        .for_each(|handle| handle.wait().expect("done"));

    // On both members: each waits for the other's tensor.
    let mine = ["c", "d"][rank / 2];
    let waiting = (rank != 1).then(|| ONE.submit(&set, mine).expect("submitted"));
    let error = context.remove_process_set(&set).expect_err("busy");
    is_busy(&error, &[0, 2], 1);
    if rank != 1 {
        let other = ["d", "c"][rank / 2];
        ONE.submit(&set, other)
            .expect("submitted")
            .wait()
            .expect("done");
    }
    waiting
        .iter()
        .for_each(|handle| handle.wait().expect("done"));
    if rank != 1 {
        goes_on(&set);
    }
    let removed = context.remove_process_set(&set);
    removed.expect("idle on all ranks");
}

/// Use and removal of a removed set; its number is used for another set.
pub(crate) fn removed(context: &Context) {
    let set = context.add_process_set(&[0, 1]).expect("added");
    let held: ProcessSet = set.clone();
    if set.included() {
        goes_on(&set);
    }
    context.remove_process_set(&set).expect("removed");
    let text = "process set 1 has been removed; use another one, or add it again";
    let again = context
        .remove_process_set(&set)
        .expect_err("removed already");
    assert!(matches!(
        again,
        Error::ProcessSet(ProcessSetError::Removed { set: 1 })
    ));
    says(&again, text);
    if held.included() {
        let error = ONE.submit(&held, "late").expect_err("refused");
        assert!(
            matches!(
                error,
                Error::ProcessSet(ProcessSetError::Removed { set: 1 })
            ),
            "{error:?}"
        );
        says(&error, text);
        let barrier = held.barrier().expect_err("refused");
        says(&barrier, text);
    }
    // The next set has the number; the old one is still invalid.
    let next = context.add_process_set(&[1, 2]).expect("added");
    assert_eq!(next.id(), 1);
    let error = context.remove_process_set(&held).expect_err("not that one");
    assert!(matches!(
        error,
        Error::ProcessSet(ProcessSetError::Removed { set: 1 })
    ));
    if next.included() {
        goes_on(&next);
    }
    context.remove_process_set(&next).expect("removed");
}

/// Different static sets at the start: no rank starts, and every rank reports the reason.
pub(crate) fn differ_at_start() {
    let rank: usize = std::env::var("HOROVOD_RANK")
        .expect("set")
        .parse()
        .expect("a number");
    let began = Instant::now();
    let sets = [vec![vec![0], vec![1]], vec![vec![0]]];
    let context = Context::builder().process_sets(sets[rank].clone()).build();
    let error = context.expect_err("they differ");
    assert!(
        matches!(error, Error::Start(StartError::Rendezvous(_))),
        "{error:?}"
    );
    let text = error.to_string();
    for part in ["process sets", "rank 1", "[0]", "[0] [1]"] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "at once");
}
