//! Recordings of every rank in both formats, and their merged views, profiles and BytePS folders.

use std::collections::HashMap;

use super::*;

fn json(path: &Path) -> Value {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts the requirements of viewers for a list of trace events: known phases, times that are
/// numbers, nested bars.
fn check_trace_events(events: &[Value]) {
    let mut open: HashMap<(String, String), Vec<f64>> = HashMap::new();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        let place = (event["pid"].to_string(), event["tid"].to_string());
        match phase {
            "M" => assert!(
                event["args"].is_object() && event["name"].is_string(),
                "{event}"
            ),
            "B" => open.entry(place).or_default().push(number(&event["ts"])),
            "E" => {
                let began = open.get_mut(&place).and_then(Vec::pop);
                assert!(
                    began.is_some_and(|began| began <= number(&event["ts"])),
                    "{event}"
                );
            }
            "X" => assert!(
                number(&event["ts"]) >= 0.0 && number(&event["dur"]) >= 0.0,
                "{event}"
            ),
            "i" | "I" => {
                let scope = event["s"].as_str().unwrap_or("t");
                assert!(
                    ["g", "p", "t"].contains(&scope) && event["ts"].is_number(),
                    "{event}"
                );
            }
            other => panic!("{other}: {event}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "bars without an end");
}

#[test]
fn every_rank_records_and_the_files_make_one_view_and_a_profile() {
    let bench = Bench::new();
    let variables = [
        ("HOROVOD_TIMELINE", "t.json"),
        ("RONDE_TIMELINE_ALL_RANKS", "1"),
    ];
    bench.run("--steps 12 --compute-ms 10 --link 200,2.5", &variables);
    let files = [bench.path("t.json"), bench.path("t.rank1.json")];
    for file in &files {
        check_trace_events(json(file).as_array().unwrap());
    }
    let [merged, profile, page] = ["m.json", "p.json", "t.html"].map(|name| bench.path(name));
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let outputs = [
        ("--merge", &merged),
        ("--profile", &profile),
        ("--html", &page),
    ];
    let arguments: Vec<&str> = outputs
        .iter()
        .flat_map(|(flag, path)| [*flag, path.to_str().unwrap()])
        .collect();
    let report = analysis(&paths, &arguments);
    assert_eq!(report["ranks"], 2);
    let ranks: Vec<&Value> = report["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| &source["rank"])
        .collect();
    assert_eq!(ranks, [0, 1]);

    let view = json(&merged);
    let events = view["traceEvents"].as_array().or(view.as_array()).unwrap();
    check_trace_events(events);
    for rank in [0, 1] {
        assert!(
            events
                .iter()
                .any(|event| event["pid"] == rank && event["ph"] == "X"),
            "{rank}"
        );
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("<html"));

    let tensors = json(&profile)["tensors"].as_array().unwrap().clone();
    assert_eq!(tensors.len(), 40);
    let elements: u64 = tensors
        .iter()
        .filter_map(|tensor| tensor["elements"].as_u64())
        .sum();
    assert_eq!(elements, 20 * 100_000);
    let ready: Vec<f64> = tensors
        .iter()
        .map(|tensor| number(&tensor["ready_us"]))
        .collect();
    assert!(ready.is_sorted(), "{ready:?}");
    // The last tensor is ready at the end of the simulated backward pass, for which a busy machine
    // takes longer than its 10 ms.
    assert!((9_000.0..500_000.0).contains(&ready[39]), "{ready:?}");
    let again = ronde()
        .args(["bench", "-np", "2", "--steps", "3", "--profile"])
        .arg(&profile)
        .output()
        .unwrap();
    assert!(success(&again).contains("40 tensors"));
}

#[test]
fn byteps_folders_of_every_rank() {
    let bench = Bench::new();
    let variables = [
        ("BYTEPS_TRACE_ON", "1"),
        ("BYTEPS_TRACE_START_STEP", "5"),
        ("BYTEPS_TRACE_END_STEP", "10"),
        ("BYTEPS_TRACE_DIR", "tr"),
        ("HOROVOD_TIMELINE", "t.json.gz"),
    ];
    bench.run("--steps 12", &variables);
    for rank in 0..2 {
        let trace = json(&bench.path(&format!("tr/{rank}/comm.json")));
        assert_eq!(trace["displayTimeUnit"], "ms");
        let rows = trace["traceEvents"].as_array().unwrap();
        check_trace_events(rows);
        let totals = rows.iter().filter(|row| row["tid"] == "total");
        let mut count: HashMap<String, usize> = HashMap::new();
        for row in totals {
            assert_eq!(row["pid"], row["args"]["name"]);
            assert!(row["pid"].as_str().unwrap().starts_with("Comm."));
            *count.entry(row["pid"].to_string()).or_default() += 1;
        }
        let gradients: Vec<usize> = count
            .values()
            .copied()
            .filter(|&count| count == 6)
            .collect();
        assert_eq!(
            gradients.len(),
            40,
            "steps 5 to 10 of each gradient: {count:?}"
        );
    }
    let report = analysis(&[&bench.path("tr")], &[]);
    assert_eq!(report["ranks"], 2);
    assert_eq!(report["sources"][0]["format"], "byteps");
    assert!(
        !report["warnings"].to_string().contains("has no PUSH stage"),
        "no stage is missing"
    );
    let both = analysis(&[&bench.path("t.json.gz")], &[]);
    assert_eq!(both["sources"][0]["format"], "ronde");
}
