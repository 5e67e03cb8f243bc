//! Tests of the report as text, JSON, CSV and HTML.

use std::process::Stdio;

use super::trace::Job;
use super::*;

#[test]
fn a_run_of_two_ranks_as_text() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let text = stdout(&timeline(folder.path(), &["t.json", "t.rank1.json"]));
    for part in [
        "t.json",
        "Ronde, rank 0, 2023-11-14T22:13:20.000Z:",
        "t.rank1.json",
        "12 steps on rank 0 of 2",
        "Parts of a step",
        "Stragglers",
        "Tensor fusion",
        "fusion threshold 128 MiB",
        "SHM_ALLREDUCE",
        "grad.3",
    ] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    // The folder gives the same report as its files.
    let of_folder = stdout(&timeline(folder.path(), &["."]));
    let behind_files = |text: &str| text.split_once("\n\n").map(|(_, rest)| rest.to_owned());
    assert_eq!(behind_files(&of_folder), behind_files(&text));
}

#[test]
fn without_unicode_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let mut command = ronde(folder.path());
    command.env("LC_ALL", "C").args(["timeline", "t.json"]);
    let text = stdout(&command.output().unwrap());
    assert!(text.is_ascii() && text.contains("median us"), "{text}");
}

#[test]
fn json_has_the_numbers_and_is_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let text = stdout(&timeline(
        folder.path(),
        &["t.json", "t.rank1.json", "--json", "r.json"],
    ));
    let report = json(&folder.path().join("r.json"));
    assert_eq!(report["ronde_timeline"], 1);
    assert_eq!(report["ranks"], 2);
    assert_eq!(report["sources"][0]["operations"], 48);
    assert_eq!(report["sources"][0]["tensors"], 4);
    assert_eq!(report["sources"][1]["rank"], 1);
    let step_ms = report["steady"]["step_ms"]["p50"].as_f64().unwrap();
    assert!((step_ms - 20.0).abs() < 1e-6, "{step_ms}");
    // Rank 1 is always last, by half a millisecond.
    let late = &report["stragglers"]["ranks"][1];
    assert_eq!(late["last_share"], 1.0);
    assert!(
        (late["lag_ms"]["p50"].as_f64().unwrap() - 0.5).abs() < 1e-6,
        "{late}"
    );

    let printed = timeline(folder.path(), &["t.json", "t.rank1.json", "--json", "-"]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(printed, report);
    assert_eq!(stdout(&timeline(folder.path(), &["r.json"])), text);
}

#[test]
fn csv_has_a_row_for_each_step() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let csv = texts(&timeline(folder.path(), &["t.json", "--csv", "-"])).0;
    let mut lines = csv.lines();
    let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(heading[..3], ["step", "began_ms", "ms"]);
    let rows: Vec<Vec<f64>> = lines
        .map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.len(), 12);
    let bytes = heading.iter().position(|name| *name == "bytes").unwrap();
    let payload = 4.0 * 4.0 * trace::ELEMENTS as f64;
    assert!(rows.iter().all(|row| row[bytes] == payload), "{csv}");
}

#[test]
fn the_page_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    stdout(&timeline(
        folder.path(),
        &["t.json", "t.rank1.json", "--html", "t.html"],
    ));
    let page = std::fs::read_to_string(folder.path().join("t.html")).unwrap();
    assert!(
        page.to_ascii_lowercase().starts_with("<!doctype html>"),
        "{page:.200}"
    );
    assert!(page.contains("t.rank1.json"));
}

#[test]
fn tables_are_as_long_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    // In the table of the longest operations.
    let rows = |arguments: &[&str]| {
        let text = stdout(&timeline(folder.path(), arguments));
        text.lines()
            .filter(|line| line.starts_with("  grad.") && line.contains("allreduce"))
            .count()
    };
    assert_eq!(rows(&["t.json"]), 4);
    assert_eq!(rows(&["t.json", "--tensors", "1"]), 1);
    assert_eq!(rows(&["t.json", "--tensors", "0"]), 0);
}

#[test]
fn a_window_of_steps_is_looked_at_alone() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let json = |steps: &str| -> Value {
        let output = timeline(folder.path(), &["t.json", "--steps", steps, "--json", "-"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let report = json("3..6");
    let indices: Vec<u64> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [3, 4, 5, 6]);
    assert_eq!(report["steady"]["first_step"], 3);
    assert_eq!(report["steady"]["steps"], 4);
    // Four tensors in each step, all of them known on both ranks.
    assert_eq!(report["stragglers"]["operations"], 16);
    assert_eq!(json("..")["steps"].as_array().unwrap().len(), 12);

    let run = |arguments: &[&str]| timeline(folder.path(), arguments);
    assert_fails(
        &run(&["t.json", "--steps", "12.."]),
        1,
        &["steps 12.. are", "12 steps were recorded"],
    );
    assert_eq!(run(&["t.json", "--steps", "6..3"]).status.code(), Some(2));
    stdout(&run(&["t.json", "--json", "r.json"]));
    assert_fails(
        &run(&["r.json", "--steps", "1..2"]),
        2,
        &["--steps", "the timelines themselves"],
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    for arguments in [&["t.json"][..], &["t.json", "--csv", "-"]] {
        let mut child = ronde(folder.path())
            .arg("timeline")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!texts(&output).1.contains("cannot"), "{output:?}");
    }
}

#[test]
fn help_shows_examples_and_columns() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout(&timeline(folder.path(), &["--help"]));
    for part in [
        "ronde timeline --compare A B",
        "Examples:",
        "--merge <FILE>",
        "NAME_total_ms",
    ] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let man = stdout(&ronde(folder.path()).arg("man").output().unwrap());
    assert!(man.contains("timeline"), "{man}");
}
