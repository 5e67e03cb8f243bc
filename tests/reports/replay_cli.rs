//! Tests of the command line of `ronde replay`: with profiles, with a recording that the test
//! makes, and with real recordings if they are available.

use std::path::Path;
use std::process::Output;

use crate::support::fixture::fixture;
use crate::support::output::{assert_failed, assert_stands_alone, stdout, unwrapped};
use crate::support::program::ronde;
use serde_json::Value;

/// Four tensors of 1 MB, ready together after 10 ms; a message takes 1 ms + 1 ms per MB, a cycle
/// 100 µs.
const PROFILE: &str = r#"{"ronde_profile": 1, "np": 2, "step_ms": 20.0, "cycle_time_ms": 1.0, "fusion_threshold_bytes": 0,
    "tensors": [
        {"name": "a", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "b", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "c", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "d", "dtype": "float32", "elements": 250000, "ready_us": 10000}],
    "costs": {"alpha_us": 1000, "us_per_mib": 1048.576, "negotiate_cached": 100, "negotiate_uncached": 100}}"#;

fn replay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = ronde();
    command.current_dir(folder).env("LC_ALL", "C.UTF-8");
    command.arg("replay").args(arguments).output().unwrap()
}

fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    let err = assert_failed(output, code, parts);
    assert!(err.starts_with("ronde: replay: "), "{err}");
}

/// Creates a folder with the profile.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.json"), PROFILE).unwrap();
    folder
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn cell(outlook: &Value, fusion_bytes: u64, cycle_ms: f64) -> f64 {
    let cells = outlook["targets"][0]["cells"].as_array().unwrap();
    let found = cells.iter().find(|cell| {
        cell["fusion_threshold_bytes"].as_u64() == Some(fusion_bytes)
            && cell["cycle_time_ms"].as_f64() == Some(cycle_ms)
    });
    found.unwrap()["step_ms"].as_f64().unwrap()
}

#[test]
fn fusing_four_messages_saves_three_latencies() {
    let folder = folder();
    let arguments = [
        "p.json",
        "--fusion-mb",
        "0,64",
        "--cycle-ms",
        "1",
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--html",
        "r.html",
    ];
    let text = unwrapped(&stdout(&replay(folder.path(), &arguments)));
    for part in [
        "4 tensors of 3.81 MiB a step, 2 ranks, hosts unknown (predicted as on 1 host)",
        "step 20.0 ms with fusion 0 MiB, cycle 1 ms",
        "20.0+",
        "HOROVOD_FUSION_THRESHOLD=67108864 HOROVOD_CYCLE_TIME=1",
    ] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let outlook = json(&folder.path().join("r.json"));
    // The recorded setting is predicted exactly, with the uncertainty of a step time in a profile.
    // The other setting saves 3 ms, within the uncertainty of the costs.
    assert!((cell(&outlook, 0, 1.0) - 20.0).abs() < 1e-9, "{outlook}");
    let current = &outlook["targets"][0]["current"];
    let [low, high] = ["low_ms", "high_ms"].map(|end| current[end].as_f64().unwrap());
    // The limits are at Φ⁻¹(2.5 / 24) = −1.2576 standard deviations of 1 %.
    assert!(
        (low - 19.748).abs() < 1e-3 && (high - 20.252).abs() < 1e-3,
        "{current}"
    );
    assert!(
        (cell(&outlook, 64 << 20, 1.0) - 17.0).abs() < 0.5,
        "{outlook}"
    );
    assert_eq!(
        outlook["targets"][0]["best"]["fusion_threshold_bytes"],
        64 << 20
    );
    let change = &outlook["targets"][0]["change"];
    assert!(
        change["low"].as_f64() < change["median"].as_f64() && change["high"].as_f64() < Some(0.0),
        "{change}"
    );
    let csv = std::fs::read_to_string(folder.path().join("r.csv")).unwrap();
    let columns = csv.lines().next().unwrap().split(',').count();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(
        csv.lines().all(|line| line.split(',').count() == columns),
        "{csv}"
    );
    assert_eq!(
        csv.lines().filter(|line| line.ends_with(",1")).count(),
        1,
        "{csv}"
    );
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert_stands_alone(&page);
    assert!(
        page.contains("<td class=\"n\">20.0+</td>") && page.contains("id=\"map-0-0\""),
        "{page}"
    );
    assert!(page.contains("How to read this page") && page.contains("<nav"));
}

