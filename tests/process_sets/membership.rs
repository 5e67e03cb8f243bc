//! Process sets that are added, removed and used, with the same numbers on all ranks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ronde::{Context, Error, ProcessSet, ProcessSetError};

use super::{dynamic, rank_sum, shuffle, sum, try_sum};
use crate::support::holdings::Holdings;
use crate::support::{Draw, job, job_with};

#[test]
fn numbers_agree_on_all_ranks_whatever_is_added_and_removed() {
    let test = "membership::numbers_agree_on_all_ranks_whatever_is_added_and_removed";
    job_with(test, 4, &[("HOROVOD_DYNAMIC_PROCESS_SETS", "1")], || {
        let context = Context::from_env().expect("the job starts");
        let (rank, size) = (context.rank(), context.size());
        let mut draw = Draw(0x5e75); // the same on all ranks
        let mut live: BTreeMap<u32, ProcessSet> = BTreeMap::new();
        let (mut highest, mut made, mut reused) = (0, 0, 0);
        for step in 0..40 {
            let victim = draw.below(live.len().max(1) as u64) as usize;
            if draw.below(5) < 2 && !live.is_empty() {
                let id = *live.keys().nth(victim).expect("so many");
                let set = live.remove(&id).expect("live");
                context.remove_process_set(&set).expect("nothing in flight");
                assert!(context.process_set(id).is_none());
                let removed = try_sum(&set, "x", 1).expect_err("removed");
                let refused = match set.included() {
                    true => matches!(removed, Error::ProcessSet(ProcessSetError::Removed { .. })),
                    false => matches!(
                        removed,
                        Error::ProcessSet(ProcessSetError::NotAMember { .. })
                    ),
                };
                assert!(refused, "{removed}");
            } else {
                let mut ranks: Vec<usize> = (0..size).filter(|_| draw.below(2) == 0).collect();
                shuffle(&mut draw, &mut ranks);
                let mut sorted = ranks.clone();
                sorted.sort_unstable();
                let known = ranks.len() == size || live.values().any(|set| set.ranks() == sorted);
                match context.add_process_set(&ranks) {
                    Err(Error::ProcessSet(ProcessSetError::Invalid { .. })) => {
                        assert!(known || ranks.is_empty(), "{ranks:?}")
                    }
                    Err(error) => panic!("step {step}, {ranks:?}: {error}"),
                    Ok(set) => {
                        let id = (1..)
                            .find(|id| !live.contains_key(id))
                            .expect("one is free");
                        assert_eq!((set.id(), set.ranks()), (id, &sorted[..]));
                        assert_eq!(set.included(), ranks.contains(&rank));
                        (made, reused) = (made + 1, reused + usize::from(id <= highest));
                        highest = highest.max(id);
                        live.insert(id, set);
                    }
                }
            }
            for set in live.values().filter(|set| set.included()) {
                assert_eq!(
                    sum(set, "x", rank),
                    rank_sum(set),
                    "step {step}, {:?}",
                    set.ranks()
                );
            }
            // The sets that each rank knows, as one list.
            let mine: Vec<i64> = context
                .process_sets()
                .iter()
                .flat_map(|set| {
                    [
                        i64::from(set.id()),
                        set.ranks().iter().map(|rank| 1 << rank).sum::<i64>(),
                    ]
                })
                .collect();
            let all = context
                .allgather("ids", mine.clone(), &[mine.len()])
                .expect("in")
                .wait()
                .expect("out");
            assert_eq!(all.tensor, mine.repeat(size), "step {step}");
        }
        assert!(
            made > 10 && reused > 5,
            "{made} made, {reused} of them with a number used before"
        );
    });
}

#[test]
fn sets_that_are_removed_leave_nothing_behind() {
    job(
        "membership::sets_that_are_removed_leave_nothing_behind",
        3,
        || {
            let context = dynamic();
            let subsets: [&[usize]; 6] = [&[0, 1], &[1, 2], &[0, 2], &[0], &[1], &[2]];
            let mut before = None;
            for round in 0..6 {
                let now = Holdings::no_more_than(before, &format!("round {round}"));
                before = Some(now);
                let sets = subsets.map(|ranks| context.add_process_set(ranks).expect("made"));
                assert!(Holdings::now().threads > now.threads);
                for set in &sets {
                    // Removed at once: a rank that has its result has nothing in flight.
                    if set.included() {
                        assert_eq!(sum(set, "x", context.rank()), rank_sum(set));
                    }
                    context.remove_process_set(set).expect("nothing in flight");
                }
            }
            drop(context);
        },
    );
}

#[test]
fn sets_come_and_go_while_threads_submit_to_others() {
    job(
        "membership::sets_come_and_go_while_threads_submit_to_others",
        3,
        || {
            let context = dynamic();
            let rank = context.rank();
            let ring = [[0, 1], [1, 2]].map(|ranks| context.add_process_set(&ranks).expect("made"));
            let context = &context;
            std::thread::scope(|scope| {
                for set in ring.iter().chain([&**context]).filter(|set| set.included()) {
                    scope.spawn(move || {
                        for round in 0..200 {
                            assert_eq!(sum(set, "busy", rank), rank_sum(set), "round {round}");
                        }
                    });
                }
                for _ in 0..6 {
                    let sets = [&[0, 2][..], &[2], &[0]]
                        .map(|ranks| context.add_process_set(ranks).expect("made"));
                    assert_eq!(sets.each_ref().map(ProcessSet::id), [3, 4, 5]);
                    for set in &sets {
                        if set.included() {
                            assert_eq!(sum(set, "x", rank), rank_sum(set));
                        }
                        context.remove_process_set(set).expect("nothing in flight");
                    }
                }
            });
        },
    );
}

#[test]
fn a_removal_amid_submissions_is_refused_or_done_on_all_ranks_and_harms_nobody() {
    let test =
        "membership::a_removal_amid_submissions_is_refused_or_done_on_all_ranks_and_harms_nobody";
    job(test, 3, || {
        let context = dynamic();
        let rank = context.rank();
        let mut busy = 0u32;
        for round in 0..6 {
            let set = context.add_process_set(&[1, 2]).expect("made");
            let (begun, gone) = (AtomicBool::new(!set.included()), AtomicBool::new(false));
            std::thread::scope(|scope| {
                if set.included() {
                    scope.spawn(|| {
                        while !gone.load(Ordering::SeqCst) {
                            match try_sum(&set, "x", 7) {
                                Ok(sum) => assert_eq!(sum, 14),
                                // While the ranks agree on the removal, and after it.
                                Err(error) => {
                                    assert!(
                                        matches!(
                                            error,
                                            Error::ProcessSet(ProcessSetError::Removed { set: 1 })
                                        ),
                                        "{error}"
                                    )
                                }
                            }
                            begun.store(true, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_micros(300 * (1 + round % 3)));
                        }
                    });
                }
                while !begun.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                loop {
                    match context.remove_process_set(&set) {
                        Ok(()) => break,
                        Err(Error::ProcessSet(ProcessSetError::Busy {
                            rank: 1 | 2,
                            in_flight: 1,
                            ..
                        })) => busy += 1,
                        Err(error) => panic!("{error}"),
                    }
                    std::thread::sleep(Duration::from_micros(700));
                }
                gone.store(true, Ordering::SeqCst);
            });
            assert_eq!(sum(&context, "after", rank), 3, "round {round}");
        }
        let all = context
            .allgather("busy", vec![i64::from(busy)], &[1])
            .expect("in")
            .wait()
            .expect("out");
        assert_eq!(
            all.tensor,
            [i64::from(busy); 3],
            "refused as often everywhere"
        );
    });
}
