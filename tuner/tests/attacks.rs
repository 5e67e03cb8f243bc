//! The guard on the step-time processes of the bench `tuner`: a few runs of each, with fixed seeds.

#[path = "../../benches/tuner/harness/attacks/mod.rs"]
#[allow(dead_code, unused_imports)] // the tables are the bench's
mod attacks;

use attacks::{CHOSEN, ENVIRONMENTS, Leaving, Process, Run, processes};

/// The runs of a process, printed as a table.
fn runs(name: &str, count: u64) -> Vec<Run> {
    let process: Process = *CHOSEN.iter().find(|process| process.name == name).unwrap();
    let runs: Vec<Run> = (0..count).map(|seed| process.run(seed).unwrap()).collect();
    println!("{}", processes(&[(process, runs.clone())]));
    runs
}

/// Where every other setting is slower, a job stays, and nothing takes the step times for a change.
#[test]
fn a_start_that_is_best_is_not_left() {
    for name in ["A", "B", "C", "D", "H", "flat", "base"] {
        let runs = runs(name, 3);
        assert!(
            runs.iter()
                .all(|run| !run.end.is_away && run.claims == 0 && run.alarms == 0),
            "{name}: {runs:?}"
        );
        assert!(runs.iter().all(|run| run.paid < 0.015), "{name}: {runs:?}");
    }
}

/// Likewise in each kind of environment, with parameters that are drawn for the run.
#[test]
fn a_start_that_is_best_is_not_left_in_any_kind_of_environment() {
    for (kind, name) in ENVIRONMENTS.into_iter().enumerate() {
        for leaving in [Leaving::Slower, Leaving::Equal] {
            let run = Process::drawn(kind, leaving, 1).run(1).unwrap();
            assert!(!run.end.is_away && run.claims == 0, "{name}: {run:?}");
        }
    }
}

/// Rare slow steps can hide from a comparison; afterwards they do not.
#[test]
fn rare_slow_steps_are_left_again() {
    for (name, count) in [("E", 4), ("F", 6)] {
        let runs = runs(name, count);
        assert!(runs.iter().all(|run| !run.end.is_away), "{name}: {runs:?}");
        assert!(
            runs.iter().map(|run| run.paid).sum::<f64>() < 0.03 * count as f64,
            "{name}: {runs:?}"
        );
    }
}

#[test]
fn a_gain_is_found_within_its_interval() {
    for name in ["G0", "G"] {
        let runs = runs(name, 3);
        assert!(
            runs.iter()
                .all(|run| run.end.is_away && run.claims > 0 && run.missed == 0),
            "{name}: {runs:?}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for process in ["A", "D"] {
        let text = |runs: Vec<Run>| format!("{runs:?}");
        assert_eq!(text(runs(process, 2)), text(runs(process, 2)));
    }
}
