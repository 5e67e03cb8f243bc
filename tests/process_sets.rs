//! Process sets between real processes: numbers, overlap, what is refused, and what a death means to whom.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ronde::{Context, Error, ProcessSet, ReduceOp};
use support::{Draw, job, job_with, start};

/// Within how long a survivor must know: two seconds by contract, the rest for a busy machine.
const DEADLINE: Duration = Duration::from_secs(8);

fn dynamic() -> Context {
    Context::builder()
        .dynamic_process_sets()
        .build()
        .expect("the job starts")
}

fn with_sets(sets: &[&[usize]]) -> Context {
    let sets = sets.iter().map(|ranks| ranks.to_vec());
    Context::builder()
        .process_sets(sets)
        .build()
        .expect("the job starts")
}

fn try_sum(set: &ProcessSet, name: &str, value: i64) -> Result<i64, Error> {
    let handle = set
        .allreduce(name, vec![value; 3], ReduceOp::Sum)
        .map_err(|failed| failed.error)?;
    handle.wait().map(|sum| sum[0]).map_err(|failed| failed.error)
}

fn sum(set: &ProcessSet, name: &str, value: usize) -> usize {
    try_sum(set, name, value as i64).expect("reduced") as usize
}

/// What the sum of the members' ranks is.
fn rank_sum(set: &ProcessSet) -> usize {
    set.ranks().iter().sum()
}

fn shuffle<T>(draw: &mut Draw, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, draw.below(index as u64 + 1) as usize);
    }
}

