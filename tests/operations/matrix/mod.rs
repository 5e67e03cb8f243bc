//! Matrix of all operations: operation × element type × ranks (1, 2, 3, 5, 8) × size × fused or not
//! × in place or not, compared exactly with a sequential reference.
//!
//! Sizes are 0, 1, a prime number of elements, a chunk of the shared-memory ring and one element
//! less and more, and several chunks. Reduced for time: sizes from a chunk on are for the three
//! widest element types, with one reduction each, submitted all at once, one after another and as
//! raw memory; the roots of a broadcast alternate, but for f32 each is tested at each small size;
//! 64 ranks run a step of small tensors and one of each other operation.
//!
//! Every other case is submitted all at once, as a group, one after another, as borrowed slices and
//! as raw memory; and all at once in a job without fusion. All of them must give the same bits.

mod cases;
mod forms;
mod part;
mod sample;

use std::hash::Hasher;

use crate::support::{Outcome, job, job_with};
use half::{bf16, f16};
use ronde::{Context, Element, ReduceOp};

use forms::{Bench, Forms};
use sample::{How, Sample};

fn table(ranks: usize, test: &str) {
    let body = || {
        let context = Context::from_env().expect("the job starts");
        let mut bench = Bench::new(&context);
        let is_fused = context.settings().fusion_threshold_bytes > 0;
        if !is_fused {
            bench.forms = Forms::AtOnce;
        }
        small::<u8>(&mut bench);
        small::<i8>(&mut bench);
        small::<i16>(&mut bench);
        small::<i32>(&mut bench);
        small::<i64>(&mut bench);
        small::<f16>(&mut bench);
        small::<bf16>(&mut bench);
        small::<f32>(&mut bench);
        small::<f64>(&mut bench);
        small::<bool>(&mut bench);
        println!("\ndigest {} {:016x}", context.rank(), bench.digest.finish());
        if is_fused {
            large::<i64>(&mut bench);
            large::<f32>(&mut bench);
            large::<f64>(&mut bench);
        }
    };
    let fused = job_with(test, ranks, &[], body);
    let unfused = job_with(test, ranks, &[("HOROVOD_FUSION_THRESHOLD", "0")], body);
    let digests = |outcomes: &[Outcome]| -> Vec<String> {
        let lines = outcomes.iter().flat_map(|outcome| outcome.output.lines());
        let mut digests: Vec<String> = lines
            .filter(|line| line.starts_with("digest "))
            .map(str::to_owned)
            .collect();
        digests.sort();
        digests
    };
    let (fused, unfused) = (digests(&fused), digests(&unfused));
    assert_eq!(fused, unfused, "fused and unfused");
    assert_eq!(fused.len(), ranks);
}

/// All operations on sizes below a chunk.
fn small<T: Sample>(bench: &mut Bench<'_>) {
    let lengths = [0, 1, 1201];
    for how in How::all()
        .into_iter()
        .filter(|how| how.is_defined_for(T::DTYPE))
    {
        cases::allreduce::<T>(bench, how, &lengths);
        cases::reducescatter::<T>(bench, how, &[(0, 3), (1, 1), (13, 1), (667, 3), (4, 0)]);
    }
    let size = bench.size();
    let roots = if T::DTYPE == f32::DTYPE { size } else { 1 };
    for turn in 0..roots {
        cases::broadcast::<T>(bench, (turn + T::DTYPE as usize) % size, &lengths);
    }
    cases::allgather_small::<T>(bench);
    cases::alltoall_small::<T>(bench);
}

/// All operations on sizes of a chunk and more.
fn large<T: Sample>(bench: &mut Bench<'_>) {
    bench.forms = Forms::Few;
    let chunk = ronde::internal::collective::local::LocalCollective::chunk_bytes(bench.size())
        / size_of::<T>();
    let lengths = [chunk - 1, chunk, chunk + 1, 2 * chunk + 2003];
    cases::allreduce::<T>(bench, How::plain(ReduceOp::Average), &lengths);
    let rows = [(chunk - 1, 1), (chunk + 1, 1), (chunk / 2 + 677, 3)];
    cases::reducescatter::<T>(bench, How::plain(ReduceOp::Max), &rows);
    cases::broadcast::<T>(bench, bench.size() - 1, &lengths);
    cases::allgather_large::<T>(bench, &lengths);
    cases::alltoall_large::<T>(bench, &lengths);
}

#[test]
fn one_rank() {
    table(1, "matrix::one_rank");
}

#[test]
fn two_ranks() {
    table(2, "matrix::two_ranks");
}

#[test]
fn three_ranks() {
    table(3, "matrix::three_ranks");
}

#[test]
fn five_ranks() {
    table(5, "matrix::five_ranks");
}

#[test]
fn eight_ranks() {
    table(8, "matrix::eight_ranks");
}

#[test]
fn sixty_four_ranks() {
    job("matrix::sixty_four_ranks", 64, || {
        let context = Context::from_env().expect("the job starts");
        let mut bench = Bench::new(&context);
        let lengths: Vec<usize> = (0..40).map(|tensor| 1 + 37 * tensor).collect();
        cases::allreduce::<f32>(&mut bench, How::plain(ReduceOp::Average), &lengths);
        cases::reducescatter::<i32>(&mut bench, How::plain(ReduceOp::Sum), &[(1, 1), (1000, 1)]);
        cases::broadcast::<bf16>(&mut bench, 63, &[1, 2003]);
        cases::allgather_small::<u8>(&mut bench);
        cases::alltoall_small::<f64>(&mut bench);
    });
}
