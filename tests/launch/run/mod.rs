//! Tests of `ronde run` with real processes: ranks and hosts, output, exit codes, signals, and
//! processes left behind.

mod end;
mod output;
mod settings;
mod signals;
mod ssh;
mod start;
mod subcommands;
mod threads;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any of these jobs takes: reached only by a hang.
const DEADLINE: Duration = Duration::from_secs(180);

fn ronde(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    command
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in [
        "HOROVOD_CYCLE_TIME",
        "HOROVOD_FUSION_THRESHOLD",
        "RONDE_JOB_ID",
    ] {
        command.env_remove(name);
    }
    // Set, as by a user: the launcher then prints no note about it.
    command.env("OMP_NUM_THREADS", "1");
    command
}

/// Returns the command `ronde run -np <ranks> -- sh -c <script>`.
fn run_script(ranks: usize, script: &str) -> Command {
    ronde(&["run", "-np", &ranks.to_string(), "--", "sh", "-c", script])
}

/// Blocks ranks until the test opens it: `wait_gate` in a script waits for a file.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Gate {
        Gate(tempfile::tempdir().unwrap())
    }

    fn run_script(&self, ranks: usize, script: &str) -> Command {
        let wait = "wait_gate() { while ! test -e \"$GATE\"; do sleep 0.01; done; }";
        let mut command = run_script(ranks, &format!("{wait}; {script}"));
        command.env("GATE", self.file());
        command
    }

    fn open(&self) {
        std::fs::write(self.file(), "").unwrap();
    }

    /// File that opens it.
    fn file(&self) -> PathBuf {
        self.0.path().join("open")
    }
}

/// Waits for the end, and reads all output meanwhile.
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
    let signal = match signal {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "TERM" => Signal::TERM,
        other => panic!("{other}"),
    };
    kill_process(Pid::from_child(child), signal).unwrap();
}
