//! Reports on the timelines in `tests/fixtures`.

use super::outputs::check_format;
use super::*;
use crate::support::fixture::fixture;

#[test]
fn horovods_timeline_of_four_ranks() {
    let path = fixture("horovod-timeline.4-ranks.json");
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        path.to_str().unwrap(),
        "--json",
        "r.json",
        "--merge",
        "m.json",
    ];
    let text = stdout(&timeline(folder.path(), &arguments));
    for part in ["Parts of a step", "MPI_ALLREDUCE"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let report = json(&folder.path().join("r.json"));
    assert_eq!(report["sources"][0]["format"], "horovod");
    let merged = json(&folder.path().join("m.json"));
    let events = merged["traceEvents"].as_array().unwrap();
    check_format(events);
    // As many bars as the file has begin events; a bar without an end is not counted.
    let file = std::fs::read_to_string(&path).unwrap();
    for name in ["MPI_ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER", "ALLREDUCE"] {
        let bar = |event: &&Value| event["ph"] == "X" && event["name"] == name;
        let bars = events.iter().filter(bar).count();
        let began = file.matches(&format!("\"name\": \"{name}\"")).count();
        assert!(
            bars > 0 && (began.saturating_sub(20)..=began).contains(&bars),
            "{name}: {bars} of {began}"
        );
    }
}

#[test]
fn byteps_and_the_profiler() {
    for name in ["byteps-comm.non-root.json", "kineto-ddp.rank0.json.gz"] {
        let path = fixture(name);
        let folder = tempfile::tempdir().unwrap();
        let path = path.to_str().unwrap();
        let outputs = [
            "--json", "r.json", "--csv", "r.csv", "--html", "r.html", "--merge", "m.json",
        ];
        let arguments: Vec<&str> = [path].into_iter().chain(outputs).collect();
        stdout(&timeline(folder.path(), &arguments));
        let report = json(&folder.path().join("r.json"));
        assert!(
            report["sources"][0]["operations"].as_u64().unwrap() > 0,
            "{name}"
        );
        let merged = json(&folder.path().join("m.json"));
        let events = merged["traceEvents"].as_array().unwrap();
        check_format(events);
        assert!(events.iter().any(|event| event["ph"] == "X"), "{name}");
    }
}
