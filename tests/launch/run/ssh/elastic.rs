//! Tests of elastic jobs on several hosts: agents and hosts that are lost, replaced and removed.
//!
//! The processes are this test's executable, which speaks with the launcher and trains nothing.

use super::*;
use crate::support::program::by_default;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// Variable that makes the test a process of an elastic job: a file that ends it.
const END: &str = "TEST_RONDE_ELASTIC_END";

/// Process of an elastic job, if this test was started as one: it prints its places.
#[test]
fn process() {
    let Some(end) = std::env::var_os(END) else {
        return;
    };
    let variable = |name: &str| std::env::var(name).unwrap();
    let mut stream = UnixStream::connect(variable("RONDE_ELASTIC_SOCKET")).unwrap();
    let patience = Some(Duration::from_millis(200));
    stream.set_read_timeout(patience).unwrap();
    let member = variable("RONDE_ELASTIC_MEMBER");
    write!(stream, "hello {member}\nstarted\n").unwrap();
    let secret = std::fs::metadata(variable("RONDE_SECRET_FILE")).unwrap();
    println!(
        "process {member} pid {} secret {:o} on {} id {}",
        std::process::id(),
        secret.permissions().mode() & 0o777,
        variable("HOROVOD_HOSTNAME"),
        variable("RONDE_HOST_ID"),
    );
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while !Path::new(&end).exists() {
        match reader.read_line(&mut line) {
            Ok(0) => std::process::exit(3), // the launcher or the agent has ended
            Ok(_) => {}
            Err(_) => {
                writeln!(stream, "alive").unwrap();
                continue;
            }
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["seat", generation, rank, _, _, ranks, server] => {
                println!("seat {generation} rank {rank} of {ranks} at {server}");
            }
            ["over", generation] => writeln!(stream, "failed {generation} 1 -").unwrap(),
            ["updated", ..] => writeln!(stream, "interrupted").unwrap(),
            ["leave"] => std::process::exit(0),
            other => panic!("{other:?}"),
        }
        line.clear();
    }
    std::process::exit(0);
}

/// Elastic job whose output is read while it runs.
struct Job {
    child: Running,
    end: PathBuf,
    lines: std::sync::mpsc::Receiver<String>,
    seen: String,
    /// Lines that nothing waited for yet.
    kept: Vec<String>,
}

/// Launcher, which is killed if the test fails.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Job {
    fn start(hosts: &Hosts, flags: &[&str]) -> Self {
        Self::start_program(hosts, flags, &std::env::current_exe().unwrap())
    }

    /// Starts a job of `program`, a name of this executable.
    fn start_program(hosts: &Hosts, flags: &[&str], program: &Path) -> Self {
        let end = hosts.0.path().join("end");
        // Longer than a reset takes on a loaded machine.
        let mut arguments = vec!["run", "--blacklist-cooldown-range", "4", "60"];
        arguments.extend(flags);
        arguments.extend(["--", program.to_str().unwrap()]);
        arguments.extend(["run::ssh::elastic::process", "--exact", "--nocapture"]);
        let mut command = hosts.command(&arguments);
        command.env(END, &end).env("RONDE_HOST_ID", "the-launcher"); // not that of other hosts
        let mut command = by_default("INT", &command);
        let mut child = command.spawn().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().unwrap());
        let stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().unwrap());
        for pipe in [stdout, stderr] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(pipe).lines().map_while(Result::ok);
                lines.for_each(|line| drop(sender.send(line)));
            });
        }
        Self {
            child: Running(Some(child)),
            end,
            lines,
            seen: String::new(),
            kept: Vec::new(),
        }
    }

    /// Waits for a line with all parts that was not returned before, and returns it.
    ///
    /// Lines of different pipes arrive in any order.
    #[track_caller]
    fn wait_for(&mut self, parts: &[&str]) -> String {
        let fits = |line: &String| parts.iter().all(|part| line.contains(part));
        if let Some(at) = self.kept.iter().position(fits) {
            return self.kept.remove(at);
        }
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {parts:?} in:\n{}", self.seen);
            };
            self.seen += &format!("{line}\n");
            if fits(&line) {
                return line;
            }
            self.kept.push(line);
        }
    }

    /// Exit code, and all output.
    fn ended(mut self) -> (Option<i32>, String) {
        let output = finish(self.child.0.take().unwrap());
        self.seen.extend(self.lines.iter().map(|line| line + "\n"));
        (output.status.code(), self.seen)
    }

    fn end(self) -> (Option<i32>, String) {
        std::fs::write(&self.end, "").unwrap();
        self.ended()
    }
}

