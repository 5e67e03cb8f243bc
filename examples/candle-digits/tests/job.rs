//! Runs the program as in the README: on 1, 2 and 3 ranks, with the tuner and the timeline on.

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_candle-digits");

/// Trains on `ranks` ranks for 10 epochs and compares with one process; returns the output of rank
/// 0.
fn train(ranks: usize, variables: &[(&str, &Path)]) -> String {
    let launcher = Path::new(PROGRAM).with_file_name("ronde");
    let output = Command::new(&launcher)
        .args(["run", "-np", &ranks.to_string(), "--", PROGRAM])
        .args(["--epochs", "10", "--reference"])
        .envs(variables.iter().copied())
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; `cargo build` in the same profile first",
                launcher.display()
            )
        });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{ranks} ranks: {text}{errors}");
    text
}

/// The number after `word` in each line that has it.
fn numbers(text: &str, word: &str) -> Vec<f64> {
    let behind = text
        .lines()
        .filter_map(|line| line.split_once(word)?.1.split_whitespace().next());
    behind
        .map(|number| number.parse().expect("a number"))
        .collect()
}

#[test]
fn any_number_of_ranks_learns_the_digits_and_ends_where_one_process_does() {
    for ranks in 1..=3 {
        let text = train(ranks, &[]);
        let losses = numbers(&text, "loss");
        assert_eq!(losses.len(), 10, "{text}");
        // ln 10 = 2.3 is the loss of a random guess.
        assert!(losses[0] < 2.3 && losses[9] < 0.1 * losses[0], "{losses:?}");
        let accuracies = numbers(&text, "accuracy");
        assert!(accuracies[9] > 85.0, "{accuracies:?}");
        let same = format!("bit for bit: {ranks} of {ranks}");
        assert!(
            text.contains(&same) && text.contains("reference: "),
            "{text}"
        );
    }
}

#[test]
fn the_tuner_and_the_timeline_are_a_matter_of_the_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let (timeline, log) = (
        folder.path().join("timeline.json"),
        folder.path().join("tuner.csv"),
    );
    let variables: [(&str, &Path); 3] = [
        ("HOROVOD_TIMELINE", &timeline),
        ("HOROVOD_AUTOTUNE", Path::new("1")),
        ("HOROVOD_AUTOTUNE_LOG", &log),
    ];
    train(2, &variables);

    let events = std::fs::read(&timeline).expect("a timeline");
    let events: Vec<serde_json::Value> = serde_json::from_slice(&events).expect("a list of events");
    let allreduces = events
        .iter()
        .filter(|event| event["name"] == "ALLREDUCE")
        .count();
    let tensors: Vec<_> = events
        .iter()
        .filter_map(|event| event["args"]["name"].as_str())
        .collect();
    assert!(tensors.contains(&"layer0.weight"), "{tensors:?}");
    // 6 gradients in each of 10 x 46 steps, the loss and the accuracy of each epoch, and the final
    // comparison.
    assert_eq!(allreduces, 6 * 460 + 2 * 10 + 2);

    let csv = std::fs::read_to_string(&log).expect("a log");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let phase = rows[0]
        .iter()
        .position(|&column| column == "phase")
        .expect("phases");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
    assert!(rows.iter().any(|row| row[phase] == "default"), "{csv}");
}
