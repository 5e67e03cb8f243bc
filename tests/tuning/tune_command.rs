//! Tests of `ronde tune -- COMMAND` with shell scripts as commands.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::program::by_default;

/// A command whose figure is lowest for b = 6, without noise, and its metric.
const BOWL: [&str; 3] = ["sh", "-c", "echo step_ms=$((100 + ({b} - 6) * ({b} - 6)))"];
const METRIC: [&str; 2] = ["--metric", r"step_ms=(\d+)"];

fn tune(folder: &Path, options: &[&str], command: &[&str]) -> Command {
    let mut tune = Command::new(env!("CARGO_BIN_EXE_ronde"));
    tune.current_dir(folder);
    tune.args(["tune"]).args(options).arg("--").args(command);
    for variable in [
        "XLA_FLAGS",
        "NCCL_BUFFSIZE",
        "NCCL_NTHREADS",
        "NCCL_MIN_NCHANNELS",
    ] {
        tune.env_remove(variable);
    }
    tune
}

/// Runs it; returns the exit code, standard output and standard error.
fn run(options: &[&str], command: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    ended(tune(folder.path(), options, command).output().unwrap())
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Options with the bowl's metric.
fn bowl<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["-p", "b=1..9,start=2"], &METRIC[..], options].concat()
}

#[test]
fn the_best_setting_is_found_compared_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        "--json",
        "r.json",
        "--csv",
        "r.csv",
        "--markdown",
        "r.md",
        "--html",
        "r.html",
        "--logs",
        "logs",
    ];
    let output = tune(folder.path(), &bowl(&files), &BOWL).output().unwrap();
    let (code, shown, progress) = ended(output);
    assert_eq!(code, 0, "{progress}");
    assert!(
        shown.contains("Use b 6 instead of the start, b 2: step_ms −13.8 %"),
        "{shown}"
    );
    assert!(
        progress.contains("run 1 of at most 20, searching: b 2: step_ms 116"),
        "{progress}"
    );
    assert!(
        !progress.contains("step_ms=116"),
        "the output is hidden: {progress}"
    );
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("r.json")).unwrap();
    assert_eq!(
        (&json["chosen"]["setting"]["b"], &json["chosen"]["value"]),
        (&6.into(), &100.0.into())
    );
    assert_eq!(
        (&json["kept_start"], &json["better"]),
        (&false.into(), &"lower".into())
    );
    ronde_cases::fields("TUNE.md", "### Output", &json, &["setting", "candidate"]);
    let runs = json["runs"].as_array().unwrap().len();
    assert!(runs <= 20);
    assert_eq!(read("r.csv").lines().count(), 1 + runs);
    assert!(
        read("r.csv").starts_with(
            "run,phase,b,status,value,check,seconds,reason\n1,searching,2,measured,116,"
        )
    );
    assert!(
        read("r.md").contains("| \\* | 6 | 100 | −13.8 % |"),
        "{}",
        read("r.md")
    );
    assert!(read("r.html").contains("runs-chart"));
    assert_eq!(read("logs/run-001.log"), "step_ms=116\n");
}

#[test]
fn higher_can_be_better_and_json_can_be_on_standard_output() {
    let options = [
        "-p",
        "b=1..9,start=2",
        "--metric",
        r"img/s (\d+)",
        "--maximize",
        "--json",
        "-",
    ];
    let command = ["sh", "-c", "echo img/s $((100 - ({b} - 6) * ({b} - 6)))"];
    let (code, shown, _) = run(&options, &command);
    let json: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &json["chosen"]["setting"]["b"]), (0, &6.into()));
    assert_eq!(
        (&json["chosen"]["value"], &json["start"]["value"]),
        (&100.0.into(), &84.0.into())
    );
}

#[test]
fn values_are_passed_in_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.json"), r#"{"a":{"b":2},"x":1}"#).unwrap();
    let options = bowl(&["--env", "B={b}", "--config", "c.json", "--set", "a.b={b}"]);
    let script = "test $(tr -dc 0-9 < $1) = ${B}1 && echo step_ms=$((100 + (B - 6) * (B - 6)))";
    let command = ["sh", "-c", script, "-", "{config}"];
    let (code, shown, progress) = ended(tune(folder.path(), &options, &command).output().unwrap());
    assert_eq!(code, 0, "{progress}");
    assert!(shown.contains("Use b 6"), "{shown}");
    let left = std::fs::read_to_string(folder.path().join("c.json")).unwrap();
    assert_eq!(
        left, r#"{"a":{"b":2},"x":1}"#,
        "the user's file stays as it is"
    );
}

