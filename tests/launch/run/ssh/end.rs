//! Tests of the end: signals, a launcher or an agent that is killed, a connection that is lost.

use super::*;
use crate::support::program::by_default;

/// Starts ranks that print their pid and the folder of their secret; returns their pids.
fn start(hosts: &Hosts, script: &str) -> (Child, Vec<u32>) {
    let job = hosts.run(3, "node1:2,localhost", &[], script);
    let mut child = by_default("INT", &job).spawn().unwrap();
    let pids = read_pids(&mut child, 3);
    (child, pids)
}

#[test]
fn signals_reach_the_ranks_of_all_hosts() {
    let hosts = Hosts::new();
    let script = "trap 'echo got; exit 0' INT; echo $$; while :; do sleep 0.02; done";
    let (child, pids) = start(&hosts, script);
    send(&child, "INT");
    let out = of(finish(child));
    assert_eq!(out.code, Some(130), "{}", out.stderr);
    assert!(out.stderr.contains("passing SIGINT on"), "{}", out.stderr);
    assert_eq!(out.stdout.matches("got").count(), 3, "{}", out.stdout);
    assert_all_end(&pids);
    assert!(hosts.are_clean());
}

#[test]
fn a_second_signal_kills_the_ranks_of_all_hosts() {
    let hosts = Hosts::new();
    let (mut child, pids) = start(
        &hosts,
        "trap '' INT TERM; echo $$; while :; do sleep 1; done",
    );
    send(&child, "INT");
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("passing SIGINT on"), "{line}");
    send(&child, "INT");
    assert_eq!(of(finish(child)).code, Some(130));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    // Agents kill without waiting.
    assert!(!rest.contains("some ranks have not ended"), "{rest}");
    assert_all_end(&pids);
    assert!(hosts.are_clean());
}

#[test]
fn ranks_end_with_the_launcher() {
    let hosts = Hosts::new();
    let (mut child, pids) = start(&hosts, "echo $$; exec sleep 1000");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_end(&pids);
    assert!(hosts.are_clean());
}

#[test]
fn ranks_end_with_the_connection() {
    let hosts = Hosts::new();
    let (child, pids) = start(&hosts, "echo $$; exec sleep 1000");
    let ssh = hosts.process("node1", "ssh");
    let status = Command::new("kill").args(["-9", &ssh.to_string()]).status();
    assert!(status.unwrap().success());
    let out = of(finish(child));
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    assert!(out.stderr.contains("ronde run: node1: "), "{}", out.stderr);
    assert_all_end(&pids);
    assert!(hosts.are_clean());
}

#[test]
fn ranks_end_with_their_agent_and_the_secret_is_removed() {
    let hosts = Hosts::new();
    let (child, pids) = start(&hosts, "echo $$; exec sleep 1000");
    let agent = hosts.process("node1", "agent");
    let status = Command::new("kill")
        .args(["-9", &agent.to_string()])
        .status();
    assert!(status.unwrap().success());
    let out = of(finish(child));
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    assert!(out.stderr.contains("ronde run: node1: "), "{}", out.stderr);
    assert_all_end(&pids);
    assert!(hosts.are_clean());
}
