//! Timelines that are started and stopped while the job runs, in real processes: callers, times and
//! results of the calls. Other tests check the contents of the files.

use std::time::Duration;

use crate::support::{Folder, job, job_with, start};
use ronde::{Context, Error, PeerError, ReduceOp, SettingsError};

const DYNAMIC: (&str, &str) = ("HOROVOD_TIMELINE", "DYNAMIC");

fn step(context: &Context, name: &str) {
    let sum = context
        .allreduce(name, vec![1_i64; 100], ReduceOp::Sum)
        .expect("taken")
        .wait()
        .expect("summed");
    assert_eq!(sum, vec![context.size() as i64; 100]);
    context.mark_step();
}

/// Trains on all ranks while timelines are started and stopped, by rank 0 alone or by the same call
/// on all ranks.
fn train_with_timelines(test: &str, ranks: usize) {
    let folder = Folder::new();
    let path = folder.file("t");
    let env = [
        DYNAMIC,
        ("RONDE_TIMELINE_ALL_RANKS", "1"),
        ("TEST_TIMELINE", path.to_str().expect("text")),
    ];
    job_with(test, ranks, &env, || {
        let path =
            std::path::PathBuf::from(std::env::var_os("TEST_TIMELINE").expect("set by the parent"));
        let context = Context::from_env().expect("a job");
        for epoch in 0..3 {
            step(&context, "gradient");
            let calls = epoch == 2 || context.rank() == 0;
            if calls {
                context
                    .start_timeline(path.with_extension(format!("{epoch}.json")), epoch == 1)
                    .expect("started");
            }
            (0..20).for_each(|_| step(&context, "gradient"));
            context.mark_epoch();
            if calls {
                context.stop_timeline().expect("stopped");
                context
                    .stop_timeline()
                    .expect("nothing is left to be stopped");
            }
        }
        context.barrier().expect("all are still there");
    });
    for epoch in 0..3 {
        let contents: Vec<Recorded> = (0..ranks)
            .map(|rank| match rank {
                0 => Recorded::read(&folder.file(&format!("t.{epoch}.json"))),
                _ => Recorded::read(&folder.file(&format!("t.{epoch}.rank{rank}.json"))),
            })
            .collect();
        let first = &contents[0];
        // The 20 steps between the two calls, with their marks, and not the one marked before.
        assert_eq!(
            (first.allreduces, first.steps, first.epochs),
            (20, 20, 1),
            "{first:?}"
        );
        assert_eq!(first.cycles > 0, epoch == 1);
        for other in &contents {
            assert_eq!(
                other.allreduces, first.allreduces,
                "the same steps on every rank: {contents:?}"
            );
        }
    }
}

/// Contents of a timeline.
#[derive(Debug)]
struct Recorded {
    allreduces: usize,
    steps: usize,
    epochs: usize,
    cycles: usize,
}

impl Recorded {
    fn read(path: &std::path::Path) -> Self {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let events: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
        let count = |phase: &str, name: &str| {
            let is = |event: &&serde_json::Value| event["ph"] == phase && event["name"] == name;
            events.iter().filter(is).count()
        };
        Self {
            allreduces: count("B", "ALLREDUCE"),
            steps: count("i", "STEP"),
            epochs: count("i", "EPOCH"),
            cycles: count("i", "CYCLE_START"),
        }
    }
}

#[test]
fn timelines_come_and_go_on_two_ranks() {
    train_with_timelines("control::timelines_come_and_go_on_two_ranks", 2);
}

#[test]
fn timelines_come_and_go_on_three_ranks() {
    train_with_timelines("control::timelines_come_and_go_on_three_ranks", 3);
}

#[test]
fn a_call_does_not_wait_for_another_threads_tensor() {
    job_with(
        "control::a_call_does_not_wait_for_another_threads_tensor",
        2,
        &[DYNAMIC],
        || {
            let context = Context::from_env().expect("a job");
            std::thread::scope(|scope| {
                if context.rank() == 0 {
                    let waiting = scope.spawn(|| step(&context, "late")); // runs the cycle meanwhile
                    std::thread::sleep(Duration::from_millis(50));
                    context.stop_timeline().expect("nothing was recorded");
                    step(&context, "go");
                    waiting.join().expect("it came in the end");
                } else {
                    step(&context, "go"); // after rank 0's call has returned
                    step(&context, "late");
                }
            });
        },
    );
}

