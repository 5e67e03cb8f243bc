//! Tests of the contents of a step that the tuner has to handle.

use std::time::Duration;

use ronde::{Context, ReduceOp};

use super::{
    ELEMENTS, TENSORS, any_rank, context, expect_fusion, has_verdict, job_with, plain, reduce,
    slow_link, steps, train,
};

#[test]
fn names_that_never_repeat() {
    job_with(
        "autotune::steps::names_that_never_repeat",
        2,
        &slow_link(&[]),
        || {
            let context = context();
            for step in steps() {
                reduce(
                    &context,
                    (0..TENSORS).map(|tensor| format!("{step}.{tensor}")),
                );
                let done = context
                    .autotune_report()
                    .is_some_and(|report| has_verdict(&report));
                // The tensor of this check has a new name in every step too.
                if any_rank(&context, &format!("done.{step}"), done) {
                    break;
                }
            }
            context.barrier().expect("all come");
            expect_fusion(&context);
        },
    );
}

#[test]
fn several_backward_passes_in_a_step() {
    job_with(
        "autotune::steps::several_backward_passes_in_a_step",
        2,
        &slow_link(&[]),
        || {
            let context = context();
            train(&context, has_verdict, |_| {
                for pass in 0..3 {
                    reduce(
                        &context,
                        (0..TENSORS / 3).map(|tensor| format!("t{tensor}")),
                    );
                    any_rank(&context, "loss", pass > 0);
                }
                context.mark_step();
            });
            expect_fusion(&context);
        },
    );
}

#[test]
fn reduced_in_one_backward_pass_of_four() {
    let test = "autotune::steps::reduced_in_one_backward_pass_of_four";
    job_with(test, 2, &slow_link(&[]), || {
        let context = context();
        train(&context, has_verdict, |_| {
            std::thread::sleep(Duration::from_millis(3)); // three passes without reductions
            plain(&context);
        });
        expect_fusion(&context);
    });
}

#[test]
fn process_sets_have_traffic_of_their_own() {
    let test = "autotune::steps::process_sets_have_traffic_of_their_own";
    job_with(test, 3, &slow_link(&[]), || {
        let sets = [vec![0, 1], vec![1, 2]];
        let context = Context::builder()
            .process_sets(sets)
            .build()
            .expect("the job starts");
        let mine: Vec<_> = context
            .process_sets()
            .into_iter()
            .filter(|set| set.id() > 0 && set.included())
            .collect();
        train(&context, has_verdict, |step| {
            for set in &mine {
                // The size changes, which the tuner must ignore for other process sets.
                let ones = vec![1i32; 100 + 10 * (step % 7)];
                let sum = set
                    .allreduce(&format!("of {}", step % 5), ones, ReduceOp::Sum)
                    .expect("in");
                assert_eq!(sum.wait().expect("out")[0], 2);
            }
            plain(&context);
        });
        expect_fusion(&context);
    });
}

#[test]
fn without_any_allreduce() {
    job_with(
        "autotune::steps::without_any_allreduce",
        2,
        &slow_link(&[]),
        || {
            let context = context();
            for _ in steps() {
                let gathers = (0..TENSORS / 2).map(|tensor| {
                    let rows = vec![1.0f32; ELEMENTS / 2];
                    context
                        .allgather(&format!("gather{tensor}"), rows, &[ELEMENTS / 2])
                        .expect("in")
                });
                let gathers: Vec<_> = gathers.collect();
                let shares = (0..TENSORS / 2).map(|tensor| {
                    let ones = vec![1.0f32; ELEMENTS];
                    context
                        .reducescatter(&format!("scatter{tensor}"), ones, ReduceOp::Sum)
                        .expect("in")
                });
                let shares: Vec<_> = shares.collect();
                let weights = context
                    .broadcast("weights", vec![1.0f32; 10], 0)
                    .expect("in");
                gathers
                    .into_iter()
                    .for_each(|handle| drop(handle.wait().expect("out")));
                shares
                    .into_iter()
                    .for_each(|handle| drop(handle.wait().expect("out")));
                weights.wait().expect("out");
                let done = context
                    .autotune_report()
                    .is_some_and(|report| has_verdict(&report));
                let told = context
                    .allgather("done", vec![u8::from(done)], &[1])
                    .expect("in");
                let told = told.wait().expect("out").tensor;
                if told.iter().any(|&done| done > 0) {
                    break;
                }
            }
            context.barrier().expect("all come");
            expect_fusion(&context);
        },
    );
}