/// Without the settings in force there is nothing to compare with: no output has a best setting.
#[test]
fn what_is_withheld_is_in_no_output() {
    let folder = folder();
    let unknown = PROFILE.replace("\"cycle_time_ms\": 1.0, \"fusion_threshold_bytes\": 0,", "");
    std::fs::write(folder.path().join("p.json"), unknown).unwrap();
    let arguments = [
        "p.json",
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--html",
        "r.html",
        "--ranks",
        "2,4",
        "--ranks-per-host",
        "4",
    ];
    let text = unwrapped(&stdout(&replay(folder.path(), &arguments)));
    let reason = "No recommendation: the recording does not state the fusion threshold and the cycle time in force";
    assert!(
        text.contains(reason) && !text.contains("HOROVOD_"),
        "{text}"
    );
    let outlook = json(&folder.path().join("r.json"));
    assert_eq!(outlook["withheld"]["reason"], "unknown_settings");
    assert_eq!(outlook["unknown_settings"].as_array().unwrap().len(), 2);
    for at in outlook["targets"].as_array().unwrap() {
        for field in ["best", "change", "flat", "hierarchical", "efficiency_best"] {
            assert!(at.get(field).is_none(), "{field}: {at}");
        }
        assert!(at["current"]["fusion_threshold_bytes"].is_null());
        assert!(at["current"]["cycle_time_ms"].is_null() && at["cells"].is_array());
    }
    let csv = std::fs::read_to_string(folder.path().join("r.csv")).unwrap();
    let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    assert!(
        columns.contains(&"current") && !columns.contains(&"best"),
        "{columns:?}"
    );
    assert!(
        csv.lines()
            .all(|line| line.split(',').count() == columns.len()),
        "{csv}"
    );
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("No recommendation") && !page.contains("star in charts"));
    assert!(!page.contains("the best setting"), "no curve of it");
}

#[test]
fn a_profile_with_an_impossible_number_of_ranks_is_refused() {
    let folder = folder();
    for np in ["0", "1000000000"] {
        let profile = PROFILE.replace("\"np\": 2", &format!("\"np\": {np}"));
        std::fs::write(folder.path().join("np.json"), profile).unwrap();
        for command in [
            &["replay", "np.json"][..],
            &["bench", "--profile", "np.json", "-np", "2"],
            &["sweep", "--replay", "np.json", "--out", "sweep"],
        ] {
            let output = ronde().current_dir(folder.path()).args(command).output();
            let output = output.unwrap();
            let parts = ["np.json", &format!("np is {np}; give the number of ranks")];
            assert_failed(&output, output.status.code().unwrap().max(1), &parts);
            assert!(output.stdout.is_empty(), "{command:?}");
        }
    }
}

