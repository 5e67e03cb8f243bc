//! Tests of the tuner's memory: state files between jobs, and searches that start again within a
//! job.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use ronde::AutotuneVerdict;

use super::{
    TENSORS, context, expect_fusion, has_verdict, job_again, job_with, plain, reduce, slow_link,
    train,
};
use crate::support::Folder;

/// Runs a job to its verdict with a state file; returns the output of rank 0.
fn tuned(test: &str, state: &Path, more: &[(&str, &str)]) -> String {
    let mut env = vec![("RONDE_AUTOTUNE_STATE", state.to_str().expect("text"))];
    env.extend(more);
    let before = std::fs::read(state).ok();
    let reset = || match &before {
        Some(before) => std::fs::write(state, before).expect("written"),
        None => drop(std::fs::remove_file(state)),
    };
    let outcomes = job_again(test, 2, &slow_link(&env), reset, || {
        let context = context();
        let steps = train(&context, has_verdict, |_| plain(&context));
        expect_fusion(&context);
        if context.rank() == 0 {
            println!("tuned in {steps} steps to {}", context.settings());
        }
    });
    outcomes
        .into_iter()
        .next()
        .map_or_else(String::new, |outcome| outcome.output)
}

/// Parses the number of steps and the settings from the output of [`tuned`].
fn steps_and_settings(output: &str) -> (usize, String) {
    let line = output.lines().find_map(|line| line.split_once("tuned in "));
    let (_, line) = line.unwrap_or_else(|| panic!("no verdict: {output}"));
    let (steps, settings) = line.split_once(" steps to ").expect("as printed");
    (steps.parse().expect("a number"), settings.to_owned())
}

#[test]
fn the_second_run_begins_with_the_best_of_the_first() {
    let test = "autotune::memory::the_second_run_begins_with_the_best_of_the_first";
    let folder = Folder::new();
    let state = folder.file("s.json");
    let first = tuned(test, &state, &[]);
    let second = tuned(test, &state, &[("HOROVOD_LOG_LEVEL", "info")]);
    let ((_, chosen), (steps, kept)) = (steps_and_settings(&first), steps_and_settings(&second));
    assert!(
        second.contains("continues from the state of a run of this job"),
        "{second}"
    );
    assert_eq!(chosen, kept, "{first}\n{second}");
    // Four to six pairs of visits, in addition to the steps in which the tuner detects the step. On
    // a busy machine some more. A search may take no more than that, so the first run's steps are
    // no limit.
    assert!(steps <= 200, "{steps}: {second}");
}

#[test]
fn a_state_file_that_says_nothing_of_this_job_is_one_warning() {
    let test = "autotune::memory::a_state_file_that_says_nothing_of_this_job_is_one_warning";
    let folder = Folder::new();
    let state = folder.file("s.json");
    let text = "{\"ronde_tuner_state\": 99}"; // other files: the tests of the state
    if std::env::var_os("TEST_RONDE_BODY").is_none() {
        std::fs::write(&state, text).expect("written");
    }
    let output = tuned(test, &state, &[]);
    assert_eq!(
        output.matches("continuing without it").count(),
        1,
        "{output}"
    );
    assert!(output.contains("version 99"), "{output}");
    assert_eq!(
        std::fs::read_to_string(&state).expect("there"),
        text,
        "left as it was"
    );
}

#[test]
fn another_models_state_is_one_warning_and_replaced() {
    let test = "autotune::memory::another_models_state_is_one_warning_and_replaced";
    let folder = Folder::new();
    let state = folder.file("s.json");
    let other = r#"{"ronde_tuner_state": 1, "date": "2026-11-22", "key": {"model": "0123456789abcdef"},
        "start": {"fusion_mb": 128.0, "cycle_ms": 1.0, "cache": 1.0}, "samples": [], "verdict": null}"#;
    if std::env::var_os("TEST_RONDE_BODY").is_none() {
        std::fs::write(&state, other).expect("written");
    }
    let output = tuned(test, &state, &[]);
    assert_eq!(
        output
            .matches("is of another model (0123456789abcdef")
            .count(),
        1,
        "{output}"
    );
    let now: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&state).expect("there")).expect("JSON");
    assert_eq!(now["key"]["ranks"], "2");
    assert_ne!(now["key"]["model"], "0123456789abcdef");
}

#[test]
fn a_process_that_starts_again_remembers() {
    let test = "autotune::memory::a_process_that_starts_again_remembers";
    let env = slow_link(&[("HOROVOD_LOG_LEVEL", "info")]);
    let outcomes = job_with(test, 2, &env, || {
        let mut verdicts: Vec<Option<AutotuneVerdict>> = Vec::new();
        for _ in 0..2 {
            let context = context();
            train(&context, has_verdict, |_| plain(&context));
            expect_fusion(&context);
            verdicts.push(context.autotune_report().and_then(|report| report.verdict));
            context.shutdown();
        }
        if let [Some(first), Some(second)] = &verdicts[..] {
            assert!(
                second.settings.fusion_threshold_bytes == first.settings.fusion_threshold_bytes,
                "{second}"
            );
            assert!(second.steps_active <= 200, "{second}");
        }
    });
    if let Some(first) = outcomes.first() {
        let line = "autotune: continues from the state of a run of this job";
        assert!(first.output.contains(line), "{}", first.output);
    }
}

#[test]
fn when_the_job_slows_down_it_is_tuned_anew() {
    let test = "autotune::memory::when_the_job_slows_down_it_is_tuned_anew";
    let env = slow_link(&[("HOROVOD_LOG_LEVEL", "info")]);
    let outcomes = job_with(test, 2, &env, || {
        let context = context();
        train(&context, has_verdict, |_| plain(&context));
        // After about 60 steps of equal length the tuner knows the step time of its choice.
        let steps = Cell::new(0);
        let known = |_: &ronde::AutotuneReport| steps.get() > 90;
        train(&context, known, |step| {
            steps.set(step);
            plain(&context);
        });
        let retuned = |report: &ronde::AutotuneReport| {
            report
                .verdict
                .as_ref()
                .is_some_and(|verdict| verdict.retuned.is_some())
        };
        train(&context, retuned, |_| {
            std::thread::sleep(Duration::from_millis(60));
            plain(&context);
        });
    });
    if let Some(first) = outcomes.first() {
        let told = &first.output;
        assert!(told.contains("tuning again"), "{told}");
        assert!(
            !told.contains("no model fits"),
            "what is seen from then on is replayed: {told}"
        );
    }
}

#[test]
fn another_set_of_tensors_is_tuned_anew() {
    let test = "autotune::memory::another_set_of_tensors_is_tuned_anew";
    job_with(test, 2, &slow_link(&[]), || {
        let context = context();
        train(&context, has_verdict, |_| plain(&context));
        let changed = |report: &ronde::AutotuneReport| {
            let verdict = report.verdict.as_ref();
            verdict.is_some_and(|verdict| {
                let why = verdict.retuned.as_deref();
                why.is_some_and(|why| why.contains("tensors of a step have changed"))
            })
        };
        train(&context, changed, |_| {
            // Many tensors, because other operations count as the job's own only after some
            // thousand tensors.
            reduce(
                &context,
                (0..3 * TENSORS).map(|tensor| format!("other{tensor}")),
            );
        });
    });
}
