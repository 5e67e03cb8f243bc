//! Options of a reduction: operation, factors and shape.

use super::Operation;
use crate::tensor::{ReduceOp, Shape};

/// Options of an allreduce or a reducescatter. Most calls pass just a [`ReduceOp`].
///
/// ```
/// use ronde::{Reduce, ReduceOp};
/// let halved = Reduce::from(ReduceOp::Sum).postscale(0.5).shape(&[2, 3]);
/// # let _ = halved;
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    shape: Option<Shape>,
}

impl From<ReduceOp> for Reduce {
    fn from(op: ReduceOp) -> Self {
        Self {
            op,
            prescale: 1.0,
            postscale: 1.0,
            shape: None,
        }
    }
}

impl Reduce {
    /// Multiplies every contribution by `factor` before the reduction.
    pub fn prescale(self, factor: f64) -> Self {
        Self {
            prescale: factor,
            ..self
        }
    }

    /// Multiplies the result by `factor`.
    pub fn postscale(self, factor: f64) -> Self {
        Self {
            postscale: factor,
            ..self
        }
    }

    /// Sets the tensor's dimensions, which must be equal on all ranks. The default is one
    /// dimension.
    pub fn shape(self, dimensions: &[usize]) -> Self {
        Self {
            shape: Some(dimensions.into()),
            ..self
        }
    }

    /// Returns the allreduce with these options, and the shape.
    pub(super) fn allreduce(self) -> (Operation<'static>, Option<Shape>) {
        let Self {
            op,
            prescale,
            postscale,
            shape,
        } = self;
        let operation = Operation::Allreduce {
            op,
            prescale,
            postscale,
        };
        (operation, shape)
    }

    /// Returns the reducescatter with these options, and the shape.
    pub(super) fn reducescatter(self) -> (Operation<'static>, Option<Shape>) {
        let Self {
            op,
            prescale,
            postscale,
            shape,
        } = self;
        let operation = Operation::Reducescatter {
            op,
            prescale,
            postscale,
        };
        (operation, shape)
    }
}
