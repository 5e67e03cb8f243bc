//! Test cases of each operation, with their expected results.

use std::ops::Range;

use ronde::{Operation, ReduceOp};

use super::forms::Bench;
use super::part::Part;
use super::sample::{How, PERIOD, Sample, pool, window};
use crate::support::Draw;

/// Offset of the data of tensor `index`: different for each, so that a confusion of tensors is
/// detected.
fn offset(index: usize) -> usize {
    101 * index
}

fn pools<T: Sample>(bench: &Bench<'_>) -> Vec<Vec<T>> {
    (0..bench.size()).map(pool).collect()
}

fn reduced<T: Sample>(pools: &[Vec<T>], how: &How) -> Vec<T> {
    let column = |index: usize| -> Vec<T> { pools.iter().map(|pool| pool[index]).collect() };
    (0..PERIOD)
        .map(|index| T::reduce(&column(index), how))
        .collect()
}

/// Which NaN a sum, a product or a factor gives is unspecified; a minimum or maximum is one of its
/// inputs.
fn any_nan<T: Sample>(how: &How) -> bool {
    let selects = matches!(how.op, ReduceOp::Min | ReduceOp::Max);
    !selects || how.is_scaled() || !T::KEEPS_NAN
}

pub(crate) fn allreduce<T: Sample>(bench: &mut Bench<'_>, how: How, lengths: &[usize]) {
    let pools = pools::<T>(bench);
    let reduced = reduced(&pools, &how);
    let part = |(index, &length): (usize, &usize)| Part {
        operation: how.allreduce(),
        input: window(&pools[bench.rank], offset(index), length),
        shape: vec![length],
        expected: window(&reduced, offset(index), length),
        expected_shape: vec![length],
        expected_splits: Vec::new(),
        any_nan: any_nan::<T>(&how),
    };
    let parts: Vec<_> = lengths.iter().enumerate().map(part).collect();
    bench.run(&format!("allreduce.{}.{}", lengths.len(), how.op), &parts);
}

pub(crate) fn broadcast<T: Sample>(bench: &mut Bench<'_>, root: usize, lengths: &[usize]) {
    let (own, roots) = (pool::<T>(bench.rank), pool::<T>(root));
    let part = |(index, &length): (usize, &usize)| Part {
        operation: Operation::Broadcast { root },
        input: window(&own, offset(index), length),
        shape: vec![length],
        expected: window(&roots, offset(index), length),
        expected_shape: vec![length],
        expected_splits: Vec::new(),
        any_nan: false,
    };
    let parts: Vec<_> = lengths.iter().enumerate().map(part).collect();
    bench.run("broadcast", &parts);
}

/// Returns the rows of a reducescatter of `rows` rows that rank `rank` of `size` keeps: the first
/// ranks get one more.
fn share(rows: usize, rank: usize, size: usize) -> Range<usize> {
    let start = |rank: usize| rank * (rows / size) + rank.min(rows % size);
    start(rank)..start(rank + 1)
}

/// `sizes`: numbers of rows, and of elements in each.
pub(crate) fn reducescatter<T: Sample>(bench: &mut Bench<'_>, how: How, sizes: &[(usize, usize)]) {
    let pools = pools::<T>(bench);
    let reduced = reduced(&pools, &how);
    let part = |(index, &(rows, inner)): (usize, &(usize, usize))| {
        let share = share(rows, bench.rank, bench.size());
        Part {
            operation: how.reducescatter(),
            input: window(&pools[bench.rank], offset(index), rows * inner),
            shape: vec![rows, inner],
            expected: window(
                &reduced,
                offset(index) + share.start * inner,
                share.len() * inner,
            ),
            expected_shape: vec![share.len(), inner],
            expected_splits: Vec::new(),
            any_nan: any_nan::<T>(&how),
        }
    };
    let parts: Vec<_> = sizes.iter().enumerate().map(part).collect();
    bench.run(&format!("reducescatter.{}.{}", sizes.len(), how.op), &parts);
}

/// `cases`: the dimensions of a row, and the number of rows of each rank.
fn allgather<T: Sample>(bench: &mut Bench<'_>, cases: &[(&[usize], Vec<usize>)]) {
    let pools = pools::<T>(bench);
    let part = |(index, (inner, rows)): (usize, &(&[usize], Vec<usize>))| {
        let row: usize = inner.iter().product();
        let of = |rank: usize| window(&pools[rank], offset(index), rows[rank] * row);
        let shape = |rows: usize| [&[rows], *inner].concat();
        Part {
            operation: Operation::Allgather,
            input: of(bench.rank),
            shape: shape(rows[bench.rank]),
            expected: (0..bench.size()).flat_map(of).collect(),
            expected_shape: shape(rows.iter().sum()),
            expected_splits: Vec::new(),
            any_nan: false,
        }
    };
    let parts: Vec<_> = cases.iter().enumerate().map(part).collect();
    bench.run("allgather", &parts);
}

