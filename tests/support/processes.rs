//! Jobs of real processes for tests: a test starts its own executable once per rank.
//!
//! `job("module::name_of_the_test", ranks, body)` in a test function starts the ranks in the
//! parent, waits for them and returns the outcome of each; in a rank it runs `body` and exits.
//!
//! With `TEST_RONDE_MPIRUN=mpirun` that program starts the ranks of a job, which then count as one
//! process: for tests in which all ranks must succeed, over the backend that `RONDE_BACKEND` names.
//! With `RONDE_BACKEND=tcp` the ranks of a job get a free port. `TEST_RONDE_HOSTS=2` makes them
//! count as ranks on two hosts, by turns.

#![allow(dead_code)] // each group of tests uses a part of it

use std::ffi::OsStr;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::resume_unwind;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ronde_net::Reservation;
use rustix::process::{Pid, Signal, kill_process};

/// Longer than any test takes, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Folder for the ranks' files; `None` in a rank, which ends without cleaning up.
pub(crate) struct Folder(Option<tempfile::TempDir>);

impl Folder {
    pub(crate) fn new() -> Self {
        let is_rank = std::env::var_os("TEST_RONDE_BODY").is_some();
        Self((!is_rank).then(|| tempfile::tempdir().expect("a folder")))
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.0
            .as_ref()
            .map_or_else(|| name.into(), |folder| folder.path().join(name))
    }
}

/// Outcome of a rank.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// Running job.
pub(crate) struct Job {
    pub(crate) ranks: Vec<Child>,
    began: Instant,
}

