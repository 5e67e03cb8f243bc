//! Tests of the start and the end of jobs that tune.

use std::time::{Duration, Instant};

use ronde::AutotunePhase;

use super::{context, expect_fusion, has_verdict, job_with, phases, plain, slow_link, train};
use crate::support::{Folder, PATIENCE, start};

#[test]
fn a_job_that_is_killed_leaves_a_log_that_ends_with_the_best_so_far() {
    let test =
        "autotune::endings::a_job_that_is_killed_leaves_a_log_that_ends_with_the_best_so_far";
    let folder = Folder::new();
    let log = folder.file("a.csv");
    let env = [
        ("HOROVOD_AUTOTUNE_LOG", log.to_str().expect("text")),
        ("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "10"),
    ];
    let Some(job) = start(test, 2, &slow_link(&env), || {
        let context = context();
        loop {
            plain(&context);
        }
    }) else {
        return;
    };
    // The job is killed during the search, as soon as a setting other than the default has been
    // measured.
    let began = Instant::now();
    let rows = || std::fs::read_to_string(&log).unwrap_or_default();
    while !phases(&rows()).iter().any(|phase| phase == "sample") && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut job = job;
    for rank in &mut job.ranks {
        rank.kill().expect("killed");
    }
    job.finish();
    let csv = rows();
    let phases = phases(&csv);
    assert!(csv.ends_with('\n'), "{csv:?}");
    assert_eq!(phases.last().map(String::as_str), Some("best"), "{csv}");
    assert_eq!(
        phases.iter().filter(|phase| *phase == "best").count(),
        1,
        "{csv}"
    );
    let best: Vec<&str> = csv.lines().last().unwrap_or("").split(',').collect();
    let [cycle_ms, fusion_mb, score, step_ms] =
        [4, 5, 6, 10].map(|index| best[index].parse::<f64>());
    assert!(cycle_ms.is_ok() && fusion_mb.is_ok(), "{csv}");
    assert!(
        score.is_ok_and(|score| score > 0.0) && step_ms.is_ok_and(|ms| ms > 0.0),
        "{csv}"
    );
}

#[test]
fn a_job_that_ends_before_it_is_tuned_ends_well() {
    let test = "autotune::endings::a_job_that_ends_before_it_is_tuned_ends_well";
    let folder = Folder::new();
    let (log, state) = (folder.file("a.csv"), folder.file("s.json"));
    let env = [
        ("HOROVOD_AUTOTUNE_LOG", log.to_str().expect("text")),
        ("RONDE_AUTOTUNE_STATE", state.to_str().expect("text")),
        ("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "3"),
    ];
    job_with(test, 2, &slow_link(&env), || {
        let context = context();
        (0..12).for_each(|_| plain(&context));
    });
    let csv = std::fs::read_to_string(&log).expect("written");
    assert_eq!(csv.lines().count(), 1, "{csv}");
    assert!(!state.exists(), "nothing was learnt");
}

#[test]
fn a_rank_may_come_late() {
    job_with(
        "autotune::endings::a_rank_may_come_late",
        2,
        &slow_link(&[]),
        || {
            if std::env::var("HOROVOD_RANK").is_ok_and(|rank| rank == "1") {
                std::thread::sleep(Duration::from_millis(700));
            }
            let context = context();
            train(&context, has_verdict, |step| {
                if context.rank() == 1 && step % 50 == 30 {
                    std::thread::sleep(Duration::from_millis(150)); // a stall
                }
                plain(&context);
            });
            expect_fusion(&context);
        },
    );
}

#[test]
fn a_rank_that_joins_early_leaves_the_others_to_tune() {
    let test = "autotune::endings::a_rank_that_joins_early_leaves_the_others_to_tune";
    job_with(test, 2, &slow_link(&[]), || {
        let context = context();
        for epoch in 0..4 {
            let steps = if context.rank() == epoch % 2 { 20 } else { 26 };
            for _ in 0..steps {
                let ones: Vec<_> = (0..20)
                    .map(|tensor| {
                        let one = vec![1.0f32; 1_000];
                        context
                            .allreduce(&format!("t{tensor}"), one, ronde::ReduceOp::Sum)
                            .expect("in")
                    })
                    .collect();
                ones.into_iter()
                    .for_each(|handle| drop(handle.wait().expect("out")));
            }
            context.join().expect("all join");
        }
        if context.rank() == 0 {
            // The steps of which a rank has joined are not measured; the others are enough.
            let report = context.autotune_report().expect("rank 0 tunes");
            assert_ne!(report.phase, AutotunePhase::Default, "{report:?}");
        }
    });
}
