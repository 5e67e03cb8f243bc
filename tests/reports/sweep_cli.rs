//! Tests of the command line of `ronde sweep`: complete sweeps of small jobs; interrupted, killed,
//! crashed and resumed sweeps; and invalid input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::output::{assert_failed, stdout, texts, unwrapped};
use crate::support::program::{by_default, ronde, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit of every wait, sufficient on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Creates a folder with a small job of three tensors.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.txt"), "1000\n70000\n3\n").unwrap();
    folder
}

/// Command `ronde sweep` in `folder` with `arguments`, split at spaces.
fn sweep(folder: &Path, arguments: &str) -> Command {
    let mut command = ronde();
    command.current_dir(folder).env("LC_ALL", "C.UTF-8");
    command.arg("sweep").args(arguments.split_whitespace());
    command
}

/// Sweep of twelve points and the default, about 200 ms each.
const LONG: &str = "--profile job.txt -np 2 --compute-ms 8 --fusion-mb 0,0.1,0.2 --cycle-ms 0.5,1.5,2,3 --repeats 1 --steps 20 \
                    --out out";

/// Line of sweep.csv, with the columns that the tests use.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    phase: String,
    block: u32,
    /// Ranks, threshold, cycle time and cache.
    point: [String; 4],
    status: String,
    steps: String,
    at_s: f64,
    reason: String,
}

impl Row {
    fn is_default(&self) -> bool {
        self.point[1..] == ["134217728", "1", "true"]
    }
}