/// Number after a word of a line.
fn number(line: &str, word: &str) -> u32 {
    let mut words = line.split(' ').skip_while(|found| *found != word);
    words.nth(1).unwrap().parse().unwrap()
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_host_whose_agent_is_killed_is_lost_and_used_again() {
    let hosts = Hosts::new();
    let mut job = Job::start(
        &hosts,
        &["-np", "3", "--min-np", "1", "-H", "localhost:1,node1:2"],
    );
    let seat = job.wait_for(&["seat 1 rank 0 of 1,2 at "]);
    assert!(seat.starts_with("[0]<stdout>:"), "{seat}");
    let server = seat.rsplit_once(' ').unwrap().1.to_owned();
    job.wait_for(&["seat 1 rank ", " of 1,2 at ", &server]);
    job.wait_for(&["seat 1 rank ", " of 1,2 at ", &server]);
    let started: Vec<String> = job.seen.lines().map(str::to_owned).collect();
    let started = started
        .iter()
        .filter(|line| line.contains("secret 600 on node1"));
    let pids: Vec<u32> = started.map(|line| number(line, "pid")).collect();
    assert_eq!(pids.len(), 2, "{}", job.seen);
    kill(hosts.process("node1", "agent"));
    job.wait_for(&["ronde run: node1: ", "; ranks 1, 2 are lost"]);
    let alone = job.wait_for(&["[0]<stdout>:seat 2 rank 0 of 1 at 127.0.0.1:"]);
    assert_ne!(alone.rsplit_once(' ').unwrap().1, server);
    assert_all_end(&pids);
    job.wait_for(&["[0]<stdout>:seat 3 rank 0 of 1,2 at "]);
    let (code, output) = job.end();
    assert_eq!(code, Some(0), "{output}");
    for reset in ["reset 1: 1 rank on 1 host", "reset 2: 3 ranks on 2 hosts"] {
        assert!(output.contains(reset), "{output}");
    }
    assert!(hosts.are_clean());
}

#[test]
fn hosts_that_appear_are_used_and_hosts_that_vanish_are_left() {
    let hosts = Hosts::new();
    let list = hosts.0.path().join("hosts");
    let script = hosts.0.path().join("discover");
    // The script reads a whole list at any time.
    let write = |text: &str| {
        let next = list.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &list).unwrap();
    };
    write("node1:1\n");
    write_program(&script, &format!("#!/bin/sh\ncat '{}'\n", list.display()));
    let script = script.to_str().unwrap();
    let mut job = Job::start(
        &hosts,
        &[
            "-np",
            "1",
            "--min-np",
            "1",
            "--host-discovery-script",
            script,
        ],
    );
    job.wait_for(&["seat 1 rank 0 of 1 at "]);
    write("node1:1\nnode2:1\nrefused:1\n");
    job.wait_for(&["refused: ssh cannot connect", "Connection refused"]);
    job.wait_for(&["seat 2 rank 0 of 1,1 at node1:"]);
    let agent = hosts.process("node1", "agent");
    write("node2:1\n");
    job.wait_for(&["seat 3 rank 0 of 1 at node2:"]);
    assert_all_end(&[agent]); // nothing is left to do there
    let (code, output) = job.end();
    assert_eq!(code, Some(0), "{output}");
    assert!(!output.contains("lost"), "{output}");
    assert!(hosts.are_clean());
}

#[test]
fn a_job_without_enough_hosts_names_those_that_failed() {
    let hosts = Hosts::new();
    for (host, part) in [
        ("unknown", "Could not resolve hostname"),
        ("old", "has version 0.0.1"),
        ("garbage", "\"what?\""),
        ("empty", "cannot be started there"),
    ] {
        let list = format!("localhost:1,{host}:1");
        let program = ["--", "sh", "-c", "exec sleep 1000"];
        let mut arguments = vec!["run", "-np", "2", "--min-np", "2", "-H", &list];
        arguments.extend(program);
        let out = outcome(hosts.command(&arguments));
        assert_eq!(out.code, Some(1), "{}", out.stderr);
        let missing = "1 of 2 slots are available (-np 2); hosts: localhost:1, ";
        let named = format!("{missing}{host}:1 (failed, barred); {host}");
        for part in [part, &named] {
            assert!(out.stderr.contains(part), "{part} in: {}", out.stderr);
        }
    }
    assert!(hosts.are_clean());
}

