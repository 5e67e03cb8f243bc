//! Parameters of a submission, borrowed from the caller where possible.

use std::sync::Arc;

use crate::negotiation::{Group, OpKind, Params};
use crate::tensor::{Dtype, ReduceOp, Shape};

/// Checked parameters. Those of an allreduce in host memory borrow the caller's values: a training
/// step submits the same parameters again and again, and only compares them.
pub(crate) enum Wanted<'a> {
    /// An allreduce in host memory.
    Allreduce {
        dtype: Dtype,
        shape: &'a [usize],
        op: ReduceOp,
        prescale: f64,
        postscale: f64,
        group: Option<Group>,
    },
    /// Any other operation.
    Other(Arc<Params>),
}

impl Wanted<'_> {
    pub(crate) fn kind(&self) -> OpKind {
        match self {
            Self::Allreduce { .. } => OpKind::Allreduce,
            Self::Other(params) => params.kind,
        }
    }

    /// Sets the group of the tensor; `None` if it has no group.
    pub(crate) fn set_group(&mut self, of: Option<Group>) {
        match self {
            Self::Allreduce { group, .. } => *group = of,
            Self::Other(params) => Arc::make_mut(params).group = of,
        }
    }

    /// Whether these parameters are equal to `params`.
    #[inline]
    pub(super) fn equals(&self, params: &Params) -> bool {
        let Self::Allreduce {
            dtype,
            shape,
            op,
            prescale,
            postscale,
            group,
        } = self
        else {
            return matches!(self, Self::Other(other) if **other == *params);
        };
        // All fields are named, so that a new field must be compared here too.
        let Params {
            kind: OpKind::Allreduce,
            dtype: known_dtype,
            wire_dtype: None,
            shape: known_shape,
            op: known_op,
            prescale: known_prescale,
            postscale: known_postscale,
            root: 0,
            splits: None,
            group: known_group,
            device: None,
            needs_all: false,
        } = params
        else {
            return false;
        };
        // Shapes have few dimensions: a loop is faster than a call of `memcmp`.
        let is_same_shape = || {
            let mut pairs = shape.iter().zip(known_shape);
            shape.len() == known_shape.len() && pairs.all(|(one, other)| one == other)
        };
        (dtype, op, prescale, postscale) == (known_dtype, known_op, known_prescale, known_postscale)
            && group == known_group
            && is_same_shape()
    }

    pub(super) fn into_params(self) -> Arc<Params> {
        match self {
            Self::Allreduce {
                dtype,
                shape,
                op,
                prescale,
                postscale,
                group,
            } => Arc::new(Params {
                op,
                prescale,
                postscale,
                group,
                ..Params::plain(OpKind::Allreduce, dtype, Shape::from_slice(shape))
            }),
            Self::Other(params) => params,
        }
    }
}

impl From<Params> for Wanted<'_> {
    fn from(params: Params) -> Self {
        Self::Other(Arc::new(params))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_allreduce_equals_its_params_and_no_others() {
        let wanted = || Wanted::Allreduce {
            dtype: Dtype::F32,
            shape: &[4, 8],
            op: ReduceOp::Average,
            prescale: 0.5,
            postscale: 2.0,
            group: Some(Group { tag: 7, size: 2 }),
        };
        let params = Params::clone(&wanted().into_params());
        assert!(wanted().equals(&params));
        assert!(Wanted::from(params.clone()).equals(&params));
        assert_eq!(
            (wanted().kind(), params.kind),
            (OpKind::Allreduce, OpKind::Allreduce)
        );

        let changes: [fn(&mut Params); 13] = [
            |params| params.kind = OpKind::Reducescatter,
            |params| params.dtype = Dtype::F64,
            |params| params.wire_dtype = Some(Dtype::F16),
            |params| params.shape[1] = 9,
            |params| params.shape.push(1),
            |params| params.op = ReduceOp::Sum,
            |params| params.prescale = 1.0,
            |params| params.postscale = 1.0,
            |params| params.root = 1,
            |params| params.splits = Some(Box::default()),
            |params| params.group = None,
            |params| params.device = Some(0),
            |params| params.needs_all = true,
        ];
        for change in changes {
            let mut changed = params.clone();
            change(&mut changed);
            assert!(!wanted().equals(&changed), "{changed:?}");
            assert!(!Wanted::from(changed).equals(&params));
        }
        let mut ungrouped = wanted();
        ungrouped.set_group(None);
        assert!(!ungrouped.equals(&params));
        assert_eq!(ungrouped.into_params().group, None);
    }
}
