//! Tests of signals to the launcher.

use super::*;
use crate::support::program::by_default;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

#[test]
fn signals_reach_the_ranks() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let script = format!(
            "trap 'echo got {signal}; exit 0' {signal}; echo $$; while :; do sleep 0.02; done"
        );
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
    // The rank sends SIGHUP to its launcher, which must continue until it gets the rank's own exit
    // code.
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
    let job = run_script(2, "trap '' INT TERM; echo $$; while :; do sleep 1; done");
    let mut child = by_default("INT", &job).spawn().unwrap();
    let pids = read_pids(&mut child, 2);
    send(&child, "INT");
    // The first must have been received: two signals of a kind may arrive as one.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("passing SIGINT on"), "{line}");
    send(&child, "INT");
    assert_eq!(of(finish(child)).code, Some(130));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("some ranks have not ended"), "{rest}");
    assert_all_end(&pids);
}

#[test]
fn a_paused_reader_does_not_keep_the_launcher_from_its_signals() {
    let mut child = run_script(2, "echo $$; while :; do echo more; done")
        .spawn()
        .unwrap();
    let pids = read_pids(&mut child, 1);
    // Standard output is not read from here on, so the pipe fills and stays full.
    std::thread::sleep(Duration::from_millis(300));
    send(&child, "TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert_all_end(&pids);
    assert_eq!(of(finish(child)).code, Some(143));
}
