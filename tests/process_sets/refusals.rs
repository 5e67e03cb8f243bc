//! Refused process sets and their errors.

#![allow(unsafe_code)] // limits the number of open files

use ronde::{Context, Error, ProcessSetError, ReduceOp};

use super::{dynamic, sum, with_sets};
use crate::support::{job, job_separately};

#[test]
fn invalid_sets_are_refused_on_all_ranks_alike() {
    job(
        "refusals::invalid_sets_are_refused_on_all_ranks_alike",
        3,
        || {
            let context = dynamic();
            let rank = context.rank();
            let refused = |ranks: &[usize]| {
                context
                    .add_process_set(ranks)
                    .expect_err("refused")
                    .to_string()
            };
            for (ranks, part) in [
                (&[][..], "the list is empty"),
                (&[1, 3], "rank 3 is not in the job"),
                (&[1, 0, 1], "rank 1 is in the list twice"),
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
            assert!(
                matches!(error, Error::ProcessSet(ProcessSetError::Invalid { .. })),
                "{error}"
            );
            // Operations in flight on one rank keep the set on all ranks, and are not disturbed.
            let pending =
                (rank == 2).then(|| set.allreduce("p", vec![1i32], ReduceOp::Sum).expect("in"));
            let error = context
                .remove_process_set(&set)
                .expect_err("rank 2 has work");
            assert!(
                matches!(
                    error,
                    Error::ProcessSet(ProcessSetError::Busy {
                        set: 1,
                        rank: 2,
                        in_flight: 1
                    })
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
            assert!(
                matches!(
                    error,
                    Error::ProcessSet(ProcessSetError::Removed { set: 1 })
                ),
                "{error}"
            );
            let again = context.add_process_set(&[0, 2]).expect("made");
            assert_eq!(again.id(), 1);
            let error = context
                .remove_process_set(&set)
                .expect_err("another of that number");
            assert!(
                matches!(
                    error,
                    Error::ProcessSet(ProcessSetError::Removed { set: 1 })
                ),
                "{error}"
            );
            let other = if rank == 0 {
                context.process_set(1).expect("made")
            } else {
                again
            };
            if other.included() {
                assert_eq!(sum(&other, "x", 1), 2);
            }
        },
    );
}

#[test]
fn fixed_sets_stay_and_must_be_the_same_on_all_ranks() {
    job_separately(
        "refusals::fixed_sets_stay_and_must_be_the_same_on_all_ranks",
        2,
        &[],
        || {
            let own = std::env::var("HOROVOD_RANK")
                .expect("set")
                .parse()
                .expect("a number");
            let sets = [vec![own]];
            let error = Context::builder()
                .process_sets(sets)
                .build()
                .expect_err("they differ");
            let text = error.to_string();
            assert!(
                text.contains("process sets") && text.contains("[0]") && text.contains("[1]"),
                "{text}"
            );
            let context = with_sets(&[&[1]]);
            let added = context.add_process_set(&[0]).expect_err("fixed");
            let removed = context
                .remove_process_set(&context.process_sets()[1])
                .expect_err("fixed");
            for error in [added, removed] {
                assert!(
                    matches!(error, Error::ProcessSet(ProcessSetError::Static)),
                    "{error}"
                );
            }
            assert_eq!(sum(&context, "x", 1), 2);
        },
    );
}

/// Uses up all file descriptors that this process may open, until dropped.
struct NoMoreFiles(libc::rlimit);

impl NoMoreFiles {
    fn new() -> Self {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is a valid location for the result.
        let code = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        assert_eq!(code, 0);
        let lower = libc::rlimit {
            rlim_cur: 3,
            ..limit
        };
        // SAFETY: `lower` is a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &lower) }, 0);
        Self(limit)
    }
}

impl Drop for NoMoreFiles {
    fn drop(&mut self) {
        // SAFETY: restores the previous limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) };
    }
}

#[test]
fn a_set_whose_members_cannot_connect_is_added_on_no_rank() {
    let test = "refusals::a_set_whose_members_cannot_connect_is_added_on_no_rank";
    job_separately(test, 3, &[("HOROVOD_START_TIMEOUT", "5")], || {
        let context = dynamic();
        let rank = context.rank();
        // One of the members has no descriptors left and cannot take part. Rank 2 is not a member
        // and would not notice.
        let no_more = (rank == 1).then(NoMoreFiles::new);
        let error = context.add_process_set(&[0, 1]).expect_err("rank 1 cannot");
        drop(no_more);
        let text = error.to_string();
        assert!(
            matches!(
                error,
                Error::ProcessSet(ProcessSetError::Start { set: 1, .. })
            ),
            "{text}"
        );
        let part = [
            "[1] did not arrive",
            "rank 1 could not",
            "could not start it",
        ][rank];
        assert!(text.contains(part), "{part:?} in {text:?}");
        assert_eq!(context.process_sets().len(), 1);
        // The number is free again on all ranks, and the ranks can be used again.
        let set = context.add_process_set(&[0, 1]).expect("now it can");
        assert_eq!(set.id(), 1);
        if set.included() {
            assert_eq!(sum(&set, "x", rank), 1);
        }
        assert_eq!(sum(&context, "x", rank), 3);
    });
}
