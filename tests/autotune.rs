//! Tuning a job that says nothing about its steps: they are found by what repeats.

mod support;

use ronde::{Context, ReduceOp};
use support::job_with;

#[test]
fn a_job_that_marks_no_steps_is_tuned_and_all_ranks_follow() {
    let test = "a_job_that_marks_no_steps_is_tuned_and_all_ranks_follow";
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("a.csv");
    let log = log.to_str().expect("text");
    // Half a millisecond a message: 40 tensors without fusion take 20 ms a step, in one message half of one.
    let env = [
        ("HOROVOD_AUTOTUNE", "1"),
        ("HOROVOD_AUTOTUNE_LOG", log),
        ("RONDE_AUTOTUNE_START", "fusion_mb=0,cycle_ms=25"),
        ("RONDE_LINK", "500,5"),
    ];
    let outcomes = job_with(test, 2, &env, || {
        let context = Context::from_env().expect("the job starts");
        let before = context.settings();
        let mut steps = 0;
        // The verdict is rank 0's to know; the others learn of it as everybody does, by a tensor.
        loop {
            let done = context
                .autotune_report()
                .is_some_and(|report| report.verdict.is_some());
            let mut handles: Vec<_> = (0..40)
                .map(|tensor| {
                    context
                        .allreduce(&format!("t{tensor}"), vec![1.0f32; 5_000], ReduceOp::Sum)
                        .expect("in")
                })
                .collect();
            handles.push(
                context
                    .allreduce("done", vec![f32::from(u8::from(done))], ReduceOp::Max)
                    .expect("in"),
            );
            let last = handles.pop().expect("pushed").wait().expect("out");
            handles
                .into_iter()
                .for_each(|handle| assert_eq!(handle.wait().expect("out")[0], 2.0));
            steps += 1;
            if last[0] > 0.0 || steps == 3_000 {
                break;
            }
        }
        // The last change travels with the next cycle.
        context.barrier().expect("all come");
        let after = context.settings();
        println!("{steps} steps; from {before} to {after}");
        if context.rank() == 0 {
            let report = context.autotune_report().expect("rank 0 tunes");
            let verdict = report.verdict.expect("a verdict within 3,000 steps");
            println!("{verdict}");
            assert!(!verdict.kept_default, "{verdict}");
            assert!(
                verdict.chosen_step_ms < 0.5 * verdict.default_step_ms,
                "{verdict}"
            );
            assert!(verdict.settings.fusion_threshold_bytes > 0);
        } else {
            assert!(context.autotune_report().is_none());
        }
        assert!(
            after.fusion_threshold_bytes > 0,
            "the choice is in force on every rank: {after}"
        );
    });
    if outcomes.is_empty() {
        return;
    }
    assert!(
        outcomes[0].output.contains("ronde: autotune: "),
        "the verdict is told: {}",
        outcomes[0].output
    );
    let csv = std::fs::read_to_string(log).expect("written");
    let phases: Vec<&str> = csv
        .lines()
        .map(|line| line.split(',').nth(7).unwrap_or(""))
        .collect();
    assert_eq!(phases[..2], ["phase", "default"], "{csv}");
    assert!(
        phases.contains(&"ab") && phases[phases.len() - 2..] == ["final", "best"],
        "{csv}"
    );
}
