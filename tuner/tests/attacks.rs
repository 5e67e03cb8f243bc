//! The guard on the step-time processes of the bench `tuner`: a few runs of each, with fixed seeds.

#[path = "../../benches/tuner/harness/attacks.rs"]
#[allow(dead_code)] // the table is the bench's
mod attacks;

use attacks::{PROCESSES, Run, row};

/// The runs of `process`, printed as a row.
fn runs(name: &str, count: u64) -> Vec<Run> {
    let process = PROCESSES
        .iter()
        .find(|process| process.name == name)
        .unwrap();
    let runs: Vec<Run> = (0..count).map(|seed| process.run(seed).unwrap()).collect();
    println!("{}", row(name, &runs));
    runs
}

#[test]
fn equal_seeds_give_equal_runs() {
    for process in ["A", "D"] {
        let text = |runs: Vec<Run>| format!("{runs:?}");
        assert_eq!(text(runs(process, 2)), text(runs(process, 2)));
    }
}

#[test]
fn a_start_that_is_best_is_not_left_in_plain_noise() {
    for name in ["H", "base"] {
        let runs = runs(name, 4);
        assert!(
            runs.iter()
                .all(|run| !run.away && run.claims == 0 && run.alarms == 0),
            "{name}: {runs:?}"
        );
        assert!(runs.iter().all(|run| run.paid < 0.015), "{name}: {runs:?}");
    }
}

#[test]
fn a_gain_of_six_percent_is_found() {
    let runs = runs("G0", 4);
    assert!(
        runs.iter()
            .all(|run| run.away && run.claims > 0 && run.paid < -0.05),
        "{runs:?}"
    );
}