#[test]
fn a_call_does_not_wait_for_a_join() {
    job_with(
        "control::a_call_does_not_wait_for_a_join",
        3,
        &[DYNAMIC],
        || {
            let context = Context::from_env().expect("a job");
            std::thread::scope(|scope| {
                let joined = scope.spawn(|| {
                    if context.rank() == 2 {
                        // No other rank submits it: it is done when all others have joined.
                        let alone = context.allreduce("alone", vec![1_i64], ReduceOp::Sum);
                        assert_eq!(alone.expect("taken").wait().expect("summed"), [1]);
                    }
                    context.join().expect("all join")
                });
                for _ in 0..5 {
                    std::thread::sleep(Duration::from_millis(10));
                    context.stop_timeline().expect("nothing was recorded");
                }
                assert_eq!(joined.join().expect("no panic"), 2);
            });
            context.barrier().expect("all are still there");
        },
    );
}

#[test]
fn many_threads_may_call_while_several_sets_train() {
    job_with(
        "control::many_threads_may_call_while_several_sets_train",
        3,
        &[DYNAMIC],
        || {
            let context = Context::builder()
                .process_sets([vec![0, 1], vec![1, 2]])
                .build()
                .expect("a job");
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let context = &context;
                    scope.spawn(move || {
                        for _ in 0..25 {
                            context.stop_timeline().expect("nothing was recorded");
                            step(context, &format!("thread{thread}"));
                        }
                    });
                }
                for set in context
                    .process_sets()
                    .iter()
                    .filter(|set| set.id() > 0 && set.included())
                {
                    for _ in 0..50 {
                        let sum = set
                            .allreduce("of a set", vec![1_i64], ReduceOp::Sum)
                            .expect("taken");
                        assert_eq!(sum.wait().expect("summed"), [2]);
                    }
                }
            });
            context.barrier().expect("all are still there");
        },
    );
}

#[test]
fn without_the_variable_every_rank_is_told_which_one() {
    job(
        "control::without_the_variable_every_rank_is_told_which_one",
        2,
        || {
            let context = Context::from_env().expect("a job");
            for outcome in [
                context.start_timeline("t.json", false),
                context.stop_timeline(),
            ] {
                let error = outcome.expect_err("timelines are off");
                assert!(matches!(
                    error,
                    Error::Settings(SettingsError::TimelineNotEnabled)
                ));
                assert!(
                    error.to_string().contains("HOROVOD_TIMELINE=DYNAMIC"),
                    "{error}"
                );
            }
            step(&context, "the job goes on");
        },
    );
}

#[test]
fn a_path_that_no_system_takes_is_refused_at_once() {
    job_with(
        "control::a_path_that_no_system_takes_is_refused_at_once",
        2,
        &[DYNAMIC],
        || {
            let context = Context::from_env().expect("a job");
            let outcome = context.start_timeline("x".repeat(1 << 20), false);
            assert!(
                matches!(outcome, Err(Error::Settings(SettingsError::Output { .. }))),
                "{outcome:?}"
            );
            step(&context, "the job goes on");
        },
    );
}

#[test]
fn after_a_rank_has_died_a_call_names_it() {
    let test = "control::after_a_rank_has_died_a_call_names_it";
    let Some(job) = start(test, 3, &[DYNAMIC], || {
        let context = Context::from_env().expect("a job");
        step(&context, "gradient");
        if context.rank() == 1 {
            std::process::abort();
        }
        if context.rank() == 0 {
            // The dead rank may still have taken part in some cycles.
            let first = (0..).find_map(|_| context.stop_timeline().err());
            let second = context.start_timeline("never.json", false).err();
            for error in [first, second] {
                assert!(
                    matches!(error, Some(Error::Peer(PeerError::Lost { rank: 1, .. }))),
                    "{error:?}"
                );
            }
        } else {
            // Rank 2 does not leave before rank 1 is lost.
            context.barrier().expect_err("rank 1 does not come");
        }
    }) else {
        return;
    };
    let outcomes = job.finish();
    for rank in [0, 2] {
        assert!(outcomes[rank].status.success(), "{}", outcomes[rank].output);
    }
    assert!(!outcomes[1].status.success(), "it has aborted");
}

#[test]
fn stopping_when_the_others_have_left_is_no_error() {
    job_with(
        "control::stopping_when_the_others_have_left_is_no_error",
        2,
        &[DYNAMIC],
        || {
            let context = Context::from_env().expect("a job");
            step(&context, "gradient");
            if context.rank() == 0 {
                std::thread::sleep(Duration::from_millis(300));
                context.stop_timeline().expect("it ends with the job");
            }
        },
    );
}