#[test]
fn wrong_usage_is_named() {
    let refused = |options: &[&str], command: &[&str], expected: &str| {
        let (code, shown, message) = run(options, command);
        assert_eq!((code, shown.as_str()), (2, ""), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    let b = ["-p", "b=1..9"];
    refused(
        &b,
        &["train", "{buckt}"],
        "parameter b is not passed to the command: the command has {buckt}",
    );
    refused(
        &b,
        &["train"],
        "write {b} in an argument, or in --env VARIABLE={b}",
    );
    refused(&[], &["train"], "there is nothing to tune");
    refused(
        &["-p", "b=9..1"],
        &["train", "{b}"],
        "its ends are reversed",
    );
    refused(
        &["-p", "b=1..9", "-p", "b=1..8"],
        &["train", "{b}"],
        "parameter b is given twice",
    );
    refused(
        &["-p", "b=1..9", "--metric", "x=1"],
        &["train", "{b}"],
        "no group around the number",
    );
    refused(
        &["-p", "b=1..9", "--metric", "("],
        &["train", "{b}"],
        "open group without closing",
    );
    refused(
        &["-p", "b=1..9", "--maximize"],
        &["train", "{b}"],
        "the wall time cannot be maximized",
    );
    refused(
        &["-p", "b=1..9", "--runs", "3"],
        &["train", "{b}"],
        "--runs 3 are too few",
    );
    refused(
        &["-p", "b=1..9", "--env", "x"],
        &["train", "{b}"],
        "does not begin with NAME=",
    );
    refused(
        &["-p", "b=1..9", "--time-limit", "5"],
        &["train", "{b}"],
        "is not a time",
    );
    refused(
        &["--preset", "ddd"],
        &["train"],
        "there are ddp, deepspeed, megatron, xla, nccl",
    );
    refused(
        &["--preset", "ddp"],
        &["train"],
        "write {bucket_cap_mb} in an argument",
    );
    refused(&["--preset", "deepspeed"], &["train"], "--config FILE");
    refused(
        &["--preset", "megatron"],
        &["train", "--ddp-bucket-size", "5"],
        "has already",
    );
    refused(
        &["--preset", "nccl", "--env", "NCCL_NTHREADS=64"],
        &["train"],
        "NCCL_NTHREADS, which is \"64\"",
    );
    let folder = tempfile::tempdir().unwrap();
    let mut set = tune(folder.path(), &["--preset", "xla"], &["train"]);
    set.env(
        "XLA_FLAGS",
        "--xla_gpu_all_reduce_combine_threshold_bytes=1",
    );
    let (code, _, message) = ended(set.output().unwrap());
    assert_eq!(code, 2);
    assert!(
        message.contains("--xla_gpu_all_reduce_combine_threshold_bytes in XLA_FLAGS"),
        "{message}"
    );
}

#[test]
fn a_start_that_cannot_be_measured_is_an_error_with_its_output() {
    let failed = |command: &[&str], expected: &[&str]| {
        let (code, shown, message) = run(&bowl(&[]), command);
        assert_eq!((code, shown.as_str()), (1, ""), "{message}");
        for expected in expected {
            assert!(message.contains(expected), "{message}");
        }
    };
    let shell = |script: &'static str| ["sh", "-c", script, "-", "{b}"];
    failed(
        &shell("echo why >&2; exit 3"),
        &["with the start, b 2: it exited with code 3", "\n  why"],
    );
    failed(
        &shell("echo nothing"),
        &[
            r"its output has no match of the metric step_ms=(\d+)",
            "\n  nothing",
        ],
    );
    failed(
        &["/no/such/program", "{b}"],
        &["cannot run /no/such/program"],
    );
    let text = ["-p", "b=1..9", "--metric", "step_ms=(.*)"];
    let (code, _, message) = run(&text, &shell("echo step_ms=fast"));
    assert_eq!(code, 1);
    assert!(
        message.contains("matched \"fast\", which is not a number > 0"),
        "{message}"
    );
}

#[test]
fn settings_that_fail_or_hang_count_as_the_worst_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    // The first other setting that does not fail hangs.
    let script = format!(
        "case {{b}} in 1|3|4) exit 7;; esac; \
         if [ {{b}} != 2 ] && mkdir {}/hung 2>/dev/null; then sleep 600; fi; \
         echo step_ms=$((100 - {{b}} * {{b}}))",
        folder.path().display()
    );
    let began = Instant::now();
    let (code, shown, progress) = run(&bowl(&["--time-limit", "4s"]), &["sh", "-c", &script]);
    assert_eq!(code, 0, "{progress}");
    assert!(shown.contains("Use b 9 instead of the start"), "{shown}");
    let names = |text: &str, what: &str| {
        assert!(text.contains(what), "{what}: {text}");
    };
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    names(
        &flat,
        "it ran longer than the time limit of 4 s. It counts as the worst.",
    );
    names(&flat, "it exited with code 7. It counts as the worst.");
    names(&flat, "b is at the end of its range; try a wider one.");
    assert!(
        began.elapsed() < Duration::from_secs(300),
        "a hang is ended"
    );
}

#[test]
fn a_winner_with_another_loss_is_refused() {
    let options = ["--check", r"loss=([0-9.]+)", "--check-tolerance", "1%"];
    // The loss differs where the step is short.
    let script = "if [ {b} -gt 4 ]; then l=2.5; else l=2.0; fi; \
                  echo loss=$l step_ms=$((100 + ({b} - 6) * ({b} - 6)))";
    let (code, shown, _) = run(&bowl(&options), &["sh", "-c", script]);
    assert_eq!(code, 0);
    assert!(shown.contains("Use b 4 instead"), "{shown}");
}

#[test]
fn an_interrupted_search_continues_and_another_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let state = ["--state", "s.json"];
    let command = [
        "sh",
        "-c",
        "sleep 0.2; echo step_ms=$((100 + ({b} - 6) * ({b} - 6)))",
    ];
    let first = tune(folder.path(), &bowl(&state), &command);
    let first = by_default("INT", &first).spawn().unwrap();
    let file = folder.path().join("s.json");
    let deadline = Instant::now() + Duration::from_secs(120);
    let has_run = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("measured"));
    while !has_run() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, _, message) = ended(
        tune(folder.path(), &bowl(&state), &command)
            .output()
            .unwrap(),
    );
    assert_eq!(code, 2);
    assert!(
        message.contains("state file s.json is in use by another ronde tune"),
        "{message}"
    );
    let pid = Pid::from_raw(first.id() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let (code, shown, _) = ended(first.wait_with_output().unwrap());
    assert_eq!(code, 130);
    assert!(shown.contains("There is no verdict yet"), "{shown}");
    assert!(
        shown.contains("the same command continues from s.json"),
        "{shown}"
    );
    // Without the sleep it would be another command.
    let again = |command: &[&str], options: &[&str]| {
        ended(tune(folder.path(), options, command).output().unwrap())
    };
    let (code, _, message) = again(&BOWL, &bowl(&state));
    assert_eq!(code, 2);
    assert!(
        message.contains("state file s.json is of another search: command was \"sh -c sleep 0.2"),
        "{message}"
    );
    let (code, _, message) = again(
        &command,
        &[&["-p", "b=1..9,start=3"], &METRIC[..], &state].concat(),
    );
    assert_eq!(code, 2);
    assert!(message.contains("parameter b was"), "{message}");
    let (code, shown, message) = again(&command, &bowl(&state));
    assert_eq!(code, 0, "{message}");
    assert!(
        message.contains("; continuing after ") && !message.contains("run 1 of"),
        "{message}"
    );
    assert!(shown.contains("Use b 6"), "{shown}");
    // Everything is known now, and a comparison that has ended is not taken up again.
    for more in [&[][..], &["--runs", "40"][..]] {
        let (code, _, message) = again(&command, &bowl(&[&state[..], more].concat()));
        assert!(
            code == 0 && message.contains("and the verdict are in the state file"),
            "{message}"
        );
        assert!(!message.contains(": run "), "{message}");
    }
}

