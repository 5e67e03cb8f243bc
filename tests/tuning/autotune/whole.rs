//! Test of a job from its first step to the verdict.

use super::{
    SLOW_LINK, column, context, expect_fusion, has_verdict, job_with, phases, plain, slow_link,
    train,
};

#[test]
fn a_job_that_marks_no_steps_is_tuned_and_all_ranks_follow() {
    let test = "autotune::whole::a_job_that_marks_no_steps_is_tuned_and_all_ranks_follow";
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("a.csv");
    let log = log.to_str().expect("text");
    // In this test the cycle time is tuned as well.
    let mut env = SLOW_LINK.to_vec();
    env.extend([
        ("RONDE_AUTOTUNE_START", "fusion_mb=0,cycle_ms=2"),
        ("HOROVOD_AUTOTUNE_LOG", log),
    ]);
    let outcomes = job_with(test, 2, &env, || {
        let context = context();
        let before = context.settings();
        let steps = train(&context, has_verdict, |_| plain(&context));
        println!("{steps} steps; from {before} to {}", context.settings());
        expect_fusion(&context);
        assert_eq!(context.autotune_report().is_some(), context.rank() == 0);
    });
    if outcomes.is_empty() {
        return;
    }
    let told = &outcomes[0].output;
    assert!(
        told.contains("ronde: autotune: "),
        "the verdict is told: {told}"
    );
    let csv = std::fs::read_to_string(log).expect("written");
    let phases = phases(&csv);
    assert_eq!(phases[0], "default", "{csv}");
    assert!(phases.iter().any(|phase| phase == "ab"), "{csv}");
    assert_eq!(phases[phases.len() - 2..], ["final", "best"], "{csv}");
}

#[test]
fn where_everything_is_fixed_there_is_nothing_to_tune() {
    let test = "autotune::whole::where_everything_is_fixed_there_is_nothing_to_tune";
    let env = [
        ("HOROVOD_AUTOTUNE", "1"),
        ("HOROVOD_FUSION_THRESHOLD", "1MB"),
        ("HOROVOD_CYCLE_TIME", "2"),
    ];
    job_with(test, 2, &env, || {
        let context = context();
        train(&context, has_verdict, |_| plain(&context));
        if let Some(report) = context.autotune_report() {
            let verdict = report.verdict.as_ref().expect("a verdict");
            assert!(verdict.kept_default);
            assert_eq!(verdict.settings.fusion_threshold_bytes, 1 << 20);
            let why = ronde::NotTuned::line(&report.not_tuned);
            assert!(
                why.contains("fusion_mb (HOROVOD_FUSION_THRESHOLD is set)"),
                "{why}"
            );
            let one_host =
                "hierarchical_allreduce and hierarchical_allgather (all ranks are on one host)";
            assert!(why.contains(one_host), "{why}");
        }
        assert_eq!(context.settings().cycle_time_ns, 2_000_000);
    });
}

#[test]
fn the_cache_is_tuned_on_demand_and_changes_on_all_ranks_at_once() {
    let test = "autotune::whole::the_cache_is_tuned_on_demand_and_changes_on_all_ranks_at_once";
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("a.csv");
    let log = log.to_str().expect("text");
    let env = slow_link(&[("RONDE_AUTOTUNE_CACHE", "1"), ("HOROVOD_AUTOTUNE_LOG", log)]);
    let outcomes = job_with(test, 2, &env, || {
        let context = context();
        train(&context, has_verdict, |_| plain(&context));
        expect_fusion(&context);
    });
    if outcomes.is_empty() {
        return;
    }
    let csv = std::fs::read_to_string(log).expect("written");
    let cached = column(&csv, 3);
    assert!(
        cached.iter().all(|cell| cell == "0" || cell == "1"),
        "{csv}"
    );
    assert_eq!(cached[0], "1", "the default has it: {csv}");
}
