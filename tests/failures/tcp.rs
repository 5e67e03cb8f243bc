//! Jobs over TCP: lost ranks are named with their hosts on all survivors within six seconds, and a
//! job that cannot start says why. Each rank counts as a host of its own.

#![allow(unsafe_code)] // sets environment variables

use std::time::{Duration, Instant};

use ronde::{Context, Error, PeerError, ReduceOp};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::support::{free_port, reserve, start_separately};

const TCP: (&str, &str) = ("RONDE_BACKEND", "tcp");

/// Time within which every survivor has its error: the contract is six seconds, the rest is for a
/// busy machine, on which the failing operation itself takes seconds.
const LOST_WITHIN: Duration = Duration::from_secs(30);

/// Returns the context of a rank on a host of its own.
fn context() -> Result<Context, Error> {
    let rank = std::env::var("HOROVOD_RANK").expect("the test sets it");
    // SAFETY: only this rank's test thread accesses the environment.
    unsafe { std::env::set_var("RONDE_HOST_ID", format!("host-of-{rank}")) };
    Context::from_env()
}

fn sum(context: &Context, elements: usize) -> Result<Vec<f32>, Error> {
    let handle = context
        .allreduce("x", vec![1.0f32; elements], ReduceOp::Sum)
        .map_err(|failed| failed.error)?;
    handle.wait().map_err(|failed| failed.error)
}

/// Reduces tensors of `elements` elements until an error, and prints it with the time since the
/// last result.
fn reduce_until_lost(context: &Context, elements: usize) {
    let mut reduced = Instant::now();
    let error = loop {
        match sum(context, elements) {
            Ok(_) => reduced = Instant::now(),
            Err(error) => break error,
        }
    };
    let took = reduced.elapsed();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    match &error {
        Error::Peer(PeerError::Disconnected {
            rank: 1,
            host: named,
            ..
        })
        | Error::Peer(PeerError::Silent {
            rank: 1,
            host: named,
            ..
        }) => assert_eq!(*named, host),
        other => panic!("{other}"),
    }
    assert!(
        error
            .to_string()
            .contains(&format!("rank 1 on host {host}"))
    );
    assert!(took < LOST_WITHIN, "after {took:?}: {error}");
}

/// Rank 1 of three sends itself `signal` while large tensors are being reduced.
fn lost_by(test: &str, signal: Signal) {
    const ELEMENTS: usize = 2 << 20; // connections are full when the rank stops
    let job = start_separately(test, 3, &[TCP], || {
        let context = context().expect("the job starts");
        sum(&context, ELEMENTS).expect("all live");
        if context.rank() == 1 {
            let stop = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                kill_process(getpid(), signal).expect("it may");
            });
            while sum(&context, ELEMENTS).is_ok() {}
            stop.join().expect("the signal was sent");
            return;
        }
        reduce_until_lost(&context, ELEMENTS);
    });
    let Some(mut job) = job else { return };
    // Rank 1 may be stopped, which would keep the test from ending.
    let mut stopped = job.ranks.remove(1);
    for (rank, outcome) in job.finish().iter().enumerate() {
        let rank = 2 * rank;
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
    stopped.kill().expect("its child");
    stopped.wait().expect("it has ended");
}

#[test]
fn a_killed_rank_is_named_with_its_host() {
    lost_by("tcp::a_killed_rank_is_named_with_its_host", Signal::KILL);
}

#[test]
fn a_stopped_rank_is_named_with_its_host() {
    lost_by("tcp::a_stopped_rank_is_named_with_its_host", Signal::STOP);
}

