//! Operation of a random program on one tensor.

use super::draw::Draw;
use crate::collective::reference;
use crate::context::Operation;
use crate::tensor::{Dtype, ReduceOp};

/// Tensor and its operation, as all ranks of its set describe it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// Dimensions; the first is replaced where ranks have numbers of rows of their own.
    pub(super) dims: Vec<usize>,
    pub(super) task: Task,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Task {
    Allreduce(Combine),
    /// Number of rows of each member.
    Allgather(Vec<usize>),
    /// Root, a rank of the job.
    Broadcast(usize),
    /// Number of rows from each member to each member.
    Alltoall(Vec<Vec<usize>>),
    Reducescatter(Combine),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Combine {
    pub(super) op: ReduceOp,
    pub(super) prescale: f64,
    pub(super) postscale: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Allreduce,
    Allgather,
    Broadcast,
    Alltoall,
    Reducescatter,
}

impl Kind {
    /// Kinds of operations, reductions twice because they have more variants.
    pub(super) const ALL: [Self; 7] = [
        Self::Allreduce,
        Self::Allreduce,
        Self::Allgather,
        Self::Broadcast,
        Self::Alltoall,
        Self::Reducescatter,
        Self::Reducescatter,
    ];
}

impl Work {
    pub(super) fn draw(name: String, kind: Kind, members: &[usize], draw: &mut Draw) -> Self {
        let dtype = draw.pick(&Dtype::ALL);
        let mut dims = vec![rows(draw)];
        dims.extend((0..draw.below(3)).map(|_| 1 + draw.below(4)));
        if matches!(kind, Kind::Allreduce | Kind::Broadcast) && draw.one_in(10) {
            dims.clear();
        }
        let size = members.len();
        let task = match kind {
            Kind::Allreduce => Task::Allreduce(Combine::draw(dtype, draw)),
            Kind::Reducescatter => Task::Reducescatter(Combine::draw(dtype, draw)),
            Kind::Broadcast => Task::Broadcast(draw.pick(members)),
            Kind::Allgather => Task::Allgather((0..size).map(|_| rows(draw)).collect()),
            Kind::Alltoall => {
                let even = draw.one_in(3).then(|| draw.below(5));
                let mut splits = || {
                    (0..size)
                        .map(|_| even.unwrap_or_else(|| draw.below(5)))
                        .collect()
                };
                Task::Alltoall((0..size).map(|_| splits()).collect())
            }
        };
        Self {
            name,
            dtype,
            dims,
            task,
        }
    }

    /// Changes the number of rows: of all ranks, or, where ranks may differ, of one of `size`.
    pub(super) fn change_rows(&mut self, size: usize, draw: &mut Draw) {
        let changed = draw.below(size);
        match &mut self.task {
            Task::Allgather(of_members) => of_members[changed] = rows(draw),
            Task::Alltoall(splits) => splits[changed].fill_with(|| draw.below(5)),
            _ => self
                .dims
                .iter_mut()
                .take(1)
                .for_each(|first| *first = rows(draw)),
        }
    }

    /// Returns another operation under the same name, a mismatch with this one.
    pub(super) fn made_odd(&self, members: &[usize], draw: &mut Draw) -> Self {
        let mut odd = self.clone();
        loop {
            match (draw.below(5), &mut odd.task) {
                (0, _) => odd.dims.push(1 + draw.below(2)),
                (1, _) if odd.dtype == Dtype::I32 => odd.dtype = Dtype::I64,
                (1, _) => odd.dtype = Dtype::I32,
                (2, Task::Allreduce(combine) | Task::Reducescatter(combine)) => {
                    let ops = [ReduceOp::Sum, ReduceOp::Max];
                    combine.op = ops[usize::from(combine.op == ReduceOp::Sum)];
                }
                (3, Task::Allreduce(combine) | Task::Reducescatter(combine))
                    if odd.dtype != Dtype::Bool =>
                {
                    combine.postscale += 1.0;
                }
                (4, Task::Broadcast(root)) => *root = draw.pick(members),
                (4, task) => *task = Task::Broadcast(draw.pick(members)),
                _ => {}
            }
            if odd != *self {
                return odd;
            }
        }
    }

    /// Returns the operation as `rank`, one of `members`, submits it.
    pub(super) fn operation(&self, members: &[usize], rank: usize) -> Operation<'_> {
        match &self.task {
            &Task::Allreduce(Combine {
                op,
                prescale,
                postscale,
            }) => Operation::Allreduce {
                op,
                prescale,
                postscale,
            },
            Task::Allgather(_) => Operation::Allgather,
            &Task::Broadcast(root) => Operation::Broadcast { root },
            Task::Alltoall(splits) => {
                let own = &splits[place(members, rank)];
                let is_even = own.iter().all(|rows| *rows == own[0]);
                Operation::Alltoall {
                    splits: if is_even { &[] } else { own },
                }
            }
            &Task::Reducescatter(Combine {
                op,
                prescale,
                postscale,
            }) => Operation::Reducescatter {
                op,
                prescale,
                postscale,
            },
        }
    }

    /// Returns the dimensions of the input of `rank`, one of `members`.
    pub(super) fn shape(&self, members: &[usize], rank: usize) -> Vec<usize> {
        let rows = match &self.task {
            Task::Allgather(of_members) => of_members[place(members, rank)],
            Task::Alltoall(splits) => splits[place(members, rank)].iter().sum(),
            _ => return self.dims.clone(),
        };
        self.with_rows(rows)
    }

    /// Returns the dimensions with `rows` rows.
    pub(super) fn with_rows(&self, rows: usize) -> Vec<usize> {
        let inner = self.dims.iter().skip(1).copied();
        std::iter::once(rows).chain(inner).collect()
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.dims.iter().skip(1).product::<usize>() * self.dtype.size_bytes()
    }

    /// Returns the input of `rank`, drawn from `seed`.
    pub(super) fn input(&self, members: &[usize], rank: usize, seed: u64) -> Vec<u8> {
        let elements = self.shape(members, rank).iter().product();
        let mut input = reference::input(self.dtype, elements, seed);
        if self.dtype == Dtype::Bool {
            // The collectives accept any byte but 0 as true; front ends pass only 0 and 1.
            input
                .iter_mut()
                .for_each(|truth| *truth = u8::from(*truth != 0));
        }
        input
    }
}

impl Combine {
    fn draw(dtype: Dtype, draw: &mut Draw) -> Self {
        let is_bool = dtype == Dtype::Bool;
        let op = loop {
            let op = draw.pick(&ReduceOp::ALL);
            if !is_bool || op != ReduceOp::Average {
                break op;
            }
        };
        let mut scale = || {
            if is_bool || !draw.one_in(4) {
                1.0
            } else {
                draw.pick(&[0.5, 3.0, 0.1, -2.0])
            }
        };
        Self {
            op,
            prescale: scale(),
            postscale: scale(),
        }
    }
}

/// Position of `rank` among `members`.
pub(super) fn place(members: &[usize], rank: usize) -> usize {
    members.binary_search(&rank).expect("a member")
}

/// Draws a number of rows: usually small, sometimes none or many.
fn rows(draw: &mut Draw) -> usize {
    match draw.below(40) {
        0..5 => 0,
        39 => draw.below(500),
        _ => 1 + draw.below(12),
    }
}
