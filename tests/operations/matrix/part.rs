//! Tensor of a test case, in any memory.

use ronde::{Operation, Reduce, ReduceOp};

/// Tensor and its expected result.
pub(crate) struct Part<'a, T> {
    pub(crate) operation: Operation<'a>,
    pub(crate) input: Vec<T>,
    pub(crate) shape: Vec<usize>,
    pub(crate) expected: Vec<T>,
    pub(crate) expected_shape: Vec<usize>,
    /// Alltoall: the number of rows received from each rank.
    pub(crate) expected_splits: Vec<usize>,
    /// Whether it is unspecified which NaN results. (On a GPU it always is.)
    #[allow(dead_code, reason = "see there")]
    pub(crate) any_nan: bool,
}

impl<T: Copy> Part<'_, T> {
    /// Returns the reduction with the factors before and after it; `None` if the operation does not
    /// reduce.
    pub(crate) fn reduction(&self) -> Option<(ReduceOp, f64, f64)> {
        match self.operation {
            Operation::Allreduce {
                op,
                prescale,
                postscale,
            }
            | Operation::Reducescatter {
                op,
                prescale,
                postscale,
            } => Some((op, prescale, postscale)),
            _ => None,
        }
    }

    /// Returns the reduction as options.
    pub(crate) fn reduce(&self) -> Reduce {
        let (op, prescale, postscale) = self.reduction().expect("a reduction");
        Reduce::from(op).prescale(prescale).postscale(postscale)
    }

    /// Returns an output buffer with other elements, which the result overwrites.
    pub(crate) fn room(&self) -> Vec<T> {
        self.expected.iter().rev().copied().collect()
    }
}
