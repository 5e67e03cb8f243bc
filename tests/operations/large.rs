//! Tensors of more than 4 GiB: lengths and offsets that do not fit 32 bits. Needs 13 GiB of memory
//! and TEST_RONDE_LARGE=1; best in a release build. With TEST_RONDE_MPIRUN=mpirun and
//! RONDE_BACKEND=mpi the operations use MPI, in chunks.

use std::io::Write;
use std::time::Instant;

use crate::support::job_with;
use ronde::{Context, ReduceOp};

const BYTES: usize = (1 << 32) + 4099;

/// Period of the data, a prime number of bytes, so that different parts of the tensor differ.
const PERIOD: usize = 1021;

/// Returns many periods, for fast filling and comparing.
fn pattern(byte: impl Fn(usize) -> u8) -> Vec<u8> {
    (0..PERIOD).map(byte).collect::<Vec<u8>>().repeat(1024)
}

fn fill(tensor: &mut [u8], pattern: &[u8]) {
    for part in tensor.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}

fn check(tensor: &[u8], pattern: &[u8]) {
    for (index, part) in tensor.chunks(pattern.len()).enumerate() {
        assert!(
            part == &pattern[..part.len()],
            "differs within {} bytes from byte {}",
            part.len(),
            index * pattern.len()
        );
    }
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says it");
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.expect("a peak").to_owned()
}

fn body() {
    let context = Context::from_env().expect("the job starts");
    let rank = context.rank();
    let own = |rank: usize| move |at: usize| (at * (rank + 3) + 7 * rank) as u8;
    let pattern_of = |rank: usize| pattern(own(rank));

    // In place.
    let mut tensor = vec![0u8; BYTES];
    fill(&mut tensor, &pattern_of(rank));
    let began = Instant::now();
    let outcome = context.scope(|scope| scope.allreduce("sum", &mut tensor, ReduceOp::Sum)?.wait());
    outcome.expect("done");
    println!("\nallreduce of {BYTES} bytes: {:.2?}", began.elapsed());
    check(&tensor, &pattern(|at| own(0)(at).wrapping_add(own(1)(at))));

    // Into given memory: rank 0's input alone is more than 4 GiB, and rank 1's rows begin beyond 4
    // GiB.
    let rows = [BYTES - 17, 17];
    let mut input = vec![0u8; rows[rank]];
    fill(&mut input, &pattern_of(rank));
    tensor.fill(0);
    let began = Instant::now();
    let outcome = context.scope(|scope| {
        scope
            .allgather("rows", &input, &[rows[rank]], &mut tensor)?
            .wait()
    });
    outcome.expect("done");
    println!("allgather of {BYTES} bytes: {:.2?}", began.elapsed());
    check(&tensor[..rows[0]], &pattern_of(0));
    check(&tensor[rows[0]..], &pattern_of(1));
    println!("{}", peak_memory());
}

#[test]
fn more_than_four_gib() {
    if std::env::var("TEST_RONDE_LARGE").is_ok_and(|value| value == "1") {
        let outcomes = job_with("large::more_than_four_gib", 2, &[], body);
        outcomes
            .iter()
            .for_each(|outcome| println!("{}", outcome.output));
    } else {
        // Not through the test harness, which hides the output of tests that pass.
        let left_out =
            "more_than_four_gib: left out; it needs 13 GiB of memory, TEST_RONDE_LARGE=1 runs it";
        writeln!(std::io::stderr(), "{left_out}").expect("standard error is open");
    }
}
