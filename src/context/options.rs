//! How a reduction combines tensors.

use super::Operation;
use crate::tensor::{ReduceOp, Shape};

/// How an allreduce or a reducescatter combines tensors. Most calls pass just a [`ReduceOp`].
///
/// ```
/// use ronde::{Reduce, ReduceOp};
/// let halved = Reduce::from(ReduceOp::Sum).postscale(0.5).shape(&[2, 3]);
/// # let _ = halved;
/// ```
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
    /// Multiplies every contribution by `factor` first.
    #[must_use]
    pub fn prescale(self, factor: f64) -> Self {
        Self {
            prescale: factor,
            ..self
        }
    }

    /// Multiplies the result by `factor`.
    #[must_use]
    pub fn postscale(self, factor: f64) -> Self {
        Self {
            postscale: factor,
            ..self
        }
    }

    /// Gives the tensor's dimensions, which must agree among ranks; one dimension otherwise.
    #[must_use]
    pub fn shape(self, dimensions: &[usize]) -> Self {
        Self {
            shape: Some(dimensions.into()),
            ..self
        }
    }

    /// The allreduce that is meant, and the dimensions.
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

    /// The reducescatter that is meant, and the dimensions.
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