#[test]
fn numbers_agree_on_all_ranks_whatever_is_added_and_removed() {
    let test = "numbers_agree_on_all_ranks_whatever_is_added_and_removed";
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
                    true => matches!(removed, Error::ProcessSetRemoved { .. }),
                    false => matches!(removed, Error::NotAMember { .. }),
                };
                assert!(refused, "{removed}");
            } else {
                let mut ranks: Vec<usize> = (0..size).filter(|_| draw.below(2) == 0).collect();
                shuffle(&mut draw, &mut ranks);
                let mut sorted = ranks.clone();
                sorted.sort_unstable();
                let known = ranks.len() == size || live.values().any(|set| set.ranks() == sorted);
                match context.add_process_set(&ranks) {
                    Err(Error::InvalidProcessSet { .. }) => assert!(known || ranks.is_empty(), "{ranks:?}"),
                    Err(error) => panic!("step {step}, {ranks:?}: {error}"),
                    Ok(set) => {
                        let id = (1..).find(|id| !live.contains_key(id)).expect("one is free");
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
            // What each rank believes there is, as one list.
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
fn overlapping_sets_and_the_world_move_at_once_in_any_order() {
    job(
        "overlapping_sets_and_the_world_move_at_once_in_any_order",
        3,
        || {
            let context = with_sets(&[&[0, 1], &[1, 2], &[0, 2]]);
            let rank = context.rank();
            let mine: Vec<ProcessSet> = context
                .process_sets()
                .into_iter()
                .filter(ProcessSet::included)
                .collect();
            assert_eq!(mine.len(), 3);
            let mut draw = Draw(0x0dd + 77 * rank as u64); // another on each rank
            for round in 0..150 {
                // The same names in all sets; each rank submits and waits in an order of its own.
                let mut order: Vec<(usize, usize)> =
                    (0..3).flat_map(|set| (0..3).map(move |k| (set, k))).collect();
                shuffle(&mut draw, &mut order);
                let mut handles = Vec::new();
                for (set, k) in order {
                    if draw.below(6) == 0 {
                        std::thread::sleep(Duration::from_micros(draw.below(500)));
                    }
                    let length = if k == 2 { 40_000 } else { 1 + k };
                    let handle =
                        mine[set].allreduce(&format!("t{k}"), vec![rank as i64 + 1; length], ReduceOp::Sum);
                    handles.push((set, handle.expect("in")));
                }
                shuffle(&mut draw, &mut handles);
                for (set, handle) in handles {
                    let set = &mine[set];
                    let want = (rank_sum(set) + set.size()) as i64;
                    let got = handle.wait().expect("out");
                    assert!(
                        got.iter().all(|&got| got == want),
                        "round {round}, set {:?}",
                        set.ranks()
                    );
                }
            }
            // And with a thread for each, which waits for each tensor before it goes on.
            std::thread::scope(|scope| {
                for set in &mine {
                    scope.spawn(move || {
                        for round in 0..150 {
                            assert_eq!(sum(set, "same", rank), rank_sum(set), "round {round}");
                            if round % 10 == 0 {
                                set.barrier().expect("all come");
                            }
                        }
                    });
                }
            });
        },
    );
}

#[test]
fn every_operation_within_a_set_names_ranks_of_the_job() {
    job("every_operation_within_a_set_names_ranks_of_the_job", 4, || {
        let context = with_sets(&[&[3, 1], &[0, 2]]);
        let rank = context.rank();
        let (mine, other) = if rank % 2 == 1 { (1, 2) } else { (2, 1) };
        let set = context.process_set(mine).expect("made");
        let low = rank % 2; // the lower of its ranks; the other is higher by two
        assert_eq!(
            (set.ranks(), set.rank(), set.size()),
            (&[low, low + 2][..], Some(rank / 2), 2)
        );
        for round in 0..3 {
            for root in [low, low + 2] {
                let got = set
                    .broadcast("b", vec![rank as i32; 5], root)
                    .expect("in")
                    .wait()
                    .expect("out");
                assert_eq!(got, [root as i32; 5]);
            }
            let average = set
                .allreduce("a", vec![rank as f32], ReduceOp::Average)
                .expect("in");
            let rows = set
                .allgather("g", vec![rank as u8; rank + round], &[rank + round])
                .expect("in");
            // One row to the lower, and to the higher as many as this rank's number.
            let sent = [vec![rank as i16], vec![-(rank as i16); rank]].concat();
            let swapped = set.alltoall("s", sent, &[1 + rank], &[1, rank]).expect("in");
            let share = set.reducescatter(
                "r",
                vec![rank as i64, 10, 20],
                ronde::Reduce::from(ReduceOp::Sum).shape(&[3]),
            );
            let share = share.expect("in");
            let group = vec![vec![rank as i64], vec![1, 2]];
            let group = set.grouped_allreduce("gr", group, ReduceOp::Max).expect("in");
            assert_eq!(average.wait().expect("out"), [low as f32 + 1.0]);
            let want = [vec![low as u8; low + round], vec![low as u8 + 2; low + 2 + round]].concat();
            assert_eq!(rows.wait().expect("out").tensor, want);
            let swapped = swapped.wait().expect("out");
            let (want, splits) = match rank == low {
                true => (vec![low as i16, low as i16 + 2], vec![1, 1]),
                false => (
                    [vec![-(low as i16); low], vec![-(rank as i16); rank]].concat(),
                    vec![low, rank],
                ),
            };
            assert_eq!((swapped.tensor, swapped.splits), (want, splits));
            let want = if rank == low {
                vec![2 * low as i64 + 2, 20]
            } else {
                vec![40]
            };
            assert_eq!(share.wait().expect("out").tensor, want);
            assert_eq!(group.wait().expect("out"), [vec![low as i64 + 2], vec![1, 2]]);
            set.barrier().expect("both come");
        }
        // A join concerns the set alone: the others and the world go on.
        if rank == low {
            let last = set.join().expect("both join");
            assert_eq!(last, low + 2);
        } else {
            assert_eq!(sum(&set, "left", 1), 1);
            assert_eq!(set.join().expect("both join"), low + 2);
        }
        assert_eq!(sum(&context, "w", 1), 4);

        let failed = set
            .broadcast("root", vec![1i32], 1 - low)
            .err()
            .expect("not a member");
        assert!(
            matches!(failed.error, Error::RootNotAMember { .. }),
            "{}",
            failed.error
        );
        let failed = set
            .alltoall("splits", vec![1i32; 4], &[4], &[1, 1, 1, 1])
            .err()
            .expect("two ranks");
        assert!(
            matches!(failed.error, Error::InvalidSplits { size: 2, .. }),
            "{}",
            failed.error
        );
        let other = context.process_set(other).expect("made");
        let error = try_sum(&other, "x", 1).expect_err("not a member");
        assert!(
            matches!(error, Error::NotAMember { .. }) && other.barrier().is_err() && other.join().is_err()
        );
        let text = set
            .allreduce("m", vec![1i32; 1 + rank], ReduceOp::Sum)
            .expect("in")
            .wait();
        let text = text.expect_err("other shapes").error.to_string();
        let parts = [
            format!("rank {low} has [{}]", low + 1),
            format!("rank {} has [{}]", low + 2, low + 3),
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    });
}

#[test]
fn a_set_of_one_rank_does_all_by_itself() {
    job("a_set_of_one_rank_does_all_by_itself", 2, || {
        let context = with_sets(&[&[0], &[1]]);
        let rank = context.rank();
        let set = context.process_set(rank as u32 + 1).expect("made");
        for round in 0..20 {
            assert_eq!(sum(&set, "x", round), round);
        }
        let rows = set
            .allgather("g", vec![1u8, 2], &[2, 1])
            .expect("in")
            .wait()
            .expect("out");
        assert_eq!((rows.tensor, rows.shape), (vec![1, 2], vec![2, 1]));
        let swapped = set
            .alltoall("s", vec![5i32; 3], &[3], &[])
            .expect("in")
            .wait()
            .expect("out");
        assert_eq!((swapped.tensor, swapped.splits), (vec![5; 3], vec![3]));
        assert_eq!(
            set.broadcast("b", vec![2i32], rank)
                .expect("in")
                .wait()
                .expect("out"),
            [2]
        );
        assert_eq!(set.join().expect("alone"), rank);
        set.barrier().expect("alone");
        assert_eq!(sum(&context, "x", 1), 2);
    });
}

fn holdings() -> (usize, usize, usize) {
    let count = |path: &str| std::fs::read_dir(path).expect("procfs").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    let shared = maps.lines().filter(|line| line.contains("memfd:")).count();
    (count("/proc/self/fd"), shared, count("/proc/self/task"))
}

#[test]
fn sets_that_are_removed_leave_nothing_behind() {
    job("sets_that_are_removed_leave_nothing_behind", 3, || {
        let context = dynamic();
        let subsets: [&[usize]; 6] = [&[0, 1], &[1, 2], &[0, 2], &[0], &[1], &[2]];
        let mut before = None;
        for round in 0..6 {
            let now = holdings();
            assert_eq!(
                *before.get_or_insert(now),
                now,
                "round {round}: descriptors, mappings, threads"
            );
            let sets = subsets.map(|ranks| context.add_process_set(ranks).expect("made"));
            assert!(holdings().2 > now.2);
            for set in &sets {
                // Removed at once: whoever has its result has nothing in flight any more.
                if set.included() {
                    assert_eq!(sum(set, "x", context.rank()), rank_sum(set));
                }
                context.remove_process_set(set).expect("nothing in flight");
            }
        }
        drop(context);
    });
}

#[test]
fn sets_come_and_go_while_threads_submit_to_others() {
    job("sets_come_and_go_while_threads_submit_to_others", 3, || {
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
                let sets =
                    [&[0, 2][..], &[2], &[0]].map(|ranks| context.add_process_set(ranks).expect("made"));
                assert_eq!(sets.each_ref().map(ProcessSet::id), [3, 4, 5]);
                for set in &sets {
                    if set.included() {
                        assert_eq!(sum(set, "x", rank), rank_sum(set));
                    }
                    context.remove_process_set(set).expect("nothing in flight");
                }
            }
        });
    });
}

#[test]
fn a_removal_amid_submissions_is_refused_or_done_on_all_ranks_and_harms_nobody() {
    let test = "a_removal_amid_submissions_is_refused_or_done_on_all_ranks_and_harms_nobody";
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
                                // While the ranks make up their minds, and for good.
                                Err(error) => {
                                    assert!(matches!(error, Error::ProcessSetRemoved { set: 1 }), "{error}")
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
                        Err(Error::ProcessSetBusy {
                            rank: 1 | 2,
                            in_flight: 1,
                            ..
                        }) => busy += 1,
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
        assert_eq!(all.tensor, [i64::from(busy); 3], "refused as often everywhere");
    });
}

