//! Tests of the local transport with ranks as processes: death, departure, and leaks.
//!
//! The other ranks are this test binary again, running [`rank_of_a_job`] alone.

#![allow(unsafe_code)] // forks

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use super::super::*;
use super::{PATIENCE, WORDS, config};
use crate::error::PeerError;
use crate::negotiation::{Agreement, Block};
use crate::rendezvous::{Patience, RendezvousConfig};

pub(super) const TASK: &str = "RONDE_TEST_TASK";
/// The documented two seconds, and slack for a busy machine.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Starts a process as set rank `rank` of `config`, with a task.
pub(super) fn spawn(config: &RendezvousConfig, rank: usize, task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "transport::local::tests::processes::rank_of_a_job",
            "--ignored",
            "--nocapture",
        ])
        .env(
            TASK,
            format!(
                "{task} {rank} {} {} {}",
                serde_json::to_string(&config.members[..]).unwrap(),
                config.init,
                config.job_key
            ),
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn open(config: &RendezvousConfig, rank: usize) -> LocalTransport {
    let config = RendezvousConfig {
        rank,
        ..config.clone()
    };
    LocalTransport::open(&config, WORDS, 1 << 20, |_| PATIENCE)
        .unwrap()
        .transport
}

/// Runs cycles with blocks and frames until an error occurs.
fn cycle_on(transport: &mut LocalTransport, first: u64, cycles: u64) -> Result<(), Error> {
    let mut agreed = Agreement::default();
    let mut frames = Vec::new();
    for cycle in first..first + cycles {
        transport.exchange(cycle, &Block::new(1).contribution(false), &mut agreed)?;
        transport.gather(&[7; 40_000], &mut frames)?;
        transport.broadcast(&mut vec![8; 40_000])?;
    }
    Ok(())
}

#[test]
#[ignore = "a rank of the other tests' jobs; they start it"]
fn rank_of_a_job() {
    let task = std::env::var(TASK).expect("started by another test");
    let words: Vec<&str> = task.splitn(5, ' ').collect();
    let number = |index: usize| words[index].parse::<usize>().unwrap();
    let config = RendezvousConfig {
        job_key: words[4].to_owned(),
        init: number(3) as u32,
        members: serde_json::from_str::<Vec<usize>>(words[2]).unwrap().into(),
        ..config("", 1)
    };
    let rank = number(1);
    match words[0] {
        "cycle" => {
            let mut transport = open(&config, rank);
            let error = cycle_on(&mut transport, 1, u64::MAX - 1).unwrap_err();
            println!("error: {error}");
            transport.leave(Some(&error));
        }
        "leave" => {
            let mut transport = open(&config, rank);
            cycle_on(&mut transport, 1, 3).unwrap();
            transport.leave(None);
        }
        "exit" => {
            let mut transport = open(&config, rank);
            cycle_on(&mut transport, 1, 3).unwrap();
            std::process::exit(0);
        }
        "again" => again(&config),
        "fork" => fork(&config),
        "limits" => limits(&config),
        "sets" => super::sets::member(&config, rank),
        other => panic!("unknown task {other}"),
    }
}

/// Output of a rank that ran `cycle`, after it has ended.
fn output(rank: Child) -> String {
    let output = rank.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn signal(rank: &Child, signal: Signal) {
    kill_process(Pid::from_child(rank), signal).unwrap();
}

#[test]
fn a_killed_rank_is_named_by_every_survivor() {
    for round in 0..8 {
        let config = config("killed", 3);
        let survivor = spawn(&config, 1, "cycle");
        let mut victim = spawn(&config, 2, "cycle");
        let pid = victim.id();
        let mut transport = open(&config, 0);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3 * round));
            signal(&victim, Signal::KILL);
            let killed = Instant::now();
            victim.wait().unwrap();
            killed
        });
        let error = cycle_on(&mut transport, 1, u64::MAX - 1).unwrap_err();
        let noticed = Instant::now();
        assert!(
            matches!(error, Error::Peer(PeerError::Lost { rank: 2, pid: p }) if p == pid),
            "{error}"
        );
        transport.leave(Some(&error));
        let killed = killer.join().unwrap();
        assert!(noticed.saturating_duration_since(killed) < DEADLINE);
        let text = output(survivor);
        assert!(
            text.contains(&format!("error: rank 2 died (process {pid})")),
            "{text}"
        );
        assert!(killed.elapsed() < DEADLINE);
        assert!(matches!(
            transport.check_peers(),
            Err(Error::Peer(PeerError::Lost { rank: 2, .. }))
        ));
    }
}

#[test]
fn rank_0_dies_too() {
    let config = config("killed-0", 3);
    let mut zero = spawn(&config, 0, "cycle");
    let pid = zero.id();
    let survivor = spawn(&config, 2, "cycle");
    let mut transport = open(&config, 1);
    cycle_on(&mut transport, 1, 5).unwrap();
    signal(&zero, Signal::KILL);
    zero.wait().unwrap();
    let error = cycle_on(&mut transport, 6, u64::MAX - 6).unwrap_err();
    assert!(
        matches!(error, Error::Peer(PeerError::Lost { rank: 0, pid: p }) if p == pid),
        "{error}"
    );
    assert!(output(survivor).contains(&format!("rank 0 died (process {pid})")));
}