#[test]
fn other_networks_and_more_ranks() {
    let folder = folder();
    let arguments = [
        "p.json",
        "--fusion-mb",
        "0,64",
        "--cycle-ms",
        "1",
        "--ranks",
        "4,16",
        "--ranks-per-host",
        "4",
        "--network",
        "1gbe,ib-hdr",
        "--json",
        "r.json",
        "--csv",
        "-",
        "--html",
        "r.html",
    ];
    let csv = stdout(&replay(folder.path(), &arguments));
    // On one host there are no hierarchical settings: two settings there, four on four hosts, for
    // two networks.
    assert_eq!(csv.lines().count(), 1 + 2 * (2 + 4), "{csv}");
    let outlook = json(&folder.path().join("r.json"));
    let at = |index: usize| &outlook["targets"][index];
    let step = |index: usize| at(index)["best"]["step_ms"].as_f64().unwrap();
    assert_eq!(
        (&at(1)["ranks"], &at(1)["hosts"], &at(1)["network"]),
        (&16.into(), &4.into(), &"1gbe".into())
    );
    // 4 MB at 0.117 GB/s, 15/8 times: at least 64 ms, once. InfiniBand is two hundred times as
    // fast.
    assert!(step(1) > 50.0 && step(3) < 30.0, "{outlook}");
    assert!(
        at(1)["efficiency_best"].as_f64().unwrap() < at(3)["efficiency_best"].as_f64().unwrap()
    );
    assert!(at(1)["flat"].is_object() && at(1)["hierarchical"].is_object());
    let assumed = at(1)["assumptions"].to_string();
    assert!(
        assumed.contains("60 µs a hop, 0.117 GB/s") && assumed.contains("use a ring"),
        "{assumed}"
    );
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(
        page.contains("Step time over ranks")
            && page.contains("id=\"curve-0\"")
            && page.contains("id=\"curve-1\"")
    );
    let table = stdout(&replay(folder.path(), &arguments[..11]));
    assert!(
        table.contains("Other networks and numbers of ranks")
            && table.contains("Assumptions")
            && table.contains("ib-hdr"),
        "{table}"
    );
    // With two numbers of ranks on two networks, each text appears once.
    for once in [
        "The recording is of 2 ranks",
        "Each rank does the same work",
        "allreduces use a ring",
    ] {
        assert_eq!(unwrapped(&table).matches(once).count(), 1, "{table}");
    }
    // Of a recording with hierarchical allreduces only such are predicted, as they were recorded.
    let hierarchical = PROFILE.replacen('{', r#"{"is_hierarchical": true, "#, 1);
    std::fs::write(folder.path().join("p.json"), hierarchical).unwrap();
    let refused = ["--ranks", "recorded as hierarchical ones"];
    assert_fails(&replay(folder.path(), &arguments), 2, &refused);
    let settings = [&arguments[..5], &["--csv", "-"]].concat();
    let output = replay(folder.path(), &settings);
    let csv = stdout(&output);
    let column = |line: &str| line.split(',').nth(3).map(str::to_owned);
    let columns: Vec<_> = csv.lines().filter_map(column).collect();
    assert_eq!(columns, ["hierarchical_allreduce", "1", "1"], "{csv}");
    let warned = unwrapped(&String::from_utf8_lossy(&output.stderr));
    assert!(warned.contains("recorded as hierarchical ones"), "{warned}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = folder();
    let run = |arguments: &[&str]| replay(folder.path(), arguments);
    assert_fails(
        &run(&["p.json", "--ranks", "16"]),
        2,
        &["8 hosts of 16 ranks", "--network 25gbe"],
    );
    assert_fails(&run(&["p.json", "--json", "p.json"]), 2, &["is an input"]);
    assert_fails(
        &run(&["p.json", "--json", "x", "--csv", "x"]),
        2,
        &["written twice"],
    );
    assert_fails(
        &run(&["p.json", "--steps", "1..2"]),
        2,
        &["--steps needs the timelines"],
    );
    assert_fails(&run(&["none.json"]), 1, &["none.json"]);
    let many: Vec<String> = (1..=1200).map(|ranks| ranks.to_string()).collect();
    let many = many.join(",");
    let arguments = [
        "p.json",
        "--ranks",
        &many,
        "--ranks-per-host",
        "10000",
        "--fusion-mb",
        "1..64:64",
    ];
    assert_fails(&run(&arguments), 2, &["too many"]);
    std::fs::write(
        folder.path().join("old.json"),
        PROFILE.replace("\"ronde_profile\": 1", "\"ronde_profile\": 7"),
    )
    .unwrap();
    assert_fails(
        &run(&["old.json"]),
        1,
        &["old.json", "7; this ronde reads 1"],
    );
    std::fs::write(folder.path().join("cut.json"), &PROFILE[..200]).unwrap();
    assert_fails(&run(&["cut.json"]), 1, &["cut.json", "line 4"]);
    // Errors reported by clap.
    for (arguments, part) in [
        (
            ["p.json", "--network", "25gbee"],
            "`25gbee` is not a network",
        ),
        (["p.json", "--fusion-mb", "4..1"], "in order"),
        (["p.json", "--ranks", "0"], "from 1 to 10000"),
        (["p.json", "--cycle-ms", "1,x"], "`x` is not a number"),
    ] {
        let output = run(&arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && text.contains(part),
            "{text}"
        );
    }
}

/// Compares the replay of a recorded job with that of its profile.
#[test]
fn a_recording_and_its_profile_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = ronde();
    bench
        .current_dir(folder.path())
        .env("HOROVOD_TIMELINE", "t.json");
    bench.args([
        "bench",
        "-np",
        "2",
        "--model",
        "many-small",
        "--compute-ms",
        "20",
        "--link",
        "200,1",
        "--steps",
        "12",
    ]);
    stdout(&bench.output().unwrap());
    let mut timeline = ronde();
    timeline.current_dir(folder.path()).args([
        "timeline",
        "t.json",
        "--profile",
        "p.json",
        "--json",
        "report.json",
    ]);
    stdout(&timeline.output().unwrap());
    let grid = ["--fusion-mb", "0,8", "--cycle-ms", "1", "--json"];
    let predicted = |input: &str, output: &str| {
        let arguments: Vec<&str> = [input].into_iter().chain(grid).chain([output]).collect();
        stdout(&replay(folder.path(), &arguments));
        json(&folder.path().join(output))
    };
    let (of_timeline, of_profile) = (predicted("t.json", "a.json"), predicted("p.json", "b.json"));
    assert_eq!(of_timeline["tensors"], 1000);
    // Except for the last digit, which JSON may lose.
    for fusion_bytes in [0, 8 << 20] {
        let (a, b) = (
            cell(&of_timeline, fusion_bytes, 1.0),
            cell(&of_profile, fusion_bytes, 1.0),
        );
        assert!(a > 0.0 && (a / b - 1.0).abs() < 1e-9, "{a} {b}");
    }
    assert_eq!(
        of_timeline["targets"][0]["best"]["cycle_time_ms"],
        of_profile["targets"][0]["best"]["cycle_time_ms"]
    );
    // A shaped link is not shared memory, and its two ranks were not on two hosts.
    for outlook in [&of_timeline, &of_profile] {
        assert_eq!(
            (&outlook["ranks_per_host"], &outlook["hosts_are"]),
            (&1.into(), &"shaped".into())
        );
    }
    let told = unwrapped(&stdout(&replay(folder.path(), &["p.json"])));
    assert!(
        told.contains("2 ranks on 1 host, taken for 2 hosts"),
        "{told}"
    );
    let current = &of_timeline["targets"][0]["current"];
    assert!(
        current["low_ms"].as_f64() < current["step_ms"].as_f64(),
        "{current}"
    );
    assert_fails(
        &replay(folder.path(), &["report.json"]),
        2,
        &["needs the timelines themselves"],
    );
}

#[test]
fn timelines_of_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixture("horovod-timeline.4-ranks.json");
    let arguments = [path.to_str().unwrap(), "--fusion-mb", "0,64"];
    let text = unwrapped(&stdout(&replay(folder.path(), &arguments)));
    assert!(
        text.contains("of 82.2 MiB a step, 4 ranks, hosts unknown (predicted as on 4 hosts)")
            && text.contains("Predicted step"),
        "{text}"
    );
    let path = fixture("byteps-comm.non-root.json");
    let output = replay(folder.path(), &[path.to_str().unwrap()]);
    assert_fails(&output, 1, &["cannot be replayed", "HOROVOD_TIMELINE"]);
    let path = fixture("kineto-ddp.rank0.json.gz");
    let text = unwrapped(&stdout(&replay(folder.path(), &[path.to_str().unwrap()])));
    assert!(
        text.contains("from its tensors only") && text.contains("Predicted step"),
        "{text}"
    );
}
