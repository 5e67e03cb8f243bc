//! Operations of process sets: every operation, in any order, at once.

use std::time::Duration;

use ronde::{ArgumentError, Error, ProcessSet, ProcessSetError, ReduceOp};

use super::{rank_sum, shuffle, sum, try_sum, with_sets};
use crate::support::{Draw, job};

#[test]
fn overlapping_sets_and_the_world_move_at_once_in_any_order() {
    job(
        "operations::overlapping_sets_and_the_world_move_at_once_in_any_order",
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
            let mut draw = Draw(0x0dd + 77 * rank as u64); // different on each rank
            for round in 0..150 {
                // The same names in all sets; each rank submits and waits in an order of its own.
                let mut order: Vec<(usize, usize)> = (0..3)
                    .flat_map(|set| (0..3).map(move |k| (set, k)))
                    .collect();
                shuffle(&mut draw, &mut order);
                let mut handles = Vec::new();
                for (set, k) in order {
                    if draw.below(6) == 0 {
                        std::thread::sleep(Duration::from_micros(draw.below(500)));
                    }
                    let length = if k == 2 { 40_000 } else { 1 + k };
                    let handle = mine[set].allreduce(
                        &format!("t{k}"),
                        vec![rank as i64 + 1; length],
                        ReduceOp::Sum,
                    );
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
            // Also with a thread for each set, which waits for each tensor before the next one.
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
    job(
        "operations::every_operation_within_a_set_names_ranks_of_the_job",
        4,
        || {
            let context = with_sets(&[&[3, 1], &[0, 2]]);
            let rank = context.rank();
            let (mine, other) = if rank % 2 == 1 { (1, 2) } else { (2, 1) };
            let set = context.process_set(mine).expect("made");
            let low = rank % 2; // the lower rank of the set; the other is higher by two
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
                // One row to the lower rank, and to the higher one as many as this rank's number.
                let sent = [vec![rank as i16], vec![-(rank as i16); rank]].concat();
                let swapped = set
                    .alltoall("s", sent, &[1 + rank], &[1, rank])
                    .expect("in");
                let share = set.reducescatter(
                    "r",
                    vec![rank as i64, 10, 20],
                    ronde::Reduce::from(ReduceOp::Sum).shape(&[3]),
                );
                let share = share.expect("in");
                let group = vec![vec![rank as i64], vec![1, 2]];
                let group = set
                    .grouped_allreduce("gr", group, ReduceOp::Max)
                    .expect("in");
                assert_eq!(average.wait().expect("out"), [low as f32 + 1.0]);
                let want = [
                    vec![low as u8; low + round],
                    vec![low as u8 + 2; low + 2 + round],
                ]
                .concat();
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
                assert_eq!(
                    group.wait().expect("out"),
                    [vec![low as i64 + 2], vec![1, 2]]
                );
                set.barrier().expect("both come");
            }
            // A join affects its set only: the other sets and the set of all ranks go on.
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
                .expect_err("not a member");
            assert!(
                matches!(
                    failed.error,
                    Error::Argument(ArgumentError::RootNotAMember { .. })
                ),
                "{}",
                failed.error
            );
            let failed = set
                .alltoall("splits", vec![1i32; 4], &[4], &[1, 1, 1, 1])
                .expect_err("two ranks");
            assert!(
                matches!(
                    failed.error,
                    Error::Argument(ArgumentError::InvalidSplits { size: 2, .. })
                ),
                "{}",
                failed.error
            );
            let other = context.process_set(other).expect("made");
            let error = try_sum(&other, "x", 1).expect_err("not a member");
            assert!(
                matches!(error, Error::ProcessSet(ProcessSetError::NotAMember { .. }))
                    && other.barrier().is_err()
                    && other.join().is_err()
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
        },
    );
}

#[test]
fn a_set_of_one_rank_does_all_by_itself() {
    job(
        "operations::a_set_of_one_rank_does_all_by_itself",
        2,
        || {
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
        },
    );
}