/// Ranks 0 and 1 exchange data for a while, as rank 1 is stopped meanwhile. Rank 2 has none, and
/// leaves at once.
#[test]
fn a_rank_that_is_not_needed_any_more_may_leave_during_an_operation_of_others() {
    let test = "tcp::a_rank_that_is_not_needed_any_more_may_leave_during_an_operation_of_others";
    const ROWS: usize = 64 << 20;
    let job = start_separately(test, 3, &[TCP], || {
        let context = context().expect("the job starts");
        sum(&context, 9).expect("all live");
        let rows = if context.rank() == 2 { 0 } else { ROWS };
        let splits = match context.rank() {
            0 => [0, rows, 0],
            1 => [rows, 0, 0],
            _ => [0; 3],
        };
        let goes_on = (context.rank() == 1).then(|| {
            std::process::Command::new("sh")
                .args(["-c", &format!("sleep 2; kill -CONT {}", std::process::id())])
                .spawn()
                .expect("there is a shell")
        });
        let handle = context.alltoall("x", vec![1u8; rows], &[rows], &splits);
        let handle = handle.expect("in");
        if let Some(mut goes_on) = goes_on {
            std::thread::sleep(Duration::from_millis(20));
            kill_process(getpid(), Signal::STOP).expect("it may");
            goes_on.wait().expect("its child");
        }
        let gathered = handle.wait().expect("nobody else was needed");
        assert_eq!(gathered.tensor.len(), rows);
    });
    let Some(job) = job else { return };
    for (rank, outcome) in job.finish().iter().enumerate() {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
}

#[test]
fn a_context_can_be_left_and_joined_again() {
    let test = "tcp::a_context_can_be_left_and_joined_again";
    let job = start_separately(test, 3, &[TCP], || {
        let (mut held, mut children) = (Vec::new(), Vec::new());
        for round in 1..=4 {
            let context = context().unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(sum(&context, 70_000).expect("all live")[69_999], 3.0);
            if context.rank() == round % 3 {
                std::thread::sleep(Duration::from_millis(50));
            }
            // Process sets of an old context and forked processes must not keep the port in use.
            held.push(context.process_set(0));
            // SAFETY: the child makes system calls only, until a signal ends it.
            match unsafe { libc::fork() } {
                // SAFETY: system calls without memory.
                0 => unsafe {
                    libc::alarm(60);
                    libc::pause();
                    libc::_exit(0);
                },
                child => children.extend(Pid::from_raw(child)),
            }
            context.shutdown();
        }
        for child in children {
            kill_process(child, Signal::KILL).expect("it may");
        }
    });
    let Some(job) = job else { return };
    for (rank, outcome) in job.finish().iter().enumerate() {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
        assert!(!outcome.output.contains("lost"), "{}", outcome.output);
    }
}

/// Starts ranks that fail, with further variables; returns their outputs.
fn refused(test: &str, ranks: usize, env: &[(&str, &str)]) -> Option<Vec<String>> {
    let env = [&[TCP, ("HOROVOD_START_TIMEOUT", "2")], env].concat();
    let job = start_separately(test, ranks, &env, || {
        let error = context().expect_err("it cannot start");
        println!("error: {error}");
    })?;
    let outcomes = job.finish();
    assert!(outcomes.iter().all(|outcome| outcome.status.success()));
    Some(outcomes.into_iter().map(|outcome| outcome.output).collect())
}

#[test]
fn an_address_that_cannot_be_used_is_named_with_its_variable() {
    let test = "tcp::an_address_that_cannot_be_used_is_named_with_its_variable";
    let is_rank = std::env::var_os("TEST_RONDE_BODY").is_some();
    let used = (!is_rank).then(|| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = used.map(|listener| (listener.local_addr().expect("bound").port(), listener));
    let server = format!("127.0.0.1:{}", port.as_ref().map_or(1, |(port, _)| *port));
    let cases = [
        (server.as_str(), "RONDE_TCP_SERVER"),
        ("127.0.0.1", "expected HOST:PORT"),
        (
            "no-such-host.invalid:7",
            "no-such-host.invalid has no address",
        ),
        ("192.0.2.1:7", "set RONDE_TCP_SERVER to one that"),
    ];
    for (server, part) in cases {
        let Some(outputs) = refused(test, 1, &[("RONDE_TCP_SERVER", server), SIZE_2]) else {
            return;
        };
        assert!(outputs[0].contains(part), "{server}: {}", outputs[0]);
    }
}

/// Rank 0 of a job whose rank 1 is not started.
const SIZE_2: (&str, &str) = ("HOROVOD_SIZE", "2");

#[test]
fn a_rank_that_does_not_come_an_interface_and_a_secret_are_named() {
    let test = "tcp::a_rank_that_does_not_come_an_interface_and_a_secret_are_named";
    let file = std::env::current_exe().expect("a file of mode 0755");
    let cases = [
        (SIZE_2, "rank 1 has not connected to rank 0"),
        (
            ("HOROVOD_GLOO_IFACE", "eth99"),
            "HOROVOD_GLOO_IFACE: this host has no network interface eth99",
        ),
        (
            ("RONDE_SECRET_FILE", file.to_str().expect("a name")),
            "chmod 600",
        ),
    ];
    for (variable, part) in cases {
        let Some(outputs) = refused(test, 1, &[variable, SIZE_2]) else {
            return;
        };
        assert!(outputs[0].contains(part), "{variable:?}: {}", outputs[0]);
    }
}

#[test]
fn without_a_secret_another_job_at_the_port_is_a_possible_reason() {
    let test = "tcp::without_a_secret_another_job_at_the_port_is_a_possible_reason";
    let env = [TCP, ("HOROVOD_START_TIMEOUT", "2")];
    let job = start_separately(test, 2, &env, || {
        let rank = std::env::var("HOROVOD_RANK").expect("the test sets it");
        // SAFETY: only this rank's test thread accesses the environment.
        unsafe { std::env::set_var("RONDE_JOB_ID", format!("job-{rank}")) };
        let error = context().expect_err("these are two jobs");
        println!("error: {error}");
    });
    let Some(job) = job else { return };
    let outcomes = job.finish();
    assert!(outcomes.iter().all(|outcome| outcome.status.success()));
    let output = &outcomes[1].output;
    for part in ["the same secret", "another job may use this port"] {
        assert!(output.contains(part), "{output}");
    }
}

#[test]
fn torchrun_s_variables_are_enough_and_its_address_is_the_only_one_that_listens() {
    let test = "tcp::torchrun_s_variables_are_enough_and_its_address_is_the_only_one_that_listens";
    let is_free = |port: &u16| reserve(port + 1).is_ok();
    let mut ports = std::iter::repeat_with(free_port);
    let port = ports.find(is_free).expect("two ports in a row");
    let (master, next) = (port.to_string(), (port + 1).to_string());
    let env = [
        TCP,
        ("RONDE_TCP_SERVER", ""),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &master),
        ("TEST_RONDE_PORT", &next),
    ];
    let job = start_separately(test, 2, &env, || {
        let context = context().expect("the job starts");
        assert_eq!(sum(&context, 9).expect("all live"), [2.0; 9]);
        let port: u16 = std::env::var("TEST_RONDE_PORT")
            .expect("set")
            .parse()
            .expect("a port");
        if context.rank() == 1 {
            std::net::TcpStream::connect(("127.0.0.1", port)).expect("rank 0 listens");
            std::net::TcpStream::connect(("127.0.0.2", port)).expect_err("and only there");
        }
        context.barrier().expect("both come");
    });
    let Some(job) = job else { return };
    for (rank, outcome) in job.finish().iter().enumerate() {
        assert!(outcome.status.success(), "rank {rank}: {}", outcome.output);
    }
}