/// Complete lines of sweep.csv in `folder`.
fn rows(folder: &Path) -> Vec<Row> {
    let text = fs::read_to_string(folder.join("sweep.csv")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let row = |line: &str| {
        let fields: Vec<&str> = line.splitn(15, ',').collect();
        Row {
            phase: fields[0].to_owned(),
            block: fields[1].parse().unwrap(),
            point: [2, 3, 4, 5].map(|index: usize| fields[index].to_owned()),
            status: fields[7].to_owned(),
            steps: fields[8].to_owned(),
            at_s: fields[13].parse().unwrap(),
            reason: fields[14].to_owned(),
        }
    };
    whole.lines().skip(1).map(row).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Running sweep, which is killed with the test if it does not end by itself.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn send(&self, signal: Signal) {
        send(self.0.id(), signal);
    }

    /// Waits for the end of the sweep, within a time limit.
    fn finish(mut self) -> Output {
        let mut output = Output {
            status: until(|| self.0.try_wait().unwrap()),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        use std::io::Read;
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut output.stdout)
            .unwrap();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_end(&mut output.stderr)
            .unwrap();
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

fn until_rows(folder: &Path, count: usize) -> Vec<Row> {
    until(|| Some(rows(folder)).filter(|rows| rows.len() >= count))
}

/// Processes that are ranks of the job in `folder`; only of this rank, if one is given.
fn ranks(folder: &Path, rank: Option<usize>) -> Vec<u32> {
    let job: PathBuf = folder.canonicalize().unwrap().join("job.txt");
    let has = |pid: u32, file: &str, part: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(part)
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| {
        has(pid, "cmdline", "__sweep-rank") && has(pid, "cmdline", job.to_str().unwrap())
    })
    .filter(|&pid| rank.is_none_or(|rank| has(pid, "environ", &format!("HOROVOD_RANK={rank}\0"))))
    .collect()
}

/// Points of the grid in one block, in the order of the file, without the default.
fn grid(rows: &[Row], block: u32) -> Vec<[String; 4]> {
    let of_block = rows
        .iter()
        .filter(|row| row.phase == "grid" && row.block == block);
    of_block
        .filter(|row| !row.is_default())
        .map(|row| row.point.clone())
        .collect()
}

#[test]
fn a_sweep_measures_every_point_in_every_block() {
    let folder = folder();
    let arguments = "--profile job.txt -np 1,2 --compute-ms 1 --link 100,1 --fusion-mb 0,128 --cycle-ms 1 --cache on,off \
                     --repeats 2 --steps 4 --warmup 1 --confirm 2 --seed 7 --out out";
    let printed = stdout(&sweep(folder.path(), arguments).output().unwrap());
    assert!(
        printed.contains("link shaped to 100 µs and 1 GB/s"),
        "{printed}"
    );
    let out = folder.path().join("out");
    let rows = rows(&out);
    let expected = ["1", "2"].map(|np| {
        let point = |fusion: &str, cache: &str| [np, fusion, "1", cache].map(str::to_owned);
        [
            point("0", "true"),
            point("0", "false"),
            point("134217728", "false"),
        ]
    });
    let mut measured = grid(&rows, 0);
    measured.sort();
    let mut expected = expected.concat();
    expected.sort();
    assert_eq!(measured, expected, "block 0");
    // The second block may omit settings that were clearly worse.
    let second = grid(&rows, 1);
    assert!(
        second.iter().all(|point| expected.contains(point)),
        "{second:?}"
    );
    for np in ["1", "2"] {
        for block in [0, 1] {
            let of_ranks: Vec<&Row> = rows
                .iter()
                .filter(|row| row.phase == "grid" && row.block == block && row.point[0] == np)
                .collect();
            assert!(of_ranks[0].is_default() && of_ranks[of_ranks.len() - 1].is_default());
        }
    }
    assert!(
        rows.iter()
            .all(|row| row.status == "done" || row.status == "cut"),
        "{rows:?}"
    );
    let whole = rows.iter().filter(|row| row.status == "done");
    assert!(whole.clone().count() > 8 && whole.clone().all(|row| row.steps == "4"));
    assert!(rows.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));

    let plan = json(&out.join("sweep.json"));
    assert_eq!(plan["design"]["seed"], 7);
    assert_eq!(plan["settings"]["RONDE_LINK"], "100,1");
    assert_eq!(plan["load"]["compute_ms"], 1.0);
    assert_eq!(plan["points"].as_array().unwrap().len(), 8);
    assert!(plan["machine"]["cores"].as_u64().unwrap() > 0);
    assert!(
        plan["command"]
            .as_str()
            .unwrap()
            .contains("sweep --profile job.txt -np 1,2")
    );
    assert!(
        fs::read_to_string(out.join("summary.md"))
            .unwrap()
            .contains("job.txt")
    );
    json(&out.join("summary.json"));
    let names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    let of_kind = |end: &str| {
        names
            .iter()
            .filter(|name| name.to_string_lossy().ends_with(end))
            .count()
    };
    assert!(
        of_kind(".svg") > 0 && of_kind(".svg") == of_kind(".png"),
        "{names:?}"
    );

    // The sweep is finished: --resume measures nothing and changes nothing.
    let before = fs::read(out.join("sweep.csv")).unwrap();
    let output = sweep(folder.path(), "--out out --resume --json -").output();
    let printed: Value = serde_json::from_str(&stdout(&output.unwrap())).unwrap();
    assert_eq!(printed, json(&out.join("summary.json")));
    assert_eq!(fs::read(out.join("sweep.csv")).unwrap(), before);
}

#[test]
fn a_killed_sweep_goes_on_and_loses_nothing() {
    let folder = folder();
    let out = folder.path().join("out");
    let running = Running::start(sweep(folder.path(), LONG));
    until_rows(&out, 4);
    running.send(Signal::KILL);
    running.finish();
    // The ranks end with the sweep.
    until(|| ranks(folder.path(), None).is_empty().then_some(()));
    let before = fs::read(out.join("sweep.csv")).unwrap();
    let measured = rows(&out);
    assert!((4..15).contains(&measured.len()), "{}", measured.len());
    // The file looks as if the sweep had been killed in the middle of a line.
    fs::write(
        out.join("sweep.csv"),
        [&before[..], b"grid,0,2,13"].concat(),
    )
    .unwrap();

    let output = sweep(folder.path(), "--resume --out out").output().unwrap();
    stdout(&output);
    let after = fs::read(out.join("sweep.csv")).unwrap();
    assert!(after.starts_with(&before), "what was measured stays");
    let rows = rows(&out);
    let mut points = grid(&rows, 0);
    points.sort();
    let count = points.len();
    points.dedup();
    assert_eq!((count, points.len()), (12, 12), "each point once");
    // Before, between and after two runs of six points.
    assert_eq!(rows.iter().filter(|row| row.is_default()).count(), 3);
    assert!(rows.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
}

#[test]
fn ranks_that_crash_or_hang_cost_one_measurement() {
    let folder = folder();
    let out = folder.path().join("out");
    // Measurements are longer than a signal takes on a busy machine.
    let long = LONG.replace("--compute-ms 8", "--compute-ms 30 --hang-seconds 8");
    let running = Running::start(sweep(folder.path(), &long));
    until_rows(&out, 2);
    send(until(|| ranks(folder.path(), Some(1)).pop()), Signal::KILL);
    let failed = |rows: &[Row]| rows.iter().filter(|row| row.status == "failed").count();
    let after = until(|| Some(rows(&out)).filter(|rows| failed(rows) == 1 && rows.len() >= 4));
    let crashed = after.iter().find(|row| row.status == "failed").unwrap();
    assert!(
        crashed
            .reason
            .contains("rank 1 was killed by signal 9 (SIGKILL)"),
        "{crashed:?}"
    );
    assert!(crashed.steps.is_empty());

    send(until(|| ranks(folder.path(), Some(0)).pop()), Signal::STOP);
    let output = running.finish();
    let printed = unwrapped(&stdout(&output));
    let rows = rows(&out);
    assert_eq!(failed(&rows), 2, "{rows:?}");
    assert!(
        rows.iter()
            .any(|row| row.reason.starts_with("it hangs: no step in ")), // 8 s, or 20 steps
        "{rows:?}"
    );
    assert_eq!(grid(&rows, 0).len(), 12, "the sweep goes on");
    assert!(printed.contains("failed"), "{printed}");
    assert!(ranks(folder.path(), None).is_empty());
}

#[test]
fn an_interrupted_sweep_reports_what_there_is() {
    let folder = folder();
    let out = folder.path().join("out");
    let running = Running::start(by_default("INT", &sweep(folder.path(), LONG)));
    until_rows(&out, 3);
    running.send(Signal::INT);
    let output = running.finish();
    let (printed, err) = texts(&output);
    assert_eq!(output.status.code(), Some(130), "{err}");
    let printed = unwrapped(&printed);
    assert!(
        printed.contains("It was interrupted")
            && printed.contains("to continue: ronde sweep --resume --out out"),
        "{printed}"
    );
    assert!(
        fs::read_to_string(out.join("summary.md"))
            .unwrap()
            .contains("interrupted")
    );
    assert!(
        rows(&out).iter().all(|row| row.status != "failed"),
        "an interrupt is no failure"
    );
    stdout(&sweep(folder.path(), "--resume --out out").output().unwrap());
    assert_eq!(grid(&rows(&out), 0).len(), 12);
    assert!(
        !fs::read_to_string(out.join("summary.md"))
            .unwrap()
            .contains("interrupted")
    );
}

#[test]
fn a_folder_belongs_to_one_sweep() {
    let folder = folder();
    let out = folder.path().join("out");
    let running = Running::start(sweep(folder.path(), LONG));
    until_rows(&out, 1);
    let output = sweep(folder.path(), "--resume --out out").output().unwrap();
    assert_failed(&output, 1, &["another sweep is writing", "sweep.csv"]);
    let output = sweep(folder.path(), LONG).output().unwrap();
    assert_failed(&output, 2, &["out contains sweep.json already", "--resume"]);
    until_rows(&out, 2);
    running.send(Signal::KILL);
    running.finish();

    let before = fs::read(out.join("sweep.csv")).unwrap();
    let fails = |arguments: &str, code, parts: &[&str]| {
        assert_failed(
            &sweep(folder.path(), arguments).output().unwrap(),
            code,
            parts,
        );
        assert_eq!(
            fs::read(out.join("sweep.csv")).unwrap(),
            before,
            "{arguments}"
        );
    };
    fails(LONG, 2, &["contains sweep.json already"]);
    fails(
        "--resume --out out --steps 11 --fusion-mb 0,1",
        2,
        &["--steps is 20 there and 11 here", "--fusion-mb is 0,0.1"],
    );
    fails("--resume --out nowhere", 2, &["no sweep in nowhere"]);
    fails("--resume --out .", 2, &["no sweep in ."]);

    let plan = fs::read_to_string(out.join("sweep.json")).unwrap();
    let host = json(&out.join("sweep.json"))["machine"]["host"]
        .as_str()
        .unwrap()
        .to_owned();
    let moved = plan.replacen(
        &format!("\"host\": \"{host}\""),
        "\"host\": \"elsewhere\"",
        1,
    );
    assert_ne!(moved, plan);
    fs::write(out.join("sweep.json"), &moved).unwrap();
    fails(
        "--resume --out out",
        1,
        &["another machine", "host: elsewhere then", "--other-machine"],
    );
    fs::write(out.join("sweep.json"), plan.replacen("{", "{,", 1)).unwrap();
    fails("--resume --out out", 1, &["sweep.json, line 1: not a plan"]);
    fs::write(out.join("sweep.json"), &moved).unwrap();
    let profile = fs::read(folder.path().join("job.txt")).unwrap();
    fs::write(folder.path().join("job.txt"), "1000\n").unwrap();
    fails(
        "--resume --out out --other-machine",
        1,
        &[
            "job.txt has changed since the sweep began",
            "1 tensors of 4000 bytes now",
        ],
    );
    fs::write(folder.path().join("job.txt"), profile).unwrap();

    let printed = stdout(
        &sweep(folder.path(), "--resume --out out --other-machine")
            .output()
            .unwrap(),
    );
    assert!(
        unwrapped(&printed).contains("host: elsewhere then"),
        "{printed}"
    );
    assert_eq!(grid(&rows(&out), 0).len(), 12);
}

#[test]
fn a_budget_ends_the_sweep() {
    let folder = folder();
    let out = folder.path().join("out");
    let arguments = "--profile job.txt -np 2 --compute-ms 20 --fusion-mb 0,0.1 --cycle-ms 1 --repeats 50 --steps 1000 --budget 10s \
                     --out out";
    let began = Instant::now();
    let printed = unwrapped(&stdout(&sweep(folder.path(), arguments).output().unwrap()));
    assert!(began.elapsed() < PATIENCE);
    assert!(printed.contains("budget of 10 s"), "{printed}");
    let rows = rows(&out);
    // On a busy machine, the start of the ranks may take most of the budget.
    assert!(!grid(&rows, 0).is_empty(), "the first block is begun");
    assert!(
        rows.iter()
            .all(|row| row.steps.parse::<u32>().unwrap() < 500),
        "{rows:?}"
    );
}

#[test]
fn bad_input_is_named() {
    let folder = folder();
    for (arguments, parts) in [
        ("--fusion-mb=", &["the list is empty"][..]),
        ("--fusion-mb 4..1", &["is not a range"]),
        (
            "--fusion-mb 64MB",
            &["`64MB` is not a number", "MiB, without a unit"],
        ),
        ("--cycle-ms 1..5:100", &["from 2 to 64 values"]),
        ("--cycle-ms nan", &["`nan` is not a number"]),
        ("-np 0", &["from 1 to 64"]),
        ("-np two", &["two"]),
        ("--cache maybe", &["on, off"]),
        ("--budget 10", &["with its unit, such as 90s"]),
        ("--budget 10x", &["with its unit"]),
        ("--autotune", &["omit --autotune"]),
        ("--model resnet51", &["resnet50"]),
        (
            "--slow-rank 2,5",
            &["--slow-rank 2 is not one of the 2 ranks"],
        ),
        ("--verify 3", &["--replay"]),
        ("--other-machine", &["--resume"]),
    ] {
        assert_failed(&sweep(folder.path(), arguments).output().unwrap(), 2, parts);
    }
    let output = sweep(folder.path(), "--profile nowhere.txt")
        .output()
        .unwrap();
    assert_failed(&output, 1, &["nowhere.txt"]);
    let output = sweep(folder.path(), "--profile job.txt --out /proc/out")
        .output()
        .unwrap();
    assert_failed(&output, 1, &["cannot create the folder /proc/out"]);
    let mut inside = sweep(folder.path(), "--profile job.txt");
    inside.env("HOROVOD_RANK", "0").env("HOROVOD_SIZE", "1");
    assert_failed(
        &inside.output().unwrap(),
        2,
        &["a sweep starts its own ranks"],
    );
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["job.txt"], "nothing is left of what did not begin");
}

/// Four tensors of 1 MB, ready together after 10 ms; a message takes 1 ms + 1 ms per MB, a cycle
/// 100 µs.
const PROFILE: &str = r#"{"ronde_profile": 1, "np": 2, "step_ms": 20.0, "cycle_time_ms": 1.0, "fusion_threshold_bytes": 0,
    "tensors": [
        {"name": "a", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "b", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "c", "dtype": "float32", "elements": 250000, "ready_us": 10000},
        {"name": "d", "dtype": "float32", "elements": 250000, "ready_us": 10000}],
    "costs": {"alpha_us": 1000, "us_per_mib": 1048.576, "negotiate_cached": 100, "negotiate_uncached": 100}}"#;