pub(crate) fn allgather_small<T: Sample>(bench: &mut Bench<'_>) {
    let rows = |rows: &dyn Fn(usize) -> usize| (0..bench.size()).map(rows).collect::<Vec<usize>>();
    let cases: [(&[usize], Vec<usize>); 6] = [
        (&[], rows(&|_| 1)),
        (&[2, 3], rows(&|rank| (rank * 5 + 3) % 7)),
        (&[3], rows(&|rank| 17 * usize::from(rank % 2 == 1))), // none from rank 0
        (&[2], rows(&|_| 0)),
        (&[0], rows(&|rank| rank)),
        (&[], rows(&|rank| 2003 - 300 * rank.min(6))),
    ];
    allgather::<T>(bench, &cases);
}

/// The last rank contributes `lengths`, the others little or nothing.
pub(crate) fn allgather_large<T: Sample>(bench: &mut Bench<'_>, lengths: &[usize]) {
    let last = bench.size() - 1;
    let rows = |&length: &usize| -> (&[usize], Vec<usize>) {
        let of = |rank: usize| if rank == last { length } else { 5 * (rank % 2) };
        (&[], (0..=last).map(of).collect())
    };
    let cases: Vec<_> = lengths.iter().map(rows).collect();
    allgather::<T>(bench, &cases);
}

/// Number of rows from each rank to each, and elements of a row.
struct Exchange {
    inner: usize,
    rows: Vec<Vec<usize>>,
    /// Whether the splits are even and not passed.
    implied: bool,
}

fn alltoall<T: Sample>(bench: &mut Bench<'_>, cases: &[Exchange]) {
    let pools = pools::<T>(bench);
    let part = |(index, case): (usize, &'_ Exchange)| {
        let Exchange { inner, rows, .. } = case;
        let sent = |from: usize| rows[from].iter().sum::<usize>();
        let received: Vec<usize> = rows.iter().map(|to| to[bench.rank]).collect();
        // From each rank, the data after those that it sends to the ranks before this one.
        let of = |from: usize| {
            let before: usize = rows[from][..bench.rank].iter().sum();
            window(
                &pools[from],
                offset(index) + before * inner,
                received[from] * inner,
            )
        };
        Part {
            operation: Operation::Alltoall {
                splits: if case.implied {
                    &[]
                } else {
                    &cases[index].rows[bench.rank]
                },
            },
            input: window(&pools[bench.rank], offset(index), sent(bench.rank) * inner),
            shape: vec![sent(bench.rank), *inner],
            expected: (0..bench.size()).flat_map(of).collect(),
            expected_shape: vec![received.iter().sum(), *inner],
            expected_splits: received,
            any_nan: false,
        }
    };
    let parts: Vec<_> = cases.iter().enumerate().map(part).collect();
    bench.run("alltoall", &parts);
}

/// Returns the exchange with `rows(from, to)` for all ranks.
fn exchange(size: usize, inner: usize, mut rows: impl FnMut(usize, usize) -> usize) -> Exchange {
    let rows = (0..size).map(|from| (0..size).map(|to| rows(from, to)).collect());
    Exchange {
        inner,
        rows: rows.collect(),
        implied: false,
    }
}

pub(crate) fn alltoall_small<T: Sample>(bench: &mut Bench<'_>) {
    let size = bench.size();
    let mut draw = Draw(0x5eed + size as u64);
    let implied = |exchange: Exchange| Exchange {
        implied: true,
        ..exchange
    };
    let cases = [
        implied(exchange(size, 1, |_, _| 1)),
        implied(exchange(size, 3, |_, _| 61)),
        implied(exchange(size, 2, |_, _| 0)),
        exchange(size, 1, |_, _| 251),
        exchange(size, 5, |_, _| draw.below(4) as usize),
        exchange(size, 1, |from, to| {
            97 * usize::from(to == (from + 1) % size)
        }),
        exchange(size, 2, |_, to| 30 * usize::from(to == 0)),
        exchange(size, 0, |from, to| from + to),
    ];
    alltoall::<T>(bench, &cases);
}

/// Every rank sends `lengths` to the next one and a little to all.
pub(crate) fn alltoall_large<T: Sample>(bench: &mut Bench<'_>, lengths: &[usize]) {
    let size = bench.size();
    let case = |&length: &usize| {
        exchange(size, 1, |from, to| {
            if to == (from + 1) % size {
                length
            } else {
                to % 3
            }
        })
    };
    let cases: Vec<_> = lengths.iter().map(case).collect();
    alltoall::<T>(bench, &cases);
}
