//! `ronde run` with real processes: places, output, exit codes, signals, and that nothing is left behind.
#![cfg(feature = "cli")]

use ronde::cli::run::LaunchSpec;
use ronde::identity::MAX_RANKS;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than any of these jobs needs: only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

fn ronde(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in ["HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD", "RONDE_JOB_ID"] {
        command.env_remove(name);
    }
    command
}

/// Starts `ronde run -np <ranks> -- sh -c <script>`.
fn run_script(ranks: usize, script: &str) -> Command {
    ronde(&["run", "-np", &ranks.to_string(), "--", "sh", "-c", script])
}

/// Lets a rank go on only when the test says so: `wait_gate` in its script waits for a file.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Gate {
        Gate(tempfile::tempdir().unwrap())
    }

    fn run_script(&self, ranks: usize, script: &str) -> Command {
        let wait = "wait_gate() { while ! test -e \"$GATE\"; do sleep 0.01; done; }";
        let mut command = run_script(ranks, &format!("{wait}; {script}"));
        command.env("GATE", self.0.path().join("open"));
        command
    }

    fn open(&self) {
        std::fs::write(self.0.path().join("open"), "").unwrap();
    }
}

/// Waits for the end, reading all output meanwhile.
fn finish(mut child: Child) -> Output {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("ronde hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn outcome(mut command: Command) -> Outcome {
    of(finish(command.spawn().unwrap()))
}

fn of(output: Output) -> Outcome {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Whether a process runs; a zombie does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, tail)| !tail.starts_with('Z'))
}

