//! Tests of the tuner in jobs of several processes: contents of steps, start and end of jobs, and
//! memory between jobs.

mod endings;
mod memory;
mod signatures;
mod steps;
mod whole;

use std::time::Instant;

use crate::support::{Outcome, PATIENCE, all_succeed, start};
use ronde::{AutotuneReport, Context, ReduceOp};

/// A link with 4 ms per message, and a bad start setting: a step of 40 tensors takes 160 ms without
/// fusion, and 4 ms in one message. The difference is visible even on a busy machine, where every
/// message also waits for the CPU. But step times are so noisy there that a search would not end
/// early, so it is limited to ten settings.
const SLOW_LINK: [(&str, &str); 3] = [
    ("HOROVOD_AUTOTUNE", "1"),
    ("RONDE_LINK", "4000,5"),
    ("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "10"),
];
/// Only the fusion threshold is tuned: with fewer settings, proposals are computed faster.
const FUSION: [(&str, &str); 2] = [
    ("HOROVOD_CYCLE_TIME", "2"),
    ("RONDE_AUTOTUNE_START", "fusion_mb=0"),
];
/// Number of tensors in a step.
const TENSORS: usize = 40;
/// Number of elements of a tensor.
const ELEMENTS: usize = 5_000;

/// Counts steps until a time limit. The number of steps is not limited, because on a busy machine a
/// proposal, computed at the lowest priority, takes as long as thousands of steps.
fn steps() -> impl Iterator<Item = usize> {
    let began = Instant::now();
    (0..).take_while(move |_| began.elapsed() < PATIENCE.mul_f64(0.8)) // leaves time for an error
}

/// Combines [`SLOW_LINK`], [`FUSION`] and more.
fn slow_link<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    SLOW_LINK
        .iter()
        .chain(&FUSION)
        .chain(more)
        .copied()
        .collect()
}

/// Runs a job in which every rank must succeed, as [`job_again`] does.
fn job_with(test: &str, ranks: usize, env: &[(&str, &str)], body: impl Fn()) -> Vec<Outcome> {
    job_again(test, ranks, env, || {}, body)
}

/// Runs a job in which every rank must succeed. On a busy machine, the better setting may get so
/// little time that the tuner rightly keeps the default: then the job runs again after `reset`,
/// twice at most.
fn job_again(
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    reset: impl Fn(),
    body: impl Fn(),
) -> Vec<Outcome> {
    for attempt in 0.. {
        let Some(job) = start(test, ranks, env, &body) else {
            break;
        };
        let outcomes = job.finish();
        let has_failed = outcomes.iter().any(|outcome| !outcome.status.success());
        let keeps = |outcome: &Outcome| outcome.output.contains("autotune: default kept");
        if attempt == 2 || !has_failed || !outcomes.iter().any(keeps) {
            return all_succeed(outcomes);
        }
        reset();
    }
    Vec::new()
}

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Reduces tensors with these names, as one step does.
fn reduce(context: &Context, names: impl Iterator<Item = String>) {
    let handles: Vec<_> = names
        .map(|name| {
            let ones = vec![1.0f32; ELEMENTS];
            context.allreduce(&name, ones, ReduceOp::Sum).expect("in")
        })
        .collect();
    let size = context.size() as f32;
    for handle in handles {
        assert_eq!(handle.wait().expect("out")[0], size);
    }
}

/// Runs a step with the usual tensors.
fn plain(context: &Context) {
    reduce(context, (0..TENSORS).map(|tensor| format!("t{tensor}")));
}

/// Whether `says` is true on any rank; reduced with a tensor called `name`.
fn any_rank(context: &Context, name: &str, says: bool) -> bool {
    let says = vec![f32::from(u8::from(says))];
    let told = context.allreduce(name, says, ReduceOp::Max).expect("in");
    told.wait().expect("out")[0] > 0.0
}

/// Runs steps until `done` holds for rank 0's report; returns the number of steps.
fn train(
    context: &Context,
    done: impl Fn(&AutotuneReport) -> bool,
    mut step: impl FnMut(usize),
) -> usize {
    for taken in steps() {
        step(taken);
        let report = context.autotune_report();
        if any_rank(context, "done", report.is_some_and(|report| done(&report))) {
            context.barrier().expect("all come"); // the next cycle brings the last change
            return taken + 1;
        }
    }
    panic!("no end of it: {:?}", context.autotune_report());
}

fn has_verdict(report: &AutotuneReport) -> bool {
    report.verdict.is_some()
}

/// Checks that fusion is in force and, on rank 0, that it is the verdict with a clear gain.
fn expect_fusion(context: &Context) {
    let after = context.settings();
    assert!(
        after.fusion_threshold_bytes > 0,
        "in force on every rank: {after}"
    );
    let Some(report) = context.autotune_report() else {
        assert_ne!(context.rank(), 0);
        return;
    };
    let verdict = report.verdict.expect("there is one");
    println!("{verdict}");
    assert!(!verdict.kept_default, "{verdict}");
    assert!(
        verdict.chosen_step_ms < 0.7 * verdict.default_step_ms,
        "{verdict}"
    );
}

/// Column `index` of all rows of a log except the header.
fn column(csv: &str, index: usize) -> Vec<String> {
    let cell = |line: &str| line.split(',').nth(index).unwrap_or("").to_owned();
    csv.lines().skip(1).map(cell).collect()
}

/// Phases of a log's rows.
fn phases(csv: &str) -> Vec<String> {
    column(csv, 7)
}
