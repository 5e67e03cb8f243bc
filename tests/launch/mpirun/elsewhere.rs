//! MPI that another library of the process has initialized, such as mpi4py: Ronde uses it if it
//! allows threads, and otherwise refuses it; Ronde never finalizes it.

use std::time::Duration;

use mpi::Threading;
use mpi::environment::{Universe, initialize_with_threading, is_finalized};
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};
use ronde::{Context, ReduceOp};

use super::{PERMISSIONS, is_there, launcher};
use crate::support::{Job, Outcome, start_by};

/// Runs the ranks of this test under `mpirun`; returns `None` in a rank.
fn ranks(test: &str, ranks: usize, body: impl FnOnce()) -> Option<Vec<Outcome>> {
    let mut env = PERMISSIONS.to_vec();
    env.push(("RONDE_BACKEND", "mpi"));
    env.push(("HOROVOD_START_TIMEOUT", "20"));
    if std::env::var_os("TEST_RONDE_BODY").is_none() && !is_there(launcher()) {
        return None;
    }
    let job = start_by(Some(&launcher()), test, ranks, &env, body);
    job.map(Job::finish)
}

fn universe(threading: Threading) -> Universe {
    initialize_with_threading(threading)
        .expect("nobody was first")
        .0
}

fn sum(context: &Context, value: i64) -> i64 {
    let handle = context.allreduce("sum", vec![value; 1000], ReduceOp::Sum);
    let sum = handle.expect("submitted").wait().expect("done");
    assert!(sum.iter().all(|element| *element == sum[0]));
    sum[0]
}

#[test]
fn for_many_threads_it_is_used_and_not_finalized() {
    let test = "mpirun::elsewhere::for_many_threads_it_is_used_and_not_finalized";
    let outcomes = ranks(test, 3, || {
        let universe = universe(Threading::Multiple);
        let world = universe.world();
        let (rank, size) = (world.rank(), world.size());
        // Message of the other library, which is pending while Ronde works: a receive from any
        // rank, with any tag.
        let next = (rank + 1) % size;
        world.process_at_rank(next).send_with_tag(&[7i32, rank], 3);
        for round in 0..2 {
            let context = Context::from_env().expect("the job starts");
            assert_eq!(
                (context.rank(), context.size()),
                (rank as usize, size as usize)
            );
            assert_eq!(context.backend(), "mpi");
            assert_eq!(sum(&context, i64::from(rank) + round), 3 + 3 * round);
            drop(context);
            assert!(!is_finalized());
            world.barrier();
        }
        let (message, status) = world.any_process().receive_vec::<i32>();
        let before = (rank + size - 1) % size;
        assert_eq!((&message[..], status.tag()), (&[7, before][..], 3));
        // The engine's thread has no operation in flight that this would interrupt.
        drop(universe);
        assert!(is_finalized());
        // MPI cannot be used from here on.
        let error = Context::from_env().err().expect("no MPI").to_string();
        println!("later: {error}");
        std::thread::sleep(Duration::from_millis(50));
    });
    let Some(outcomes) = outcomes else { return };
    let outcome = &outcomes[0];
    assert!(outcome.status.success(), "{}", outcome.output);
    assert_eq!(
        outcome.output.matches("later: ").count(),
        3,
        "{}",
        outcome.output
    );
    assert!(
        outcome
            .output
            .contains("MPI has been finalized in this process"),
        "{}",
        outcome.output
    );
}

#[test]
fn for_fewer_threads_it_is_refused_with_the_reason() {
    let test = "mpirun::elsewhere::for_fewer_threads_it_is_refused_with_the_reason";
    let outcomes = ranks(test, 2, || {
        let universe = universe(Threading::Serialized);
        let error = Context::from_env().err().expect("refused").to_string();
        println!("refused: {error}");
        // It still works for the library that initialized it.
        universe.world().barrier();
        drop(universe);
    });
    let Some(outcomes) = outcomes else { return };
    let outcome = &outcomes[0];
    assert!(outcome.status.success(), "{}", outcome.output);
    let text = "refused: MPI was initialized by another library of this process with thread support MPI_THREAD_SERIALIZED";
    assert_eq!(
        outcome.output.matches(text).count(),
        2,
        "{}",
        outcome.output
    );
    assert!(
        outcome
            .output
            .contains("have that library ask for MPI_THREAD_MULTIPLE"),
        "{}",
        outcome.output
    );
}
