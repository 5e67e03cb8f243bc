//! Operations of the benchmark: their inputs, expected results, and calls.

#![allow(unsafe_code)] // spans over the benchmark's own buffers

use ronde::internal::collective::local::LocalCollective;
use ronde::internal::collective::{Collective, Phases, Reduction};
use ronde::tensor::{Dtype, ReduceOp, Span};
use ronde::{Context, Reduce};

use crate::Failure;

const ELEMENT_BYTES: usize = size_of::<f32>();

/// Operation on one tensor; a broadcast has root 0, reductions are sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Allgather,
    Broadcast,
    Reducescatter,
    Alltoall,
    Allreduce,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] = [
        Self::Allgather,
        Self::Broadcast,
        Self::Reducescatter,
        Self::Alltoall,
        Self::Allreduce,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allgather => "allgather",
            Self::Broadcast => "broadcast",
            Self::Reducescatter => "reducescatter",
            Self::Alltoall => "alltoall",
            Self::Allreduce => "allreduce",
        }
    }

    /// Returns the numbers of elements of input and output on each rank, of `total` in all; `0` for
    /// the output of an operation in place.
    fn elements(self, total: usize, size: usize) -> (usize, usize) {
        match self {
            Self::Allgather => (total / size, total),
            Self::Reducescatter => (total, total / size),
            Self::Alltoall => (total, total),
            Self::Broadcast | Self::Allreduce => (total, 0),
        }
    }
}

/// Operation with one rank's memory for it.
pub(crate) struct Exercise {
    operation: Operation,
    rank: usize,
    size: usize,
    input: Vec<f32>,
    output: Vec<f32>,
}

/// Returns element `index` of rank `rank`'s input: small, so that sums are exact.
fn value(rank: usize, index: usize) -> f32 {
    ((index + 7 * rank) % 1000) as f32
}

impl Exercise {
    pub(crate) fn new(operation: Operation, total_bytes: usize, rank: usize, size: usize) -> Self {
        let (input, output) = operation.elements(total_bytes / ELEMENT_BYTES, size);
        Self {
            operation,
            rank,
            size,
            input: vec![1.0; input],
            output: vec![1.0; output],
        }
    }

    /// Runs `step` once on values that differ from their neighbours and from the other ranks'
    /// values, and checks the result. Afterwards the buffers hold zeros, so that repeated sums stay
    /// finite.
    pub(crate) fn check(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for (index, element) in self.input.iter_mut().enumerate() {
            *element = value(self.rank, index);
        }
        self.output.fill(f32::NAN);
        step(self)?;
        let result = if self.output.is_empty() {
            &self.input
        } else {
            &self.output
        };
        for (index, found) in result.iter().enumerate() {
            let expected = self.expected(index);
            if *found != expected {
                let (operation, rank) = (self.operation.name(), self.rank);
                let what = format!(
                    "{operation}, rank {rank}, element {index}: {found} instead of {expected}"
                );
                return Err(what.into());
            }
        }
        self.input.fill(0.0);
        self.output.fill(0.0);
        Ok(())
    }

    /// Returns the expected result at `index`.
    fn expected(&self, index: usize) -> f32 {
        let sum = |index: usize| (0..self.size).map(|rank| value(rank, index)).sum();
        match self.operation {
            Operation::Allgather => value(index / self.input.len(), index % self.input.len()),
            Operation::Broadcast => value(0, index),
            Operation::Reducescatter => sum(self.rank * self.output.len() + index),
            Operation::Alltoall => {
                let part = self.input.len() / self.size;
                value(index / part, self.rank * part + index % part)
            }
            Operation::Allreduce => sum(index),
        }
    }

    /// Runs the operation through the whole runtime.
    pub(crate) fn run(&mut self, context: &Context) -> Result<(), Failure> {
        let Self {
            operation,
            input,
            output,
            ..
        } = self;
        let (name, shape) = (operation.name(), [input.len()]);
        context.scope(|scope| {
            match operation {
                Operation::Allgather => scope.allgather(name, input, &shape, output),
                Operation::Broadcast => scope.broadcast(name, input, 0),
                Operation::Reducescatter => {
                    scope.reducescatter(name, input, Reduce::from(ReduceOp::Sum), output)
                }
                Operation::Alltoall => scope.alltoall(name, input, &shape, &[], output),
                Operation::Allreduce => scope.allreduce(name, input, ReduceOp::Sum),
            }?
            .wait()
        })?;
        Ok(())
    }

    /// Runs the operation through the collective alone.
    pub(crate) fn run_bare(&mut self, collective: &mut LocalCollective) -> Result<Phases, Failure> {
        let size = self.size;
        let input = self.input.as_mut_ptr().cast::<u8>();
        let output = if self.output.is_empty() {
            input
        } else {
            self.output.as_mut_ptr().cast()
        };
        let bytes = self.input.len() * ELEMENT_BYTES;
        // SAFETY: vectors of the lengths that the operation requires, not accessed before it is
        // over; equal or disjoint.
        let spans = [unsafe { Span::new(input, output, bytes) }];
        Ok(match self.operation {
            Operation::Allgather => collective.allgather(&spans, &vec![bytes; size])?,
            Operation::Broadcast => collective.broadcast(&spans, 0)?,
            Operation::Reducescatter => {
                collective.reducescatter(&spans, &vec![bytes / size; size], &SUM, &[])?
            }
            Operation::Alltoall => collective.alltoall(&spans, &vec![bytes / size; size * size])?,
            Operation::Allreduce => collective.allreduce(&spans, &SUM, &[])?,
        })
    }
}

const SUM: Reduction = Reduction {
    dtype: Dtype::F32,
    op: ReduceOp::Sum,
    prescale: 1.0,
    postscale: 1.0,
};
