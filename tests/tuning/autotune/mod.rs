//! The tuner in jobs of real processes: what steps consist of, how jobs begin and end, and what is kept from one to the next.

mod endings;
mod memory;
mod signatures;
mod steps;
mod whole;

use std::time::Instant;

use crate::support::PATIENCE;
use ronde::{AutotuneReport, Context, ReduceOp};

/// Four milliseconds a message, and a bad start: 40 tensors take 160 ms a step without fusion, in one message 4. Not even a machine
/// that is busy with other things hides that: there every message waits for its turn besides. But steps are so noisy there that a
/// search would go on for as long as it may: ten settings are enough.
const SLOW_LINK: [(&str, &str); 3] = [
    ("HOROVOD_AUTOTUNE", "1"),
    ("RONDE_LINK", "4000,5"),
    ("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "10"),
];
/// The fusion threshold alone is to be found: with fewer settings to think about, proposals come sooner.
const FUSION: [(&str, &str); 2] = [
    ("HOROVOD_CYCLE_TIME", "2"),
    ("RONDE_AUTOTUNE_START", "fusion_mb=0"),
];
/// Tensors of a step.
const TENSORS: usize = 40;
/// Elements of a tensor.
const ELEMENTS: usize = 5_000;

/// Steps to be taken, counted, until the job has taken too long: their number says nothing, since on a busy machine a proposal, of
/// the least priority, takes as long as thousands of them.
fn steps() -> impl Iterator<Item = usize> {
    let began = Instant::now();
    (0..).take_while(move |_| began.elapsed() < PATIENCE.mul_f64(0.8)) // and then there is time to say so
}

/// [`SLOW_LINK`], [`FUSION`] and more.
fn slow_link<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    SLOW_LINK.iter().chain(&FUSION).chain(more).copied().collect()
}

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Reduces tensors of these names as one step does.
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

/// A plain step.
fn plain(context: &Context) {
    reduce(context, (0..TENSORS).map(|tensor| format!("t{tensor}")));
}

/// Whether any rank says so, told by a tensor called `name` as everybody learns of everything.
fn any_rank(context: &Context, name: &str, says: bool) -> bool {
    let says = vec![f32::from(u8::from(says))];
    let told = context.allreduce(name, says, ReduceOp::Max).expect("in");
    told.wait().expect("out")[0] > 0.0
}

/// Takes steps until `done` holds of rank 0's report; answers with their number.
fn train(context: &Context, done: impl Fn(&AutotuneReport) -> bool, mut step: impl FnMut(usize)) -> usize {
    for taken in steps() {
        step(taken);
        let report = context.autotune_report();
        if any_rank(context, "done", report.is_some_and(|report| done(&report))) {
            context.barrier().expect("all come"); // the last change travels with the next cycle
            return taken + 1;
        }
    }
    panic!("no end of it: {:?}", context.autotune_report());
}

fn has_verdict(report: &AutotuneReport) -> bool {
    report.verdict.is_some()
}

/// On rank 0: the verdict is that fusion pays.
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

/// Column `index` of every row of a log but the header.
fn column(csv: &str, index: usize) -> Vec<String> {
    let cell = |line: &str| line.split(',').nth(index).unwrap_or("").to_owned();
    csv.lines().skip(1).map(cell).collect()
}

/// The phases of a log's rows.
fn phases(csv: &str) -> Vec<String> {
    column(csv, 7)
}
