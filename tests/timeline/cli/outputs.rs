//! Tests of the profile and the merged trace.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;

use super::trace::{CYCLE_US, ELEMENTS, GAP_US, Job, MOVE_US};
use super::*;
use crate::support::program::{by_default, until};

#[test]
fn a_profile_runs_in_the_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::default();
    job.record(folder.path());
    stdout(&timeline(
        folder.path(),
        &["t.json", "t.rank1.json", "--profile", "p.json"],
    ));
    let profile = json(&folder.path().join("p.json"));
    assert_eq!(profile["ronde_profile"], 1);
    assert_eq!(profile["np"], 2);
    assert_eq!(profile["cycle_time_ms"], 1.0);
    assert_eq!(profile["fusion_threshold_bytes"], 128 << 20);
    let tensors = profile["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 4);
    let ready = |tensor: &Value, rank: usize| tensor["ready_us_by_rank"][rank].as_f64().unwrap();
    for (index, tensor) in tensors.iter().enumerate() {
        assert_eq!(tensor["name"], format!("grad.{index}"));
        assert_eq!(
            (&tensor["op"], &tensor["dtype"]),
            (&"allreduce".into(), &"float32".into())
        );
        assert_eq!(tensor["elements"], ELEMENTS);
        assert_eq!(tensor["ready_us"], ready(tensor, 0));
        assert!(
            (ready(tensor, 1) - ready(tensor, 0) - job.late_us as f64).abs() < 1.0,
            "{tensor}"
        );
        let after_first = ready(tensor, 0) - ready(&tensors[0], 0);
        assert!(
            (after_first - index as f64 * GAP_US as f64).abs() < 1.0,
            "{tensor}"
        );
    }
    assert!(
        profile["step_ms"]
            .as_f64()
            .is_some_and(|ms| (ms - 20.0).abs() < 1e-6)
    );

    let bench = ronde(folder.path())
        .args("bench --profile p.json -np 1 --steps 3 --json b.json".split(' '))
        .output()
        .unwrap();
    stdout(&bench);
    let result = json(&folder.path().join("b.json"));
    assert_eq!(result["tensors"], 4);
    assert_eq!(result["bytes_per_step"], 4 * 4 * ELEMENTS);
}

#[test]
fn ranks_are_merged_on_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::default();
    job.record(folder.path());
    stdout(&timeline(
        folder.path(),
        &["t.json", "t.rank1.json", "--merge", "m.json"],
    ));
    let merged = json(&folder.path().join("m.json"));
    let events = merged["traceEvents"].as_array().unwrap();
    check_format(events);

    // Every bar of both files: negotiation, operation and activity of 4 tensors in 12 steps on 2
    // ranks.
    let bars: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(bars.len(), 3 * 4 * 12 * 2);
    let of = |name: &str, pid: u64| -> Vec<(String, f64)> {
        let mut of: Vec<(String, f64)> = bars
            .iter()
            .filter(|bar| bar["name"] == name && bar["pid"] == pid)
            .map(|bar| (thread(events, bar), bar["ts"].as_f64().unwrap()))
            .collect();
        of.sort_by(|left, right| left.1.total_cmp(&right.1));
        of
    };
    // A tensor's operation has the same time on both ranks, although the zero of rank 1's file is
    // later.
    let (here, there) = (of("ALLREDUCE", 0), of("ALLREDUCE", 1));
    assert_eq!(here.len(), 48);
    assert_eq!(here, there);
    assert_eq!(of("SHM_ALLREDUCE", 0), here);
    assert_eq!(
        here[0],
        ("grad.0".to_owned(), (job.late_us + CYCLE_US) as f64)
    );
    // Rank 1 has it ready later.
    let (here, there) = (of("NEGOTIATE_ALLREDUCE", 0), of("NEGOTIATE_ALLREDUCE", 1));
    assert!(
        here.iter()
            .zip(&there)
            .all(|(here, there)| there.1 - here.1 == job.late_us as f64)
    );
    let moved = bars.iter().find(|bar| bar["name"] == "ALLREDUCE").unwrap();
    assert_eq!(moved["dur"], MOVE_US);
    assert_eq!(moved["args"]["dtype"], "float32");
    assert_eq!(moved["args"]["elements"], ELEMENTS);
    // Ready times of both ranks on rank 0, its own on rank 1; step marks on both.
    let instants = |name: &str, pid: u64| {
        let instant =
            |event: &&Value| event["ph"] == "i" && event["name"] == name && event["pid"] == pid;
        events.iter().filter(instant).count()
    };
    assert_eq!(
        [instants("rank 0 ready", 0), instants("rank 1 ready", 0)],
        [48, 48]
    );
    assert_eq!(
        [instants("rank 0 ready", 1), instants("rank 1 ready", 1)],
        [0, 48]
    );
    assert_eq!([instants("STEP", 0), instants("STEP", 1)], [12, 12]);

    // The merged trace is for viewers: the analysis needs the original files.
    assert_fails(&timeline(folder.path(), &["m.json"]), 1, &["m.json"]);
}

