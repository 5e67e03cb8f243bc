//! Ranks that die under `mpirun`: the job ends soon, and the output names the dead rank.

use std::time::Duration;

use ronde::{Context, ReduceOp};

use super::{PERMISSIONS, can_start_over_mpi, is_there, launcher};
use crate::support::{Outcome, start_by};

/// Time of a whole job: soon, on a busy machine.
const SOON: Duration = Duration::from_secs(90);

#[test]
fn a_killed_rank_ends_the_job_and_is_named() {
    let test = "mpirun::lost::a_killed_rank_ends_the_job_and_is_named";
    if std::env::var_os("TEST_RONDE_BODY").is_none() && !is_there(launcher()) {
        return;
    }
    let backends = if super::has_mpi() {
        &["local", "mpi"][..]
    } else {
        &["local"]
    };
    for backend in backends {
        let mut env = PERMISSIONS.to_vec();
        env.push(("RONDE_BACKEND", backend));
        let job = start_by(Some(&launcher()), test, 3, &env, || {
            let context = Context::from_env().expect("the job starts");
            for step in 0.. {
                if step == 20 && context.rank() == 1 {
                    eprintln!("process {} goes", std::process::id());
                    let own = rustix::process::getpid();
                    rustix::process::kill_process(own, rustix::process::Signal::KILL)
                        .expect("it may");
                }
                let reduced = context.allreduce("t", vec![1i32; 1000], ReduceOp::Sum);
                if let Err(failed) = reduced.and_then(|handle| handle.wait()) {
                    panic!("{}", failed.error);
                }
            }
        });
        let Some(job) = job else { return };
        let outcomes = job.finish();
        let (outcome, text) = (&outcomes[0], &outcomes[0].output);
        assert!(!outcome.status.success(), "{backend}: {text}");
        assert!(outcome.took < SOON, "{backend}: {:?}: {text}", outcome.took);
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        // A survivor may report it before mpirun does. Open MPI names the rank and its host, Hydra
        // its own host and a process, possibly a survivor that it has killed.
        let said = text
            .split_once(" goes")
            .and_then(|(before, _)| before.rsplit_once("process "));
        let (_, pid) = said.unwrap_or_else(|| panic!("{backend}: {text}"));
        let by_survivor = text.contains("rank 1 died") || text.contains("rank 1 on host");
        let by_open_mpi =
            text.contains("process rank 1 ") && text.contains(&format!("on node {host}"));
        let by_hydra =
            text.contains(&format!("RUNNING AT {host}")) && text.contains("Killed (signal 9)");
        assert!(
            by_survivor || by_open_mpi || by_hydra,
            "{backend}, {pid}: {text}"
        );
    }
}

/// Open MPI keeps the survivors alive if requested: they get an error that names the rank and its
/// host.
#[test]
fn survivors_that_mpirun_lets_live_have_an_error() {
    let test = "mpirun::lost::survivors_that_mpirun_lets_live_have_an_error";
    let is_rank = std::env::var_os("TEST_RONDE_BODY").is_some();
    if !is_rank && (!super::has_mpi() || !is_there(launcher()) || super::is_of_mpich()) {
        return;
    }
    let mut env = PERMISSIONS.to_vec();
    env.extend([
        ("RONDE_BACKEND", "mpi"),
        ("OMPI_MCA_orte_enable_recovery", "1"),
    ]);
    let job = start_by(Some(&launcher()), test, 3, &env, || {
        let context = Context::from_env().expect("the job starts");
        for step in 0.. {
            if step == 20 && context.rank() == 1 {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("it may");
            }
            let reduced = context.allreduce("t", vec![1i32; 1000], ReduceOp::Sum);
            if let Err(failed) = reduced.and_then(|handle| handle.wait()) {
                // In one write: eprintln! makes several, and the other survivor's could come
                // between them.
                let line = format!("survivor: {}\n", failed.error);
                return std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())
                    .expect("written");
            }
        }
    });
    let Some(job) = job else { return };
    let outcomes = job.finish();
    let text = &outcomes[0].output;
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    // From its process on the same host, or from missing heartbeats.
    let errors = [
        "survivor: rank 1 died".to_owned(),
        format!("survivor: rank 1 on host {host} has been silent for "),
    ];
    let named: usize = errors.iter().map(|error| text.matches(error).count()).sum();
    assert_eq!(named, 2, "{text}");
    assert!(outcomes[0].took < SOON, "{:?}", outcomes[0].took);
}