#[test]
fn a_recording_is_predicted_and_its_best_measured() {
    let folder = folder();
    fs::write(folder.path().join("p.json"), PROFILE).unwrap();
    let out = folder.path().join("out");
    let arguments = "--replay p.json --fusion-mb 0,1,16 --cycle-ms 0.5,1 --out out";
    stdout(&sweep(folder.path(), arguments).output().unwrap());
    let predicted = rows(&out);
    assert_eq!(predicted.len(), 7);
    assert!(
        predicted
            .iter()
            .all(|row| row.phase == "predicted" && row.steps == "0")
    );

    let arguments = "--replay p.json --fusion-mb 0,1,16 --cycle-ms 0.5,1 --verify 1 --confirm 2 --steps 4 --out verified";
    let printed = stdout(&sweep(folder.path(), arguments).output().unwrap());
    let out = folder.path().join("verified");
    let measured: Vec<Row> = rows(&out)
        .into_iter()
        .filter(|row| row.phase == "verify")
        .collect();
    assert_eq!(
        measured.len(),
        4,
        "two settings in two rounds: {measured:?}"
    );
    assert!(
        measured.iter().all(|row| row.status == "done"),
        "{measured:?}"
    );
    assert!(out.join("profile.json").exists());
    assert!(unwrapped(&printed).contains("p.json"), "{printed}");
    // No measurement is left, and the existing ones are kept.
    let before = fs::read(out.join("sweep.csv")).unwrap();
    stdout(
        &sweep(folder.path(), "--resume --out verified")
            .output()
            .unwrap(),
    );
    assert_eq!(fs::read(out.join("sweep.csv")).unwrap(), before);
}