#[test]
fn a_rank_that_exits_without_leaving_is_lost_though_its_exit_code_is_0() {
    let config = config("exit", 2);
    let mut other = spawn(&config, 1, "exit");
    let mut transport = open(&config, 0);
    cycle_on(&mut transport, 1, 3).unwrap();
    assert!(other.wait().unwrap().success());
    assert!(matches!(
        transport.check_peers(),
        Err(Error::Peer(PeerError::Lost { rank: 1, .. }))
    ));
}

#[test]
fn a_rank_that_leaves_and_exits_has_left() {
    let config = config("leave", 2);
    let mut other = spawn(&config, 1, "leave");
    let mut transport = open(&config, 0);
    cycle_on(&mut transport, 1, 3).unwrap();
    assert!(other.wait().unwrap().success());
    let error = cycle_on(&mut transport, 4, 1).unwrap_err();
    assert!(
        matches!(error, Error::Peer(PeerError::Left { rank: 1 })),
        "{error}"
    );
}

/// A log that a test can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stopped_rank_is_warned_about_and_waited_for_until_the_limit() {
    let config = RendezvousConfig {
        members: Arc::new([4, 7]),
        ..config("stopped", 2)
    };
    let mut other = spawn(&config, 1, "cycle");
    let patience = Patience {
        warn_after: Duration::from_millis(400),
        give_up_after: Some(Duration::from_secs(3)),
        ..PATIENCE
    };
    let mut transport = LocalTransport::open(&config, WORDS, 1 << 20, |_| patience)
        .unwrap()
        .transport;
    cycle_on(&mut transport, 1, 5).unwrap();
    signal(&other, Signal::STOP);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let error = tracing::subscriber::with_default(subscriber, || {
        cycle_on(&mut transport, 6, u64::MAX - 6).unwrap_err()
    });
    assert!(
        matches!(error, Error::Peer(PeerError::Stalled { rank: 7, .. })),
        "{error}"
    );
    signal(&other, Signal::KILL);
    other.wait().unwrap();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let about = format!(
        "a rank that is stopped; continue it (SIGCONT) rank=7 pid={}",
        other.id()
    );
    assert!(log.contains(&about), "{log}");
    // One line each 0.4 s, unless the machine was too busy for the later ones.
    assert!((1..=7).contains(&log.lines().count()), "{log}");
}

#[test]
fn a_limit_on_file_size_or_address_space_is_an_error_and_not_a_signal() {
    let mut rank = spawn(&config("limits", 1), 0, "limits");
    assert!(rank.wait().unwrap().success());
}

fn limits(config: &RendezvousConfig) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let taken = pages * rustix::param::page_size() as u64;
    for (resource, limit, word) in [
        (
            Resource::As,
            taken + (64 << 20),
            "address space (ulimit -v)",
        ),
        (Resource::Fsize, 1 << 20, "file size (ulimit -f)"),
    ] {
        let before = getrlimit(resource);
        let lower = Rlimit {
            current: Some(limit),
            ..before
        };
        setrlimit(resource, lower).unwrap();
        let outcome = LocalTransport::open(config, WORDS, 128 << 20, |_| PATIENCE);
        setrlimit(resource, before).unwrap();
        let error = outcome.map(|_| ()).unwrap_err();
        assert!(matches!(error, RendezvousError::Memory { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
        open(config, 0);
    }
}

#[test]
fn hundreds_of_contexts_leave_nothing_behind() {
    let mut rank = spawn(&config("again", 3), 0, "again");
    assert!(rank.wait().unwrap().success());
}

/// Number of open files, and of mappings of shared regions, of this process.
fn holdings() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.matches("memfd:ronde").count())
}

/// In a process of its own, so that no other test's files are counted.
fn again(base: &RendezvousConfig) {
    let mut before = None;
    for init in 0..200 {
        let config = RendezvousConfig {
            init,
            ..base.clone()
        };
        std::thread::scope(|scope| {
            for rank in 0..config.size() {
                let config = &config;
                scope.spawn(move || cycle_on(&mut open(config, rank), 1, 2).unwrap());
            }
        });
        // The first round may open files that stay open, such as a standard stream. A thread that
        // has ended its work may still close some.
        let most = *before.get_or_insert_with(holdings);
        let until = Instant::now() + Duration::from_secs(10);
        while holdings().0 > most.0 && Instant::now() < until {
            std::thread::yield_now();
        }
        let now = holdings();
        assert!(
            now.0 <= most.0,
            "after {init} rounds: {now:?}, {most:?} expected"
        );
        assert_eq!(now.1, 0, "mappings");
    }
}

#[test]
fn a_forked_child_cannot_leave_for_its_parent() {
    let mut rank = spawn(&config("fork", 1), 0, "fork");
    assert!(rank.wait().unwrap().success());
}

fn fork(config: &RendezvousConfig) {
    let mut transport = open(config, 0);
    let bell = transport.doorbell();
    // SAFETY: the child drops its inherited values and exits at once; it takes no lock of another
    // thread except the allocator's, which libc handles.
    let child = unsafe { libc::fork() };
    if child == 0 {
        transport.leave(None);
        drop(bell);
        drop(transport);
        // SAFETY: ends this process without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let child = Pid::from_raw(child).unwrap();
    let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
        .unwrap()
        .unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
    // The region is still mapped here, and this rank is still present.
    cycle_on(&mut transport, 1, 3).unwrap();
    transport.check_peers().unwrap();
    let seen = bell.wakes();
    bell.wake_self();
    assert_ne!(bell.wakes(), seen);
}