/// Runs a job over MPI with these variables too; returns how `mpirun` ended, `None` without MPI.
fn over_mpi(
    test: &str,
    ranks: usize,
    variables: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Outcome> {
    if !can_start_over_mpi() {
        return None;
    }
    let env = [&PERMISSIONS[..], &[("RONDE_BACKEND", "mpi")], variables].concat();
    let job = start_by(Some(&launcher()), test, ranks, &env, body)?;
    job.finish().into_iter().next()
}

/// A rank that never submits a tensor does not end either: `mpirun` ends it when the others have.
#[test]
fn a_job_whose_rank_was_waited_for_in_vain_ends() {
    let test = "mpirun::lost::a_job_whose_rank_was_waited_for_in_vain_ends";
    let variables = [
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2"),
    ];
    let outcome = over_mpi(test, 2, &variables, || {
        let context = Context::from_env().expect("the job starts");
        if context.rank() == 1 {
            std::thread::sleep(2 * SOON);
        }
        let submitted = context.allreduce("lonely", vec![1i32], ReduceOp::Sum);
        let failed = submitted.expect("in").wait().expect_err("no peer");
        panic!("{}", failed.error);
    });
    let Some(outcome) = outcome else { return };
    let text = &outcome.output;
    assert!(!outcome.status.success(), "{text}");
    assert!(text.contains("lonely"), "{text}");
    assert!(outcome.took < SOON, "{:?}: {text}", outcome.took);
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let test = "mpirun::lost::a_rank_that_does_not_come_is_named";
    let outcome = over_mpi(test, 3, &[("HOROVOD_START_TIMEOUT", "10")], || {
        // MPI is initialized on all ranks; then one of them does not start Ronde.
        let context = Context::from_env().expect("the job starts");
        let rank = context.rank();
        drop(context);
        if rank == 1 {
            return std::thread::sleep(Duration::from_secs(40));
        }
        let error = Context::from_env().expect_err("not all come");
        panic!("rank {rank}: {error}");
    });
    let Some(outcome) = outcome else { return };
    let text = &outcome.output;
    assert!(!outcome.status.success(), "{text}");
    // Rank 0 names the rank if it is the first to report.
    let says = text.contains("rank 0: rank 1 has not come within 10 s")
        || text.contains("not all ranks have come within 10 s");
    assert!(says, "{text}");
    // No rank that lives is named, alone or with others.
    for blame in [
        "rank 0 has not come",
        "rank 2 has not come",
        "have not come",
    ] {
        assert!(!text.contains(blame), "{text}");
    }
}

#[test]
fn a_wait_for_a_rank_that_comes_late_is_reported() {
    let test = "mpirun::lost::a_wait_for_a_rank_that_comes_late_is_reported";
    let variables = [("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")];
    let outcome = over_mpi(test, 2, &variables, || {
        let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].map(std::env::var);
        if rank.contains(&Ok("1".to_owned())) {
            std::thread::sleep(Duration::from_secs(3));
        }
        let context = Context::from_env().expect("the job starts");
        context.barrier().expect("both are there");
    });
    let Some(outcome) = outcome else { return };
    let text = &outcome.output;
    assert!(outcome.status.success(), "{text}");
    let says = "for the start of the job: not all ranks have come yet; the limit is 600 s";
    assert!(text.contains(says), "{text}");
}