/// Returns the name of an event's thread.
fn thread(events: &[Value], of: &Value) -> String {
    let named = |event: &&Value| {
        event["name"] == "thread_name" && event["pid"] == of["pid"] && event["tid"] == of["tid"]
    };
    let event = events.iter().find(named).expect("every thread has a name");
    event["args"]["name"].as_str().unwrap().to_owned()
}

/// Checks the format that viewers expect: fields of the right type, processes and threads with
/// names, nested bars.
pub(crate) fn check_format(events: &[Value]) {
    let (mut processes, mut threads) = (BTreeSet::new(), BTreeSet::new());
    let mut bars: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let number = |key: &str| {
            event[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key} in {event}"))
        };
        let time = |key: &str| {
            event[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{key} in {event}"))
        };
        let (pid, tid) = (number("pid"), number("tid"));
        assert!(event["name"].is_string(), "{event}");
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "process_name" => assert!(processes.insert(pid), "{event}"),
            "M" if event["name"] == "thread_name" => assert!(threads.insert((pid, tid)), "{event}"),
            "M" => {}
            "X" => {
                let (began, ended) = (time("ts"), time("ts") + time("dur"));
                assert!(began >= 0.0 && ended >= began, "{event}");
                bars.entry((pid, tid)).or_default().push((began, ended));
            }
            "i" => assert!(
                time("ts").is_finite() && ["t", "p"].contains(&event["s"].as_str().unwrap())
            ),
            other => panic!("{other}: {event}"),
        }
        assert!(processes.contains(&pid), "{event}");
        assert!(
            event["ph"] != "X" || threads.contains(&(pid, tid)),
            "{event}"
        );
    }
    bars.into_iter()
        .for_each(|(thread, bars)| check_nesting(thread, bars));
}

/// Checks that two bars of a thread overlap only if one contains the other.
fn check_nesting(thread: (u64, u64), mut bars: Vec<(f64, f64)>) {
    // Sums of microseconds with three decimals have rounding errors.
    const ROUNDING_US: f64 = 0.0015;
    bars.sort_by(|left, right| left.0.total_cmp(&right.0).then(right.1.total_cmp(&left.1)));
    let mut open: Vec<f64> = Vec::new();
    for (began, ended) in bars {
        while open.last().is_some_and(|end| *end <= began + ROUNDING_US) {
            open.pop();
        }
        assert!(
            open.last().is_none_or(|end| ended <= end + ROUNDING_US),
            "{thread:?}: {began} to {ended} in {open:?}"
        );
        open.push(ended);
    }
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut command = ronde(folder.path());
        command.args(["timeline", "pipe", "--json", "o.json", "--html", "o.html"]);
        let mut child = by_default("INT,TERM", &command).spawn().unwrap();
        // The outputs are created first; then the program waits for the pipe, which cannot be
        // opened before.
        let mut options = std::fs::OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        let writer = until(|| options.open(&pipe).ok());
        let entries = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(entries(), 3);
        let pid = child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.unwrap().success());
        let ended = until(|| child.try_wait().unwrap());
        assert_eq!(ended.signal(), Some(number));
        assert_eq!(entries(), 1);
        drop(writer);
    }
}
