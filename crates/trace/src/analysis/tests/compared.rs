//! Tests of the comparison of two runs.

use super::job::Job;
use super::report;
use crate::analysis::compare;
use crate::analysis::compare::{Change, ChangeGroup};
use crate::analysis::report::Quantiles;
use crate::analysis::{Report, ScalingError, ScalingRun};

#[test]
fn a_run_is_like_itself() {
    let run = report(&Job::default());
    let comparison = compare(&run, &run);
    assert!(
        comparison
            .changes
            .iter()
            .all(|change| !change.significant && change.difference == Some(0.0))
    );
    assert!(
        comparison.settings.is_empty() && comparison.warnings.is_empty(),
        "{comparison:?}"
    );
    assert!(
        comparison.sentences == ["No change: a step takes 51.3 ms in both."],
        "{comparison:?}"
    );
}

#[test]
fn what_varies_as_much_is_no_change() {
    let run = report(&Job::default());
    let mut other = run.clone();
    other.steady.as_mut().unwrap().step_ms.p50 += 0.2;
    let sentence = &compare(&run, &other).sentences[0];
    assert_eq!(
        sentence,
        "No significant change: a step takes 51.3 ms in A and 51.5 ms in B, a difference of 0.200 ms, which is no more than a \
         hundredth."
    );
}

#[test]
fn what_a_file_does_not_say_has_not_changed() {
    let told = report(&Job::default());
    let silent = report(&Job {
        says_settings: false,
        ..Job::default()
    });
    let comparison = compare(&told, &silent);
    assert!(
        comparison
            .settings
            .iter()
            .any(|setting| setting.b == "unknown")
    );
    assert_eq!(comparison.sentences.len(), 1, "{comparison:?}");
    let more = report(&Job {
        ranks: 4,
        ..Job::default()
    });
    let comparison = compare(&told, &more);
    let said = comparison.sentences.last().unwrap();
    assert_eq!(said, "A ran on 2 ranks, B on 4.");
}

#[test]
fn a_slower_link_is_seen_where_it_acts() {
    let fast = Job::default();
    let slow = Job {
        gb_per_s: 1.0,
        threshold: 32 << 20,
        ..Job::default()
    };
    let (a, b) = (report(&fast), report(&slow));
    let comparison = compare(&a, &b);
    let change = |group: ChangeGroup, name: &str| {
        let found = comparison
            .changes
            .iter()
            .find(|change| change.group == group && change.name == name);
        found.unwrap_or_else(|| panic!("{name} in {:?}", comparison.changes))
    };
    let step = change(ChangeGroup::Step, "step");
    assert!(
        step.significant && step.difference.unwrap() > 40.0,
        "{step:?}"
    );
    let speed = change(ChangeGroup::Bandwidth, "MPI_ALLREDUCE, 1/β");
    assert!(
        (speed.b.unwrap() / speed.a.unwrap() - 0.25).abs() < 0.02,
        "{speed:?}"
    );
    assert!(
        comparison.sentences[0].contains("longer")
            && comparison.sentences[1].contains("“collective”")
    );
    let said: Vec<&str> = comparison
        .settings
        .iter()
        .map(|setting| setting.name.as_str())
        .collect();
    assert_eq!(said, ["fusion threshold"]);
    assert_eq!(
        (
            comparison.settings[0].a.as_str(),
            comparison.settings[0].b.as_str()
        ),
        ("64 MiB", "32 MiB")
    );
    // The reverse comparison.
    assert!(compare(&b, &a).sentences[0].contains("shorter"));
}

#[test]
fn a_rank_that_became_slow_is_named() {
    let slow = Job {
        slow: Some((1, 10_000.0)),
        ..Job::default()
    };
    let comparison = compare(&report(&Job::default()), &report(&slow));
    assert!(
        comparison
            .sentences
            .iter()
            .any(|sentence| sentence.contains("cost of rank 1")),
        "{comparison:?}"
    );
}

/// Report of 400 steady steps of `mean_ms` that vary by 5 %, a new deviation for every `same` steps.
fn varying(mean_ms: f64, same: usize, mut seed: u64) -> Report {
    let mut uniform = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1u32 << 31)
    };
    // The sum of twelve has mean 6 and standard deviation 1.
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    let mut run = report(&Job::default());
    let step = run.steps[2].clone();
    let deviations: Vec<f64> = (0..400 / same).map(|_| normal()).collect();
    let lengths = (0..400).map(|index| mean_ms * (1.0 + 0.05 * deviations[index / same]));
    let steps = (0..).zip(lengths).map(|(index, ms)| {
        let mut step = step.clone();
        (step.index, step.ms) = (index, ms);
        step
    });
    run.steps = steps.collect();
    let steady = run.steady.as_mut().unwrap();
    (steady.first_step, steady.steps) = (0, 400);
    steady.step_ms = Quantiles::of(run.steps.iter().map(|step| step.ms));
    run
}

fn step_change(a: &Report, b: &Report) -> Change {
    compare(a, b).changes.swap_remove(0)
}

#[test]
fn a_slowdown_as_large_as_the_scatter_of_steps_is_significant_in_many_steps() {
    let (a, b) = (varying(100.0, 1, 1), varying(105.0, 1, 2));
    let step = step_change(&a, &b);
    // 1.96 · 1.2533 · √(5² / 400 + 5.25² / 400) = 0.89
    assert!(step.significant, "{step:?}");
    assert!((step.margin.unwrap() - 0.89).abs() < 0.2, "{step:?}");
    assert!(step.spread.unwrap() > step.difference.unwrap(), "{step:?}");
    let sentence = &compare(&a, &b).sentences[0];
    assert!(
        sentence.contains("more than the margin of error"),
        "{sentence}"
    );
}

#[test]
fn correlated_steps_count_as_fewer() {
    // Twenty independent deviations in ten blocks: 1.96 · √(5² / 20 + 5² / 20) = 3.1
    let step = step_change(&varying(100.0, 20, 3), &varying(100.0, 20, 4));
    assert!((step.margin.unwrap() - 3.1).abs() < 1.0, "{step:?}");
    assert!(!step.significant, "{step:?}");
}

#[test]
fn an_unknown_number_of_ranks_is_no_difference_and_has_no_place_in_a_series() {
    let known = report(&Job::default());
    let mut unknown = known.clone();
    (unknown.ranks, unknown.ranks_unknown) = (1, true);
    let comparison = compare(&known, &unknown);
    assert_eq!(comparison.settings[0].b, "unknown");
    assert_eq!(comparison.sentences.len(), 1, "{comparison:?}");
    assert!(ScalingRun::from_report("a.json", &known).is_ok());
    let error = ScalingRun::from_report("a.json", &unknown).unwrap_err();
    let label = "a.json".to_owned();
    assert_eq!(error, ScalingError::RanksUnknown { label });
}