#[test]
fn what_cannot_be_a_set_is_refused_on_all_ranks_alike() {
    job("what_cannot_be_a_set_is_refused_on_all_ranks_alike", 3, || {
        let context = dynamic();
        let rank = context.rank();
        let refused = |ranks: &[usize]| context.add_process_set(ranks).err().expect("refused").to_string();
        for (ranks, part) in [
            (&[][..], "there are none"),
            (&[1, 3], "rank 3 is not in the job"),
            (&[1, 0, 1], "rank 1 comes twice"),
            (&[2, 1, 0], "process set 0 has the same ranks"),
        ] {
            assert!(refused(ranks).contains(part), "{}", refused(ranks));
        }
        let text = refused(if rank == 2 { &[1, 2] } else { &[0, 1] });
        for part in ["process sets", "[0, 1]", "[1, 2]", "rank 2"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let set = context.add_process_set(&[2, 0]).expect("made");
        assert_eq!(set.id(), 1);
        assert!(refused(&[0, 2]).contains("process set 1 has the same ranks"));
        let error = context
            .remove_process_set(&context.process_sets()[0])
            .expect_err("the world stays");
        assert!(matches!(error, Error::InvalidProcessSet { .. }), "{error}");
        // Work on one rank keeps it everywhere, and is not disturbed.
        let pending = (rank == 2).then(|| set.allreduce("p", vec![1i32], ReduceOp::Sum).expect("in"));
        let error = context.remove_process_set(&set).expect_err("rank 2 has work");
        assert!(
            matches!(
                error,
                Error::ProcessSetBusy {
                    set: 1,
                    rank: 2,
                    in_flight: 1
                }
            ),
            "{error}"
        );
        if rank == 0 {
            assert_eq!(
                set.allreduce("p", vec![2i32], ReduceOp::Sum)
                    .expect("in")
                    .wait()
                    .expect("out"),
                [3]
            );
        }
        if let Some(pending) = pending {
            assert_eq!(pending.wait().expect("out"), [3]);
        }
        context.remove_process_set(&set).expect("idle now");
        let error = context.remove_process_set(&set).expect_err("gone");
        assert!(matches!(error, Error::ProcessSetRemoved { set: 1 }), "{error}");
        let again = context.add_process_set(&[0, 2]).expect("made");
        assert_eq!(again.id(), 1);
        let error = context
            .remove_process_set(&set)
            .expect_err("another of that number");
        assert!(matches!(error, Error::ProcessSetRemoved { set: 1 }), "{error}");
        let other = if rank == 0 {
            context.process_set(1).expect("made")
        } else {
            again
        };
        if other.included() {
            assert_eq!(sum(&other, "x", 1), 2);
        }
    });
}

#[test]
fn fixed_sets_stay_and_must_be_the_same_on_all_ranks() {
    job("fixed_sets_stay_and_must_be_the_same_on_all_ranks", 2, || {
        let own = std::env::var("HOROVOD_RANK")
            .expect("set")
            .parse()
            .expect("a number");
        let sets = [vec![own]];
        let error = Context::builder()
            .process_sets(sets)
            .build()
            .err()
            .expect("they differ");
        let text = error.to_string();
        assert!(
            text.contains("process sets") && text.contains("[0]") && text.contains("[1]"),
            "{text}"
        );
        let context = with_sets(&[&[1]]);
        let added = context.add_process_set(&[0]).err().expect("fixed");
        let removed = context
            .remove_process_set(&context.process_sets()[1])
            .expect_err("fixed");
        for error in [added, removed] {
            assert!(matches!(error, Error::StaticProcessSets), "{error}");
        }
        assert_eq!(sum(&context, "x", 1), 2);
    });
}

/// Takes all descriptors that this process may have, until dropped.
struct NoMoreFiles(libc::rlimit);

impl NoMoreFiles {
    fn new() -> Self {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is a valid place for the answer.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        let lower = libc::rlimit { rlim_cur: 3, ..limit };
        // SAFETY: `lower` is a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &lower) }, 0);
        Self(limit)
    }
}

impl Drop for NoMoreFiles {
    fn drop(&mut self) {
        // SAFETY: the limit that was in force before.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) };
    }
}

#[test]
fn a_set_whose_members_cannot_meet_is_none_on_any_rank() {
    let test = "a_set_whose_members_cannot_meet_is_none_on_any_rank";
    job_with(test, 3, &[("HOROVOD_START_TIMEOUT", "2")], || {
        let context = dynamic();
        let rank = context.rank();
        // One of the members has no descriptors left: it cannot come. Rank 2 is no member and would not know.
        let no_more = (rank == 1).then(NoMoreFiles::new);
        let error = context.add_process_set(&[0, 1]).err().expect("rank 1 cannot");
        drop(no_more);
        let text = error.to_string();
        assert!(matches!(error, Error::ProcessSetStart { set: 1, .. }), "{text}");
        let part = ["[1] did not arrive", "rank 1 could not", "could not start it"][rank];
        assert!(text.contains(part), "{part:?} in {text:?}");
        assert_eq!(context.process_sets().len(), 1);
        // The number is free again, everywhere, and so are the ranks.
        let set = context.add_process_set(&[0, 1]).expect("now it can");
        assert_eq!(set.id(), 1);
        if set.included() {
            assert_eq!(sum(&set, "x", rank), 1);
        }
        assert_eq!(sum(&context, "x", rank), 3);
    });
}

/// Ends this process as the kernel ends one that takes too much memory.
fn die() {
    // SAFETY: asks for nothing but this process's end.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn the_death_of_a_member_ends_the_contexts_of_those_who_need_it() {
    const TEST: &str = "the_death_of_a_member_ends_the_contexts_of_those_who_need_it";
    let Some(job) = start(TEST, 5, &[], || {
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
        let lost = |error: Error| assert!(matches!(error, Error::PeerLost { rank: 4, .. }), "{error}");
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
                // All sets of this rank end, and at once.
                let other = set(2)
                    .allreduce("of rank 3 alone", vec![1i32], ReduceOp::Sum)
                    .expect("in");
                lost(fails(&set(1)));
                lost(other.wait().expect_err("told, too").error);
                lost(try_sum(&context, "w", 1).expect_err("the context has ended"));
            }
            1 => {
                // Rank 3 is alive and leaves because of rank 4, with which this set has nothing to do: it says why.
                let error = fails(&set(2));
                match &error {
                    Error::PeerFailed { rank: 3, reason } => {
                        assert!(reason.contains("rank 4 died"), "{error}")
                    }
                    error => assert!(matches!(error, Error::PeerLost { rank: 4, .. }), "{error}"),
                }
                let error = try_sum(&set(3), "x", 1).expect_err("this rank's context has ended");
                assert!(error.is_peer_gone(), "{error}");
            }
            _ => {
                let error = fails(&set(3));
                assert!(error.is_peer_gone(), "{error}");
                let error = try_sum(&context, "w", 1).expect_err("the context has ended");
                assert!(error.is_peer_gone(), "{error}");
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
    const TEST: &str = "a_set_that_a_death_does_not_concern_goes_on_until_all_ranks_are_needed";
    let Some(job) = start(TEST, 4, &[], || {
        let context = with_sets(&[&[0, 1], &[2, 3]]);
        let mine = context
            .process_set(if context.rank() < 2 { 1 } else { 2 })
            .expect("made");
        context.barrier().expect("all come");
        match context.rank() {
            3 => die(),
            2 => {
                let error = try_sum(&mine, "x", 1).expect_err("rank 3 is dead");
                assert!(matches!(error, Error::PeerLost { rank: 3, .. }), "{error}");
                // Not gone before the others are through: its leaving is not what ends their context.
                std::thread::sleep(Duration::from_secs(2));
            }
            rank => {
                std::thread::sleep(Duration::from_millis(700));
                for _ in 0..50 {
                    assert_eq!(sum(&mine, "x", rank), 1);
                }
                mine.barrier().expect("both come");
                let error = context.barrier().expect_err("rank 3 is dead");
                assert!(matches!(error, Error::PeerLost { rank: 3, .. }), "{error}");
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
    job("contexts_end_with_sets_open_and_others_begin", 3, || {
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
            // Of this rank alone: nobody else submits it, and it ends with the context.
            let name = format!("of rank {} alone", context.rank());
            let pending: Vec<_> = mine
                .iter()
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
            // Another rank may have been quicker to leave.
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
            let now = holdings();
            assert_eq!(
                *before.get_or_insert(now),
                now,
                "round {round}: descriptors, mappings, threads"
            );
        }
    });
}

#[test]
fn a_forked_child_is_refused_by_all_sets() {
    job("a_forked_child_is_refused_by_all_sets", 2, || {
        let context = dynamic();
        let set = context.add_process_set(&[0]).expect("made");
        let world = context.process_sets().remove(0);
        let pending = world.allreduce("before", vec![1i32], ReduceOp::Sum).expect("in");
        // SAFETY: the child calls nothing that could hang on a lock held elsewhere: the refusals under test come
        // before any lock, and it ends with `_exit`.
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
        // SAFETY: waits for the child just made; `status` is a valid place for its status.
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
