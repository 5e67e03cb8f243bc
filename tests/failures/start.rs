//! Errors of jobs that cannot start: wrong variables, paths, versions, memory.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn ronde(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ronde"))
        .args(args)
        .envs(env.iter().copied())
        .output()
        .expect("ronde starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const BENCH: [&str; 7] = ["bench", "--model", "many-small", "-np", "2", "--steps", "2"];

#[track_caller]
fn check_fails(args: &[&str], env: &[(&str, &str)], parts: &[&str]) {
    let began = Instant::now();
    let output = ronde(args, env);
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn knobs_out_of_range_name_variable_value_and_range() {
    check_fails(
        &BENCH,
        &[("HOROVOD_FUSION_THRESHOLD", "lots")],
        &["HOROVOD_FUSION_THRESHOLD", "lots"],
    );
    check_fails(
        &BENCH,
        &[("HOROVOD_CYCLE_TIME", "-1")],
        &["HOROVOD_CYCLE_TIME", "-1", "ms"],
    );
}

#[test]
fn contradicting_rank_variables_name_both() {
    let env = [
        ("HOROVOD_RANK", "1"),
        ("HOROVOD_SIZE", "4"),
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
    ];
    check_fails(
        &["bench", "--model", "many-small"],
        &env,
        &["HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"],
    );
}

#[test]
fn paths_that_cannot_be_written_are_named_at_init() {
    check_fails(
        &BENCH,
        &[("HOROVOD_TIMELINE", "/no/such/folder/t.json")],
        &["/no/such/folder/t.json", "HOROVOD_TIMELINE"],
    );
    let env = [
        ("HOROVOD_AUTOTUNE", "1"),
        ("HOROVOD_AUTOTUNE_LOG", "/no/such/folder/a.csv"),
    ];
    check_fails(
        &BENCH,
        &env,
        &["/no/such/folder/a.csv", "HOROVOD_AUTOTUNE_LOG"],
    );
}

#[test]
fn unknown_models_and_bad_profiles_are_named() {
    check_fails(
        &["bench", "--model", "resnet51", "-np", "2"],
        &[],
        &["resnet51", "resnet50"],
    );
    check_fails(
        &["bench", "--profile", "/no/such/file", "-np", "2"],
        &[],
        &["/no/such/file"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "").expect("written");
    let path = empty.to_str().expect("text");
    check_fails(&["bench", "--profile", path, "-np", "2"], &[], &[path]);
    std::fs::write(&empty, "10\nmany\n").expect("written");
    check_fails(
        &["bench", "--profile", path, "-np", "2"],
        &[],
        &[path, "line 2", "many"],
    );
}

#[test]
fn impossible_numbers_of_ranks_are_refused() {
    check_fails(
        &["bench", "--model", "many-small", "-np", "0"],
        &[],
        &["from 1 to"],
    );
    check_fails(&["run", "-np", "65", "--", "true"], &[], &["65", "64"]);
}

#[test]
fn too_little_memory_says_how_much_is_needed() {
    let program = env!("CARGO_BIN_EXE_ronde");
    // Sixteen ranks need 32 MiB of rings, in addition to the mappings of any process.
    let script = format!(
        "ulimit -v 64000; exec {program} run -np 16 -- {program} bench --model many-small --steps 2"
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh starts");
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    for part in ["needs", "bytes of shared memory", "ulimit -v"] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn ranks_on_other_hosts_are_refused_in_one_sentence() {
    let env = [
        ("HOROVOD_RANK", "0"),
        ("HOROVOD_SIZE", "4"),
        ("HOROVOD_LOCAL_RANK", "0"),
        ("HOROVOD_LOCAL_SIZE", "2"),
    ];
    let plugins = [&env[..], &[("RONDE_MPI_PLUGINS", "/nonexistent")]].concat();
    let local = [&env[..], &[("RONDE_BACKEND", "local")]].concat();
    let bench = ["bench", "--model", "many-small"];
    check_fails(
        &bench,
        &plugins,
        &["4 ranks", "no plug-in for MPI", "/nonexistent"],
    );
    check_fails(&bench, &local, &["RONDE_BACKEND=local", "4 ranks"]);
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_timeout() {
    let job = format!("a-rank-that-never-comes-{}", std::process::id());
    let env = [
        ("HOROVOD_RANK", "0"),
        ("HOROVOD_SIZE", "2"),
        ("RONDE_JOB_ID", &job),
        ("HOROVOD_START_TIMEOUT", "1"),
    ];
    let named = "ranks [1] did not arrive within 1 s";
    check_fails(&["bench", "--model", "many-small"], &env, &[named]);
}

#[test]
fn timeline_and_autotune_log_of_a_run_are_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (timeline, log, json) = (path("t.json"), path("a.csv"), path("o.json"));
    let program = env!("CARGO_BIN_EXE_ronde");
    let env = [
        ("HOROVOD_TIMELINE", &timeline[..]),
        ("HOROVOD_AUTOTUNE", "1"),
        ("HOROVOD_AUTOTUNE_LOG", &log),
    ];
    let bench = [
        "bench",
        "--model",
        "many-small",
        "--link",
        "300,5",
        "--steps",
        "60",
        "--json",
        &json,
    ];
    let args = [
        &["run", "-np", "2", "--timeline-mark-cycles", "--", program][..],
        &bench,
    ]
    .concat();
    let output = ronde(&args, &env);
    assert!(output.status.success(), "{}", text(&output));

    let read = |path: &str| std::fs::read_to_string(path).expect("written");
    let events: Vec<serde_json::Value> =
        serde_json::from_str(&read(&timeline)).expect("the timeline is JSON");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert!(
        named("NEGOTIATE_ALLREDUCE") >= 60_000,
        "every tensor of every step"
    );
    assert!(named("SHM_ALLREDUCE") >= 60_000 && named("CYCLE_START") > 10);
    assert!(
        named("0") >= 60_000 && named("1") >= 60_000,
        "a tick of each rank, also for cached tensors"
    );
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(count("B"), count("E"));

    let csv = read(&log);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let horovod = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score";
    assert!(csv.starts_with(horovod), "{csv}");
    assert_eq!(
        (rows[1][5], rows[1][4], rows[1][7]),
        ("128", "1", "default"),
        "the default is measured first: {csv}"
    );
    assert_eq!(rows.last().expect("rows")[7], "best", "{csv}");

    let report: serde_json::Value = serde_json::from_str(&read(&json)).expect("JSON");
    assert_eq!(
        (&report["tensors"], &report["np"]),
        (&1000.into(), &2.into())
    );
    // How many depends on the verdict, if there is one by then.
    let steps = report["autotune"]["steps_active"].as_u64();
    assert!(steps.is_some_and(|steps| steps > 10), "{report}");
}

#[test]
fn the_documented_knobs_are_the_programs() {
    let documented =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/KNOBS.md"))
            .expect("docs");
    let output = ronde(&["knobs", "--markdown"], &[]);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(
        documented.ends_with(&table),
        "docs/KNOBS.md is not what `ronde knobs --markdown` prints; write it again"
    );
}