/// Starts `ranks` ranks that run `body` in processes of their own; does not return in such a
/// process.
pub(crate) fn start(
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Job> {
    start_by(
        std::env::var_os("TEST_RONDE_MPIRUN").as_deref(),
        test,
        ranks,
        env,
        body,
    )
}

/// Starts ranks as [`start`] does, for a test that kills or stops ranks, checks the output of each,
/// or limits their resources. Such ranks are always children of the test. The test is skipped if
/// `TEST_RONDE_MPIRUN` starts the ranks, because it needs one child per rank.
pub(crate) fn start_separately(
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Job> {
    let is_rank = std::env::var_os("TEST_RONDE_BODY").is_some();
    if !is_rank && std::env::var_os("TEST_RONDE_MPIRUN").is_some() {
        eprintln!("left out: ranks that are children of the test (TEST_RONDE_MPIRUN is set)");
        return None;
    }
    start_by(None, test, ranks, env, body)
}

/// Starts ranks as [`start`] does, by the given `mpirun` if there is one.
pub(crate) fn start_by(
    mpirun: Option<&OsStr>,
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Job> {
    if std::env::var("TEST_RONDE_BODY").is_ok_and(|name| name == test) {
        body();
        std::process::exit(0);
    }
    assert_is_this_test(test);
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let key = format!(
        "test-{}-{}",
        std::process::id(),
        JOBS.fetch_add(1, Ordering::Relaxed)
    );
    let server = is_over_tcp(env).then(|| format!("127.0.0.1:{}", free_port()));
    let executable = std::env::current_exe().expect("a test knows its executable");
    let own = |mut command: Command| {
        command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env("TEST_RONDE_BODY", test)
            .env("RONDE_JOB_ID", &key)
            .envs(server.iter().map(|server| ("RONDE_TCP_SERVER", server)))
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the test's own executable starts")
    };
    let processes = match mpirun {
        Some(mpirun) => {
            let mut command = Command::new(mpirun);
            command.args(["-np", &ranks.to_string()]).arg(&executable);
            vec![own(command)]
        }
        None => {
            let start = |rank: usize| {
                let mut command = Command::new(&executable);
                command.env("HOROVOD_RANK", rank.to_string());
                command.env("HOROVOD_SIZE", ranks.to_string());
                if let Some(hosts) = made_up_hosts() {
                    command.env("RONDE_HOST_ID", format!("made-up-{}", rank % hosts));
                }
                own(command)
            };
            (0..ranks).map(start).collect()
        }
    };
    Some(Job {
        ranks: processes,
        began: Instant::now(),
    })
}

/// Whether a job with these variables uses TCP.
pub(crate) fn is_over_tcp(env: &[(&str, &str)]) -> bool {
    let set = env.iter().rfind(|(name, _)| *name == "RONDE_BACKEND");
    set.is_some_and(|(_, backend)| *backend == "tcp")
        || std::env::var_os("RONDE_BACKEND").is_some_and(|backend| backend == "tcp")
}

/// Number of hosts that the ranks of a job count as, if it is not one.
pub(crate) fn made_up_hosts() -> Option<usize> {
    let hosts = std::env::var("TEST_RONDE_HOSTS").ok()?;
    Some(hosts.parse().expect("TEST_RONDE_HOSTS is a number"))
}

/// Returns a port of this machine on which nothing listens. It is reserved for the ranks of this
/// process's jobs.
pub(crate) fn free_port() -> u16 {
    reserve(0).expect("a free port")
}

/// Reserves `port`, or any one if it is 0, until this process ends.
pub(crate) fn reserve(port: u16) -> std::io::Result<u16> {
    let reserved = Reservation::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let port = reserved.port();
    std::mem::forget(reserved);
    Ok(port)
}

/// Asserts that `test` is the calling test's full name, which libtest gives the thread of a test:
/// with another name, ranks would run no test at all, and succeed.
fn assert_is_this_test(test: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or(test);
    assert!(
        name == test || name == "main", // as with --test-threads=1
        "{name} starts ranks as {test}"
    );
}

impl Job {
    /// Waits for all ranks; after [`PATIENCE`], kills the remaining ones and fails.
    pub(crate) fn finish(self) -> Vec<Outcome> {
        let waits: Vec<_> = self
            .ranks
            .into_iter()
            .map(|rank| outcome(rank, self.began))
            .collect();
        waits.into_iter().map(joined).collect()
    }

    /// Waits as [`Job::finish`] does in a job whose rank `stopped` cannot end by itself: kills it
    /// after the other ranks have ended.
    pub(crate) fn finish_with_stopped(self, stopped: usize) -> Vec<Outcome> {
        let pid = Pid::from_child(&self.ranks[stopped]);
        let mut waits: Vec<_> = self
            .ranks
            .into_iter()
            .map(|rank| outcome(rank, self.began))
            .collect();
        let last = waits.remove(stopped);
        let mut outcomes: Vec<_> = waits.into_iter().map(joined).collect();
        kill_process(pid, Signal::KILL).expect("a child can be killed");
        outcomes.insert(stopped, joined(last));
        outcomes
    }
}

/// Waits for a rank of a job that began at `began`, in a thread, which panics if it kills the rank.
fn outcome(mut rank: Child, began: Instant) -> JoinHandle<Outcome> {
    std::thread::spawn(move || {
        let texts = [read(rank.stdout.take()), read(rank.stderr.take())];
        let (status, is_killed) = wait(&mut rank, began);
        let took = began.elapsed();
        let output = texts.map(joined).concat();
        assert!(
            !is_killed,
            "a rank has not ended within {PATIENCE:?}:\n{output}"
        );
        Outcome {
            status,
            output,
            took,
        }
    })
}

/// Reads a stream to its end, in a thread.
fn read(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes); // the rank may be killed
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Waits for a rank; kills it after [`PATIENCE`], and says so.
fn wait(rank: &mut Child, began: Instant) -> (ExitStatus, bool) {
    let mut is_killed = false;
    loop {
        if let Some(status) = rank.try_wait().expect("a child can be waited for") {
            return (status, is_killed);
        }
        if began.elapsed() > PATIENCE {
            rank.kill().expect("a child can be killed");
            is_killed = true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a job in which every rank must succeed.
pub(crate) fn job(test: &str, ranks: usize, body: impl FnOnce()) {
    job_with(test, ranks, &[], body);
}

/// Runs a job as [`job`] does, with variables in the environment.
pub(crate) fn job_with(
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    body: impl FnOnce(),
) -> Vec<Outcome> {
    start(test, ranks, env, body).map_or_else(Vec::new, |job| all_succeed(job.finish()))
}

/// Runs a job as [`job_with`] does, of ranks that are [started separately](start_separately);
/// returns no outcomes if these are skipped.
pub(crate) fn job_separately(
    test: &str,
    ranks: usize,
    env: &[(&str, &str)],
    body: impl FnOnce(),
) -> Vec<Outcome> {
    start_separately(test, ranks, env, body).map_or_else(Vec::new, |job| all_succeed(job.finish()))
}

/// Returns the outcomes of all ranks of a job, which must have succeeded.
pub(crate) fn all_succeed(outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert!(
            outcome.status.success(),
            "rank {rank} of {}: {}\n{}",
            outcomes.len(),
            outcome.status,
            outcome.output
        );
    }
    outcomes
}

/// Small deterministic generator of test data.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
