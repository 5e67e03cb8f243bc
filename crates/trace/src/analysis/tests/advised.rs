//! Tests of advice: jobs with one known problem, and jobs without any.

use super::job::Job;
use super::report;
use crate::analysis::report::Advice;

fn first(job: &Job) -> Advice {
    report(job).advice.remove(0)
}

/// Length of a step with other settings, by running the simulated job.
fn step_ms(job: &Job) -> f64 {
    report(job).steady.unwrap().step_ms.p50
}

#[test]
fn a_tiny_threshold() {
    // 400 tensors of 128 KiB or 384 KiB, each in its own batch: 400 · (200 + 65) µs are 106 ms on
    // the link, 40 of them hidden.
    let tensors = (0..400).map(|i| if i % 2 == 0 { 128 << 10 } else { 384 << 10 });
    let job = Job {
        tensors: tensors.collect(),
        threshold: 64 << 10,
        ..Job::default()
    };
    let advice = first(&job);
    assert_eq!(
        advice.variable.as_deref(),
        Some("HOROVOD_FUSION_THRESHOLD"),
        "{advice:?}"
    );
    let value: u64 = advice.value.unwrap().parse().unwrap();
    assert!(value >= 1 << 20, "{value}");
    let gain = step_ms(&job)
        - step_ms(&Job {
            threshold: value,
            ..job
        });
    assert!(
        (advice.gain_ms.unwrap() - gain).abs() < 0.15 * gain,
        "{} instead of {gain}",
        advice.gain_ms.unwrap()
    );
}

#[test]
fn one_size_tells_nothing_of_another() {
    let job = Job {
        tensors: vec![256 << 10; 400],
        threshold: 128 << 10,
        ..Job::default()
    };
    let advice = report(&job).advice;
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert_eq!(advice[0].variable.as_deref(), Some("HOROVOD_AUTOTUNE"));
    assert!(advice[0].sentence.contains("nearly one size"), "{advice:?}");
}

#[test]
fn a_long_cycle_time() {
    let job = Job {
        cycle_us: 25_000.0,
        backward_us: 30_000.0,
        ..Job::default()
    };
    let advice = first(&job);
    assert_eq!(
        advice.variable.as_deref(),
        Some("HOROVOD_CYCLE_TIME"),
        "{advice:?}"
    );
    let value: f64 = advice.value.unwrap().parse().unwrap();
    assert!(value <= 10.0, "{value}");
    let gain = step_ms(&job)
        - step_ms(&Job {
            cycle_us: value * 1e3,
            ..job
        });
    assert!(
        (advice.gain_ms.unwrap() - gain).abs() < 0.2 * gain + 1.0,
        "{} instead of {gain}",
        advice.gain_ms.unwrap()
    );
}

#[test]
fn a_slow_rank_comes_first() {
    let advice = first(&Job {
        ranks: 4,
        slow: Some((2, 15_000.0)),
        ..Job::default()
    });
    assert!(
        advice.sentence.starts_with("Rank 2 delays the others"),
        "{advice:?}"
    );
    assert!((advice.gain_ms.unwrap() - 15.0).abs() < 1.5, "{advice:?}");
    assert_eq!(advice.variable, None);
}

#[test]
fn nothing_is_wrong() {
    let advice = report(&Job::default()).advice;
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert!(
        advice[0].sentence.starts_with("Communication is hidden"),
        "{advice:?}"
    );
    assert_eq!(
        (advice[0].gain_ms, advice[0].variable.as_deref()),
        (None, None)
    );
}

#[test]
fn a_slow_link_wants_fewer_bytes() {
    let advice = first(&Job {
        gb_per_s: 0.8,
        ..Job::default()
    });
    assert!(
        advice.sentence.contains("Compression.fp16") && advice.sentence.contains("0.80 GB/s"),
        "{advice:?}"
    );
    // Half of 100 MiB at 0.8 GB/s is 62 ms, some of it hidden.
    let gain = advice.gain_ms.unwrap();
    assert!(gain > 45.0 && gain < 66.0, "{gain}");
}

#[test]
fn a_slow_start_is_mentioned_last() {
    for (startup, begins) in [
        ((6, 3.0), "The first 6 whole steps take"),
        ((1, 30.0), "The first whole step takes "),
    ] {
        let job = Job {
            startup,
            ..Job::default()
        };
        let advice = report(&job).advice;
        let last = advice.last().unwrap();
        assert!(last.sentence.starts_with(begins), "{advice:?}");
        assert!(advice.len() <= 5);
    }
}
