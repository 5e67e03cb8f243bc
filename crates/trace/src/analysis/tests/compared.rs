//! Tests of the comparison of two runs.

use super::job::Job;
use super::report;
use crate::analysis::compare;
use crate::analysis::compare::ChangeGroup;

#[test]
fn a_run_is_like_itself() {
    let run = report(&Job::default());
    let comparison = compare(&run, &run);
    assert!(
        comparison
            .changes
            .iter()
            .all(|change| !change.beyond_spread && change.difference == Some(0.0))
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
        step.beyond_spread && step.difference.unwrap() > 40.0,
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