#[test]
fn a_state_file_of_other_values_or_another_tolerance_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.json"), "{}").unwrap();
    let command = ["sh", "-c", "echo loss=1 step_ms=$((10 + {b}))", "{config}"];
    let again = |set: &str, tolerance: &str| {
        let options = [
            "--config",
            "c.json",
            "--set",
            set,
            "--check",
            r"loss=(\d+)",
            "--check-tolerance",
            tolerance,
            "--runs",
            "8",
            "--state",
            "s.json",
        ];
        ended(
            tune(folder.path(), &bowl(&options), &command)
                .output()
                .unwrap(),
        )
    };
    let (code, _, message) = again("x={b}", "1%");
    assert_eq!(code, 0, "{message}");
    let (code, _, message) = again("x=5", "1%");
    assert_eq!(code, 2);
    assert!(
        message.contains(r#"--set was "x={b}", and is "x=5""#),
        "{message}"
    );
    let (code, _, message) = again("x={b}", "2%");
    assert_eq!(code, 2);
    assert!(
        message.contains(r#"check tolerance was "0.01", and is "0.02""#),
        "{message}"
    );
    // A file of version 1 has neither.
    let path = folder.path().join("s.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut state: Value = serde_json::from_str(&text).unwrap();
    state["ronde_tune_command"] = 1.into();
    let identity = state["identity"].as_object_mut().unwrap();
    assert!(identity.remove("--set").is_some() && identity.remove("check tolerance").is_some());
    std::fs::write(&path, state.to_string()).unwrap();
    let (code, _, message) = again("x={b}", "1%");
    assert_eq!(code, 0, "{message}");
    assert!(
        message.contains("does not have --set and check tolerance"),
        "{message}"
    );
}

#[test]
fn a_budget_ends_a_hang_and_names_what_it_has_no_room_for() {
    let flat = |shown: &str| shown.split_whitespace().collect::<Vec<_>>().join(" ");
    // Eight runs take 16 s.
    let options = ["-p", "x=1..4", "--budget", "15s"];
    let (code, shown, message) = run(&options, &["sh", "-c", "sleep 2; : {x}"]);
    assert_eq!(code, 0, "{message}");
    assert!(
        flat(&shown).contains("no other setting was tried, because the budget of 15 s has no room"),
        "{shown}"
    );
    let script = "if [ {b} != 2 ]; then sleep 600; fi; echo step_ms=5";
    let began = Instant::now();
    let (code, shown, message) = run(&bowl(&["--budget", "10s"]), &["sh", "-c", script]);
    assert_eq!(code, 0, "{message}");
    assert!(
        flat(&shown).contains("because --budget was used up. It counts as the worst."),
        "{shown}"
    );
    assert!(began.elapsed() < Duration::from_secs(300));
}

#[test]
fn a_start_that_the_configuration_does_not_state_is_called_a_guess() {
    let folder = tempfile::tempdir().unwrap();
    let zero = r#"{"zero_optimization":{"reduce_bucket_size":"auto"}}"#;
    std::fs::write(folder.path().join("c.json"), zero).unwrap();
    let guessed = |more: &[&str]| {
        let given = ["--preset", "deepspeed", "--config", "c.json", "--runs", "8"];
        let command = ["sh", "-c", "echo CurrSamplesPerSec=5", "{config}"];
        let options = [&given[..], more].concat();
        let (code, _, message) = ended(tune(folder.path(), &options, &command).output().unwrap());
        assert_eq!(code, 0, "{message}");
        message
    };
    let message = guessed(&[]);
    for expected in [
        "warning: zero_optimization.reduce_bucket_size is \"auto\" in the configuration file",
        "give --parameter 'reduce_bucket_size=1e6..1e9,log,levels=13,start=VALUE'",
        "(give start=… for reduce_bucket_size if",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    let given = ["-p", "reduce_bucket_size=1e6..1e9,log,levels=13,start=2e7"];
    assert!(!guessed(&given).contains("warning"));
}

#[test]
fn presets_are_explained_and_pass_their_values() {
    let mut list = Command::new(env!("CARGO_BIN_EXE_ronde"));
    let (code, shown, _) = ended(list.args(["tune", "--preset", "list"]).output().unwrap());
    assert_eq!(code, 0);
    for name in ["ddp", "deepspeed", "megatron", "xla", "nccl"] {
        assert!(shown.contains(&format!("--preset {name}: ")), "{shown}");
    }
    // The program prints a line of Megatron-LM; the option is at its end.
    let script = "shift; echo \" iteration 10/ 50 | elapsed time per iteration (ms): \
                  $((100000000000 / $1)).0 |\"";
    let options = ["--preset", "megatron", "--runs", "8"];
    let (code, shown, message) = run(&options, &["sh", "-c", script, "-"]);
    assert_eq!(code, 0, "{message}");
    assert!(shown.contains("--ddp-bucket-size"), "{shown}");
}

#[test]
fn options_of_commands_need_one() {
    for (option, value) in [
        ("--parameter", "b=1..9"),
        ("--runs", "20"),
        ("--warmup", "0"),
        ("--seed", "7"),
    ] {
        let mut alone = Command::new(env!("CARGO_BIN_EXE_ronde"));
        let alone = alone.args(["tune", option, value]).stdin(Stdio::null());
        let (code, _, message) = ended(alone.output().unwrap());
        assert_eq!(code, 2);
        let expected = format!("{option} needs a command to tune");
        assert!(message.contains(&expected), "{message}");
    }
}
