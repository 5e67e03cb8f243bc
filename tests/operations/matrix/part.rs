//! One tensor of a case, wherever it lies.

use ronde::{Operation, Reduce, ReduceOp};

/// A tensor and what has to become of it.
pub(crate) struct Part<'a, T> {
    pub(crate) operation: Operation<'a>,
    pub(crate) input: Vec<T>,
    pub(crate) shape: Vec<usize>,
    pub(crate) expected: Vec<T>,
    pub(crate) expected_shape: Vec<usize>,
    /// Alltoall: the rows received from each rank.
    pub(crate) expected_splits: Vec<usize>,
    /// Whether it is left open which NaN comes out. (On a GPU it always is.)
    #[allow(dead_code, reason = "see there")]
    pub(crate) any_nan: bool,
}

impl<T: Copy> Part<'_, T> {
    /// How elements are combined, with the factors before and after; none if they are not.
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

    /// The same as options.
    pub(crate) fn reduce(&self) -> Reduce {
        let (op, prescale, postscale) = self.reduction().expect("a reduction");
        Reduce::from(op).prescale(prescale).postscale(postscale)
    }

    /// Elements for the result to overwrite: as many, and others.
    pub(crate) fn room(&self) -> Vec<T> {
        self.expected.iter().rev().copied().collect()
    }
}
