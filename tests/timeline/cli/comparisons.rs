//! Comparisons of two runs, and of a series of runs.

use super::trace::Job;
use super::*;

#[test]
fn two_runs_are_compared_in_any_form() {
    let folder = tempfile::tempdir().unwrap();
    for (name, step_us) in [("a", 20_000), ("b", 30_000)] {
        let run = folder.path().join(name);
        std::fs::create_dir(&run).unwrap();
        let job = Job::default();
        Job { step_us, ..job }.record(&run);
    }
    stdout(&timeline(folder.path(), &["b", "--json", "b.json"]));
    let text = stdout(&timeline(folder.path(), &["--compare", "a", "b"]));
    assert!(
        text.contains("20.00") && text.contains("30.00") && text.contains("+50.0 %"),
        "{text}"
    );
    // A report gives the same comparison as the files that it was made from, and as the single
    // files.
    let of_report = stdout(&timeline(folder.path(), &["--compare", "a", "b.json"]));
    assert_eq!(of_report, text);
    let one_by_one = [
        "--compare",
        "a/t.json,a/t.rank1.json",
        "b.json",
        "--json",
        "c.json",
    ];
    assert_eq!(stdout(&timeline(folder.path(), &one_by_one)), text);
    let comparison = json(&folder.path().join("c.json"));
    let changes = comparison["changes"].as_array().unwrap();
    let step = changes
        .iter()
        .find(|change| change["group"] == "step" && change["unit"] == "ms")
        .unwrap();
    assert_eq!(
        (step["a"].as_f64(), step["b"].as_f64()),
        (Some(20.0), Some(30.0))
    );
}

#[test]
fn a_series_of_timelines_and_benchmarks() {
    let folder = tempfile::tempdir().unwrap();
    for (ranks, step_us) in [(1, 20_000), (2, 25_000)] {
        let job = Job {
            ranks,
            step_us,
            ..Job::default()
        };
        let run = folder.path().join(ranks.to_string());
        std::fs::create_dir(&run).unwrap();
        job.record(&run);
    }
    let text = stdout(&timeline(
        folder.path(),
        &["--scaling", "1", "2", "--json", "s.json"],
    ));
    assert!(text.contains("80 %") && text.contains("1.60"), "{text}");
    let series = json(&folder.path().join("s.json"));
    let rows = series["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1]["run"]["ranks"], 2);
    assert!((rows[1]["efficiency"].as_f64().unwrap() - 0.8).abs() < 1e-9);

    for np in ["1", "2"] {
        let json = format!("bench{np}.json");
        let bench = ronde(folder.path())
            .args([
                "bench",
                "--model",
                "many-small",
                "--steps",
                "5",
                "-np",
                np,
                "--json",
                &json,
            ])
            .output();
        stdout(&bench.unwrap());
    }
    let text = stdout(&timeline(
        folder.path(),
        &["--scaling", "bench2.json", "bench1.json"],
    ));
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("   ") && line.contains(".json"))
        .collect();
    // In order of ranks, not of the arguments.
    assert!(
        rows[0].contains("bench1.json") && rows[1].contains("bench2.json"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_compared_is_said() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let run = |arguments: &[&str]| timeline(folder.path(), arguments);
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("bench.json", r#"{"np": 2, "step_ms": {"p50": 1}}"#);
    assert_fails(
        &run(&["--compare", "t.json", "bench.json"]),
        1,
        &["bench.json", "--scaling"],
    );
    assert_fails(&run(&["bench.json"]), 1, &["bench.json", "--scaling"]);
    stdout(&run(&["t.json", "--profile", "p.json"]));
    assert_fails(
        &run(&["p.json"]),
        1,
        &["p.json holds no trace", "a profile of Ronde's"],
    );
    assert_fails(&run(&["--compare", "t.json", "no.json"]), 1, &["no.json"]);
    assert_fails(&run(&["--compare", "t.json", "a,b"]), 1, &["cannot open a"]);
    write("old.json", r#"{"ronde_timeline": 99}"#);
    assert_fails(
        &run(&["--compare", "t.json", "old.json"]),
        1,
        &["version 99"],
    );
    write("cut.json", "{\"ronde_timeline\": 1,\n \"sources\"");
    assert_fails(
        &run(&["--compare", "t.json", "cut.json"]),
        1,
        &["cut.json, line 2"],
    );
    for usage in [
        &["--compare", "t.json"][..],
        &["--compare", "t.json", "t.json", "t.json"],
        &["--compare", "t.json", "t.json", "--html", "x"],
        &["--scaling"],
        &["--scaling", "t.json", "--merge", "x"],
        &[],
    ] {
        let output = run(usage);
        assert_eq!(output.status.code(), Some(2), "{usage:?}: {output:?}");
    }
}