fn assert_all_end(pids: &[u32]) {
    let start = Instant::now();
    while pids.iter().any(|pid| runs(*pid)) {
        assert!(start.elapsed() < DEADLINE, "of {pids:?} some are left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads `count` lines `[r]<stdout>:<pid>…`, each with any number of pids.
fn read_pids(child: &mut Child, count: usize) -> Vec<u32> {
    let reader = BufReader::new(child.stdout.as_mut().unwrap());
    let lines = reader.lines().take(count).map(Result::unwrap);
    let pids = |line: String| {
        line.rsplit_once(':')
            .unwrap()
            .1
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect::<Vec<u32>>()
    };
    lines.flat_map(pids).collect()
}

fn send(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn each_of_8_ranks_gets_its_place() {
    let script = "echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE \
                  $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE ${#RONDE_JOB_ID} $PYTHONUNBUFFERED";
    let outcome = outcome(run_script(8, script));
    let expected: Vec<String> = (0..8)
        .map(|r| format!("[{r}]<stdout>:{r}/8 {r}/8 0/1 32 1"))
        .collect();
    assert_eq!(sorted(&outcome.stdout), expected);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

#[test]
fn ranks_of_a_job_share_its_id_and_forget_outer_launchers() {
    let mut command = run_script(
        2,
        "echo $RONDE_JOB_ID ${OMPI_COMM_WORLD_RANK-none} ${SLURM_PROCID-none}",
    );
    command
        .env("OMPI_COMM_WORLD_RANK", "5")
        .env("SLURM_PROCID", "5")
        .env("RONDE_JOB_ID", "outer");
    let outcome = outcome(command);
    let ids: Vec<&str> = outcome
        .stdout
        .lines()
        .map(|line| line.split_once(':').unwrap().1)
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert!(
        ids[0].ends_with(" none none") && !ids[0].starts_with("outer"),
        "{}",
        ids[0]
    );
}

#[test]
fn flags_become_variables_and_unset_ones_do_not() {
    let script =
        "echo ${HOROVOD_FUSION_THRESHOLD-unset} ${HOROVOD_CYCLE_TIME-unset} ${HOROVOD_AUTOTUNE-unset}";
    let mut command = ronde(&[
        "run",
        "-np",
        "1",
        "--fusion-threshold-mb",
        "32",
        "--no-autotune",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(outcome(command).stdout, "[0]<stdout>:33554432 unset 0\n");
    command = run_script(1, script);
    command.env("HOROVOD_CYCLE_TIME", "2.5");
    assert_eq!(outcome(command).stdout, "[0]<stdout>:unset 2.5 unset\n");
}

#[test]
fn the_command_passes_verbatim() {
    let command = ronde(&[
        "run", "-np", "1", "printf", "%s|", "-np", "--", "--help", "a b", "$HOME",
    ]);
    assert_eq!(outcome(command).stdout, "[0]<stdout>:-np|--|--help|a b|$HOME|\n");
}

#[test]
fn the_first_failure_ends_the_job_with_its_code() {
    // Besides the ranks' own sleep, each leaves one behind, rank 2 too.
    let gate = Gate::new();
    let script = "sleep 1000 & echo $$ $!; test $HOROVOD_RANK = 2 && wait_gate && exit 7; sleep 1000; true";
    let mut child = gate.run_script(4, script).spawn().unwrap();
    let pids = read_pids(&mut child, 4);
    assert_eq!(pids.len(), 8);
    gate.open();
    let outcome = of(finish(child));
    assert_eq!(outcome.code, Some(7));
    assert!(
        outcome.stderr.contains("ronde run: rank 2 exited with code 7"),
        "{}",
        outcome.stderr
    );
    assert_all_end(&pids);
}

#[test]
fn a_rank_killed_by_a_signal_is_told_as_shells_do() {
    let outcome = outcome(run_script(3, "test $HOROVOD_RANK = 1 && kill -9 $$; sleep 1000"));
    assert_eq!(outcome.code, Some(137));
    let expected = "rank 1 was killed by signal 9 (SIGKILL); ending the other 2 ranks";
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed() {
    let gate = Gate::new();
    let script =
        "trap '' TERM; echo $$; test $HOROVOD_RANK = 0 && wait_gate && exit 3; while :; do sleep 1; done";
    let mut child = gate.run_script(2, script).spawn().unwrap();
    let pids = read_pids(&mut child, 2);
    gate.open();
    let outcome = of(finish(child));
    assert_eq!(outcome.code, Some(3));
    assert!(
        outcome.stderr.contains("not all ranks have ended; killing them"),
        "{}",
        outcome.stderr
    );
    assert_all_end(&pids);
}

#[test]
fn a_process_left_behind_cannot_hold_up_the_end() {
    let mut child = run_script(2, "sleep 1000 & echo $!").spawn().unwrap();
    let pids = read_pids(&mut child, 2);
    assert_eq!(of(finish(child)).code, Some(0));
    assert_all_end(&pids);
}

#[test]
fn output_after_a_ranks_end_is_not_lost() {
    let outcome = outcome(run_script(
        1,
        "(sleep 0.05; echo late) & echo early; printf unfinished >&2",
    ));
    assert_eq!(outcome.stdout, "[0]<stdout>:early\n[0]<stdout>:late\n");
    assert_eq!(outcome.stderr, "[0]<stderr>:unfinished\n");
}

/// `command` with these signals neither ignored nor caught, whatever the tests were started by (nohup ignores SIGHUP).
fn by_default(signals: &str, command: &Command) -> Command {
    let mut by_default = Command::new("env");
    by_default
        .arg(format!("--default-signal={signals}"))
        .arg(command.get_program())
        .args(command.get_args());
    by_default
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    by_default
}

#[test]
fn signals_reach_the_ranks() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let script =
            format!("trap 'echo got {signal}; exit 0' {signal}; echo $$; while :; do sleep 0.02; done");
        let mut child = by_default(signal, &run_script(2, &script)).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let started: Vec<String> = lines.by_ref().take(2).collect();
        assert_eq!(started.len(), 2);
        send(&child, signal);
        assert_eq!(
            sorted(&lines.collect::<Vec<_>>().join("\n")),
            [0, 1].map(|r| format!("[{r}]<stdout>:got {signal}"))
        );
        let outcome = of(finish(child));
        assert_eq!(outcome.code, Some(code));
        assert!(
            outcome.stderr.contains(&format!("passing SIG{signal} on")),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn signals_ignored_from_the_start_stay_ignored() {
    let mut command = Command::new("sh");
    let ronde = format!(
        "trap '' HUP CHLD; exec {} run -np 2 -- sh -c",
        env!("CARGO_BIN_EXE_ronde")
    );
    // The rank sends the hang-up to its launcher, which must go on to see the rank's own exit code.
    let script = "kill -HUP $PPID; sleep 0.1; exit 5";
    command.args(["-c", &format!("{ronde} '{script}'")]);
    let outcome = of(finish(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    ));
    assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("SIGHUP"), "{}", outcome.stderr);
}

#[test]
fn a_second_signal_kills_at_once() {
    let mut child = run_script(2, "trap '' INT TERM; echo $$; while :; do sleep 1; done")
        .spawn()
        .unwrap();
    let pids = read_pids(&mut child, 2);
    send(&child, "INT");
    // The first must have been seen, for two of a kind may arrive as one.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("passing SIGINT on"), "{line}");
    send(&child, "INT");
    assert_eq!(of(finish(child)).code, Some(130));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("not all ranks have ended"), "{rest}");
    assert_all_end(&pids);
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    let mut child = run_script(2, "sleep 1000 & echo $$ $!; wait").spawn().unwrap();
    let pids = read_pids(&mut child, 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_end(&pids);
}

#[test]
fn a_command_that_cannot_start_is_said_before_anything_runs() {
    let missing = outcome(ronde(&["run", "-np", "3", "--", "no-such-command-anywhere"]));
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(127), ""));
    assert!(
        missing.stderr.contains("no-such-command-anywhere as rank 0"),
        "{}",
        missing.stderr
    );
    assert_eq!(
        outcome(ronde(&["run", "-np", "2", "--", "/dev/null"])).code,
        Some(126)
    );
}

#[test]
fn wrong_usage_is_refused_by_name() {
    let table: [(&[&str], &str); 14] = [
        (&["-np", "0", "true"], "0 is not in 1..=64"),
        (&["-np", "65", "true"], "65 is not in 1..=64"),
        (&["-np", "two", "true"], "two"),
        (&["true"], "--num-proc"),
        (&["-np", "2"], "CMD"),
        (
            &["-np", "4", "-H", "localhost:2", "true"],
            "processes (4) than there are available slots (2)",
        ),
        (&["-np", "4", "-H", "far-away:4", "true"], "far-away"),
        (&["-np", "2", "--min-np", "2", "true"], "--min-np"),
        (
            &["-np", "2", "--blacklist-cooldown-range", "1", "2", "true"],
            "--blacklist-cooldown-range",
        ),
        (&["-np", "2", "--mpi", "true"], "--mpi"),
        (&["-np", "2", "-p", "22", "true"], "--ssh-port"),
        (
            &["-np", "2", "--cycle-time-ms", "-3", "true"],
            "HOROVOD_CYCLE_TIME=-3",
        ),
        (&["-np", "2", "--fusion-mb", "much", "true"], "much"),
        (&["-np", "2", "--no-such-flag", "true"], "--no-such-flag"),
    ];
    for (arguments, expected) in table {
        let outcome = outcome(ronde(&[&["run"], arguments].concat()));
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(expected),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn accepted_flags_of_horovodrun_change_nothing() {
    let flags = [
        "--gloo",
        "--disable-cache",
        "-H",
        "localhost:4",
        "--hierarchical-allreduce",
        "--start-timeout",
        "9",
    ];
    let outcome = outcome(ronde(
        &[&["run", "-np", "1"], &flags[..], &["echo", "on"]].concat(),
    ));
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), "[0]<stdout>:on\n")
    );
}

#[test]
fn files_get_each_ranks_output() {
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
    let run = |ranks: &str, to: &Path| {
        let to = to.to_str().unwrap();
        let script = "echo out $HOROVOD_RANK; echo err >&2";
        assert_eq!(
            outcome(ronde(&[
                "run",
                "-np",
                ranks,
                "--output-filename",
                to,
                "sh",
                "-c",
                script
            ]))
            .code,
            Some(0)
        );
    };
    run("1", &dir.path().join("one"));
    assert_eq!(read("one/rank.0/stdout"), "[0]<stdout>:out 0\n");
    run("11", &dir.path().join("eleven"));
    assert_eq!(read("eleven/rank.07/stdout"), "[7]<stdout>:out 7\n");
    assert_eq!(read("eleven/rank.10/stderr"), "[10]<stderr>:err\n");

    let refused = outcome(ronde(&[
        "run",
        "-np",
        "1",
        "--output-filename",
        "/dev/null/no",
        "true",
    ]));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("/dev/null/no"), "{}", refused.stderr);
}

#[test]
fn prefixes_can_have_the_time_or_be_left_away() {
    let plain = outcome(ronde(&[
        "run",
        "-np",
        "1",
        "--no-prefix",
        "printf",
        r"1%%\r2%%\r\nend",
    ]));
    assert_eq!(plain.stdout, "1%\n2%\nend\n");
    let timed = outcome(ronde(&[
        "run",
        "-np",
        "1",
        "--prefix-output-with-timestamp",
        "echo",
        "x",
    ]));
    let digits_out: String = timed
        .stdout
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert!(
        digits_out.ends_with(" 00:00:00 0000[0]<stdout>:x\n"),
        "{}",
        timed.stdout
    );
}

#[test]
fn lines_stay_whole_whatever_the_ranks_do() {
    let script = "i=0; while [ $i -lt 300 ]; do printf 'begin-é-'; printf '%s-end\\n' $i; i=$((i+1)); done";
    let outcome = outcome(run_script(4, script));
    let mut next = [0; 4];
    for line in outcome.stdout.lines() {
        let rank: usize = line[1..2].parse().unwrap();
        assert_eq!(line, format!("[{rank}]<stdout>:begin-é-{}-end", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [300; 4]);
}

#[test]
fn standard_input_is_rank_0s() {
    let mut command = run_script(3, "cat; echo end");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let outcome = of(finish(child));
    let expected = [
        "[0]<stdout>:end",
        "[0]<stdout>:hello",
        "[1]<stdout>:end",
        "[2]<stdout>:end",
    ];
    assert_eq!(sorted(&outcome.stdout), expected);
}

#[test]
fn a_closed_standard_output_ends_the_job() {
    let mut child = run_script(2, "echo $$; while echo more; do :; done; sleep 1000")
        .spawn()
        .unwrap();
    let pids = {
        let mut pids = Vec::new();
        let lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        for line in lines {
            pids.extend(line.rsplit_once(':').unwrap().1.parse::<u32>());
            if pids.len() == 2 {
                break;
            }
        }
        pids // the pipe is closed here
    };
    assert_eq!(of(finish(child)).code, Some(141));
    assert_all_end(&pids);
}

#[test]
fn a_paused_reader_does_not_keep_the_launcher_from_its_signals() {
    let mut child = run_script(2, "echo $$; while :; do echo more; done")
        .spawn()
        .unwrap();
    let pids = read_pids(&mut child, 1);
    // Nobody reads standard output from here on, so the pipe fills and stays full.
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert_all_end(&pids);
    assert_eq!(of(finish(child)).code, Some(143));
}

/// Live output leaves rank 0 the launcher's own standard output, so this test looks at it from outside: it runs itself
/// again as the launcher.
#[test]
fn live_output_is_rank_0s_own() {
    const LAUNCHER: &str = "TEST_RONDE_LIVE_LAUNCHER";
    if std::env::var_os(LAUNCHER).is_some() {
        // Rank 1 ends the job with its code, once rank 0 has printed.
        let script = "test $HOROVOD_RANK = 1 && while ! test -e $GATE; do sleep 0.01; done; \
                      echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2; touch $GATE; exit $HOROVOD_RANK";
        let code = ronde::cli::run::launch(&LaunchSpec {
            label: "live".into(),
            command: ["sh", "-c", script].map(Into::into).to_vec(),
            num_proc: 2,
            environment: Vec::new(),
            output: ronde::cli::run::Output::Live,
            output_dir: None,
            verbose: false,
            guard: None,
        });
        std::process::exit(code.unwrap().into());
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "live_output_is_rank_0s_own", "--nocapture"])
        .env(LAUNCHER, "1");
    let outcome = of(finish(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    ));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let (stdout, stderr) = (outcome.stdout, outcome.stderr);
    assert!(
        stdout.contains("out 0\n") && !stdout.contains("]<stdout>:") && !stdout.contains("out 1"),
        "{stdout}"
    );
    assert!(
        stderr.contains("[1]<stderr>:err 1\n") && stderr.contains("live: rank 1 exited with code 1"),
        "{stderr}"
    );
    assert!(
        stderr.contains("err 0\n") && !stderr.contains("[0]<stderr>"),
        "{stderr}"
    );
}

#[test]
fn numbers_of_ranks_that_cannot_be_are_errors() {
    let spec = LaunchSpec {
        label: "test".into(),
        command: vec!["true".into()],
        num_proc: 0,
        environment: Vec::new(),
        output: ronde::cli::run::Output::Plain,
        output_dir: None,
        verbose: false,
        guard: None,
    };
    for num_proc in [0, MAX_RANKS + 1] {
        let error = ronde::cli::run::launch(&LaunchSpec {
            num_proc,
            ..spec.clone()
        })
        .unwrap_err();
        assert_eq!(
            (error.exit_code(), error.to_string()),
            (2, format!("{num_proc} ranks cannot be started: expected 1 to 64"))
        );
    }
    let error = ronde::cli::run::launch(&LaunchSpec {
        command: Vec::new(),
        num_proc: 1,
        ..spec
    })
    .unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn verbose_tells_start_and_end() {
    let outcome = outcome(ronde(&["run", "-np", "2", "--verbose", "true"]));
    assert!(
        outcome.stderr.contains("ronde run: started 2 ranks of: true"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("ronde run: rank 1 exited with code 0"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn the_other_subcommands_print() {
    let knobs = outcome(ronde(&["knobs"]));
    assert!(
        knobs.code == Some(0) && knobs.stdout.contains("HOROVOD_FUSION_THRESHOLD"),
        "{}",
        knobs.stdout
    );

    let mut command = ronde(&["knobs", "--effective"]);
    command
        .env("HOROVOD_CYCLE_TIME", "2.5")
        .env("RONDE_EARLY_CICLE", "0");
    let effective = outcome(command);
    let row = effective
        .stdout
        .lines()
        .find(|line| line.starts_with("cycle_time_ms"))
        .unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["cycle_time_ms", "2.5", "HOROVOD_CYCLE_TIME"]
    );
    assert!(
        effective.stderr.contains("did you mean RONDE_EARLY_CYCLE?"),
        "{}",
        effective.stderr
    );

    let mut command = ronde(&["knobs", "--effective"]);
    command.env("HOROVOD_CYCLE_TIME", "soon");
    assert_eq!(outcome(command).code, Some(1));

    let build = outcome(ronde(&["run", "-cb"]));
    assert!(
        build.code == Some(0) && build.stdout.contains("Available Controllers:"),
        "{}",
        build.stdout
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = outcome(ronde(&["completions", shell]));
        assert!(
            script.code == Some(0) && script.stdout.contains("num-proc"),
            "{shell}"
        );
    }
    assert_eq!(outcome(ronde(&["completions", "tcsh"])).code, Some(2));
    assert_eq!(outcome(ronde(&[])).code, Some(2));
}