#[test]
fn without_ssh_it_is_said_what_to_install() {
    let hosts = Hosts::new();
    let list = "localhost:1,node1:2";
    let mut command = hosts.command(&[
        "run",
        "-np",
        "3",
        "--min-np",
        "1",
        "-H",
        list,
        "--",
        "/bin/true",
    ]);
    command.env("PATH", "/nonexistent");
    let out = outcome(command);
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    let text = "ronde run: cannot start ssh for the host node1";
    assert_eq!(out.stderr.matches(text).count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains("openssh-client"), "{}", out.stderr);
}

/// Elastic job of two ranks.
fn two_ranks(hosts: &Hosts, list: &str, program: &str) -> Command {
    let flags = ["run", "-np", "2", "--min-np", "1", "-H", list];
    hosts.command(&[&flags[..], &["--", program]].concat())
}

#[test]
fn a_command_that_a_host_does_not_have_is_a_failure_of_its_processes() {
    let hosts = Hosts::new();
    let out = outcome(two_ranks(&hosts, "node1:2", "no-such-command"));
    assert_eq!(out.code, Some(127), "{}", out.stderr);
    let text = "a new process on host node1 was not started: cannot start no-such-command";
    assert!(out.stderr.contains(text), "{}", out.stderr);
    assert!(hosts.are_clean());
}

#[test]
fn ranks_go_on_if_another_process_of_the_launchers_host_cannot_be_started() {
    let hosts = Hosts::new();
    let program = hosts.0.path().join("program");
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &program).unwrap();
    let flags = ["-np", "2", "--min-np", "1", "-H", "localhost:2"];
    let mut job = Job::start_program(&hosts, &flags, &program);
    let started = job.wait_for(&["secret 600"]);
    job.wait_for(&["seat 1 rank"]);
    job.wait_for(&["seat 1 rank"]);
    std::fs::remove_file(&program).unwrap();
    kill(number(&started, "pid"));
    job.wait_for(&["seat 2 rank 0 of 1 "]);
    job.wait_for(&["a new process on host localhost was not started: cannot start "]);
    let (code, output) = job.end();
    assert_eq!(code, Some(0), "{output}");
}

#[test]
fn processes_of_all_hosts_end_with_a_signal_and_with_the_launcher() {
    for signal in ["INT", "KILL"] {
        let hosts = Hosts::new();
        let mut job = Job::start(
            &hosts,
            &["-np", "2", "--min-np", "1", "-H", "localhost:1,node1:1"],
        );
        job.wait_for(&["seat 1 rank"]);
        job.wait_for(&["seat 1 rank"]);
        let started = job.seen.lines().filter(|line| line.contains("secret 600"));
        let pids: Vec<u32> = started.map(|line| number(line, "pid")).collect();
        assert_eq!(pids.len(), 2, "{}", job.seen);
        send(job.child.0.as_ref().unwrap(), signal);
        let (code, output) = job.ended();
        assert_eq!(code, (signal == "INT").then_some(130), "{output}");
        assert_all_end(&pids);
        assert!(hosts.are_clean());
    }
}

#[test]
fn two_names_of_this_machine_are_two_hosts() {
    let hosts = Hosts::new();
    let flags = ["-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1"];
    let mut job = Job::start(&hosts, &flags);
    job.wait_for(&["seat 1 rank "]);
    job.wait_for(&["seat 1 rank "]);
    let (code, output) = job.end();
    assert_eq!(code, Some(0), "{output}");
    for text in [
        "on localhost id localhost",
        "on 127.0.0.1 id 127.0.0.1",
        "seat 1 rank 0 of 1,1 at 127.0.0.1:",
        "seat 1 rank 1 of 1,1 at 127.0.0.1:",
    ] {
        assert!(output.contains(text), "{output}");
    }
}
