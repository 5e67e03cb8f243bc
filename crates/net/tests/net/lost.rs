//! Processes that are killed or stopped: the others report the rank and its host.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::free_address;
use ronde_net::{Config, Mesh, Secret};
use rustix::process::{Pid, Signal, kill_process};

const SIZE: usize = 5;
/// The rank that is lost.
const LOST: usize = 3;
/// When the rank is lost, after all have joined.
const STOP_AFTER: Duration = Duration::from_millis(1500);
/// Limit for the report, beside what a busy machine adds.
const LIMIT: Duration = Duration::from_secs(6);
const BUSY: Duration = Duration::from_secs(10);

/// The body of a rank's process; this test does nothing unless it is started as one.
#[test]
fn rank_process() {
    let Ok(rank) = std::env::var("NET_TEST_RANK") else {
        return;
    };
    let variable = |name| std::env::var(name).expect("set by the test");
    let rank: usize = rank.parse().unwrap();
    let server = variable("NET_TEST_SERVER").parse().unwrap();
    let config = Config {
        host: format!("host{rank}"),
        ..Config::new(rank, SIZE, server, Secret::of_job("lost"), "lost")
    };
    let (mesh, comm) = crate::support::join(&config).unwrap();
    println!("joined");
    let joined = Instant::now();
    // More than the buffers of the connection hold, to a rank that is stopped by then.
    let has_much = variable("NET_TEST_MODE") == "send" && rank == 0;
    let mut sent = None;
    let error = loop {
        if let Err(error) = mesh.turn(None) {
            break error;
        }
        if has_much && sent.is_none() && joined.elapsed() > 3 * STOP_AFTER {
            sent = Some(comm.send(vec![7; 12 << 20], LOST, 1));
        }
    };
    if let Some(mut sent) = sent {
        assert_eq!(sent.test(), Err(error.clone()));
    }
    println!("{error}");
}

/// The ranks of a job; killed when dropped.
struct Job(Vec<Child>);

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends `signal` to a rank of a job, and checks what the others report.
fn lose(signal: Signal, mode: &str, expected: &str) {
    let server = free_address("127.0.0.1").to_string();
    let start = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["lost::rank_process", "--exact", "--nocapture"])
            .env("NET_TEST_RANK", rank.to_string())
            .env("NET_TEST_SERVER", &server)
            .env("NET_TEST_MODE", mode)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut job = Job((0..SIZE).map(start).collect());
    for child in &mut job.0 {
        let mut text = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        while !text.contains("joined\n") {
            let mut byte = [0];
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{text}");
            text.push(char::from(byte[0]));
        }
    }
    // The heartbeats have begun.
    std::thread::sleep(STOP_AFTER);
    let began = Instant::now();
    let pid = Pid::from_child(&job.0[LOST]);
    kill_process(pid, signal).unwrap();
    for rank in (0..SIZE).filter(|rank| *rank != LOST) {
        let mut text = String::new();
        let stdout = job.0[rank].stdout.as_mut().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        let took = began.elapsed();
        let who = format!("rank {LOST} on host{LOST} is lost: ");
        assert!(
            text.contains(&who) && text.contains(expected),
            "rank {rank}: {text}"
        );
        assert!(took < LIMIT + BUSY, "{took:?}");
        println!(
            "{signal:?} {mode}: rank {rank} after {} ms",
            took.as_millis()
        );
    }
}

#[test]
fn a_killed_rank_is_reported_by_all() {
    // It has ended, or failed with a reset if the killed process had not read everything.
    lose(Signal::KILL, "idle", "its connection has ");
}

#[test]
fn a_stopped_rank_is_reported_by_all() {
    lose(Signal::STOP, "idle", "it has sent nothing for ");
}

#[test]
fn a_stopped_rank_with_a_full_buffer_is_reported_by_all() {
    lose(Signal::STOP, "send", "it has sent nothing for ");
}

#[test]
fn a_stopped_rank_that_goes_on_learns_that_it_was_given_up() {
    // Covered by one process: the report about oneself is an error of its own.
    let mut configs = crate::support::configs(2, free_address("127.0.0.1"));
    let one = configs.remove(1);
    let zero = configs.remove(0);
    let pausing = std::thread::spawn(move || {
        let mesh = Mesh::join(&one).unwrap();
        // As if the process were stopped.
        std::thread::sleep(Duration::from_secs(8));
        loop {
            if let Err(error) = mesh.turn(None) {
                return error.to_string();
            }
        }
    });
    let mesh = Mesh::join(&zero).unwrap();
    let error = loop {
        if let Err(error) = mesh.turn(None) {
            break error.to_string();
        }
    };
    assert!(
        error.starts_with("rank 1 on host1 is lost: it has sent nothing for "),
        "{error}"
    );
    let own = pausing.join().unwrap();
    let given_up = "the other ranks have given up rank 1, which is this process: ";
    assert!(own.starts_with(given_up), "{own}");
}
