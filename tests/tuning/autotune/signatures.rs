//! Tests of jobs whose steps have more than one signature.

use std::cell::Cell;

use ronde::{AutotuneReport, Context};

use super::{
    TENSORS, context, expect_fusion, has_verdict, job_with, plain, reduce, slow_link, train,
};

/// Runs a step with other tensors, three times as many.
fn other(context: &Context) {
    reduce(
        context,
        (0..3 * TENSORS).map(|tensor| format!("other{tensor}")),
    );
}

/// Runs `count` steps, whatever the tuner reports.
fn take(context: &Context, count: usize, step: impl Fn(&Context)) {
    let taken = Cell::new(0);
    train(
        context,
        |_| taken.get() >= count,
        |_| {
            step(context);
            context.mark_step();
            taken.set(taken.get() + 1);
        },
    );
}

#[test]
fn two_signatures_are_tuned_once_each_and_their_settings_come_back_with_them() {
    let test = "autotune::signatures::two_signatures_are_tuned_once_each_and_their_settings_come_back_with_them";
    job_with(test, 2, &slow_link(&[]), || {
        let context = context();
        let verdict = || context.autotune_report().and_then(|report| report.verdict);
        train(&context, has_verdict, |_| {
            plain(&context);
            context.mark_step();
        });
        expect_fusion(&context);
        let (settings, first) = (context.settings(), verdict());

        // A few other steps now and then do not affect the search.
        for _ in 0..3 {
            take(&context, 5, other);
            take(&context, 5, plain);
        }
        let same = |told: Option<ronde::AutotuneVerdict>| {
            let key = |verdict: ronde::AutotuneVerdict| (verdict.steps_active, verdict.reason);
            assert_eq!(told.map(key), first.clone().map(key));
        };
        same(verdict());

        let of_the_others = |report: &AutotuneReport| {
            let why = report
                .verdict
                .as_ref()
                .and_then(|verdict| verdict.retuned.as_deref());
            why.is_some_and(|why| why.contains("tensors of a step have changed"))
        };
        train(&context, of_the_others, |_| {
            other(&context);
            context.mark_step();
        });
        take(&context, 80, other);

        take(&context, 6, plain);
        same(verdict());
        let back = context.settings();
        assert_eq!(
            (back.fusion_threshold_bytes, back.cycle_time_ns, back.cache),
            (
                settings.fusion_threshold_bytes,
                settings.cycle_time_ns,
                settings.cache
            )
        );
    });
}

#[test]
fn steps_that_come_in_turns_are_tuned_as_one() {
    let test = "autotune::signatures::steps_that_come_in_turns_are_tuned_as_one";
    let env = slow_link(&[("HOROVOD_LOG_LEVEL", "info")]);
    let outcomes = job_with(test, 2, &env, || {
        let context = context();
        train(&context, has_verdict, |_| {
            // Two optimizers, and a micro-batch without reductions.
            plain(&context);
            context.mark_step();
            reduce(
                &context,
                (0..TENSORS / 2).map(|tensor| format!("other{tensor}")),
            );
            context.mark_step();
            context.mark_step();
        });
        expect_fusion(&context);
        if context.rank() == 0 {
            // Without fusion: the messages of both optimizers, and one for the test whether all
            // ranks are done, of at least 4 ms each.
            let verdict = context.autotune_report().and_then(|report| report.verdict);
            let verdict = verdict.expect("there is one");
            let messages = TENSORS + TENSORS / 2 + 1;
            assert!(verdict.default_step_ms > 4.0 * messages as f64, "{verdict}");
        }
    });
    if let Some(first) = outcomes.first() {
        assert!(!first.output.contains("tuning again"), "{}", first.output);
    }
}
