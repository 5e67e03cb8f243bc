//! Operations as submitted by front ends that manage memory themselves, and the checks that one
//! rank can make alone.

#![allow(unsafe_code)] // the contract of submitted memory: it outlives the operation

use std::sync::Arc;

use super::ProcessSet;
use crate::device::OnDevice;
use crate::error::{ArgumentError, DeviceError, Error};
use crate::negotiation::request::may_send_as;
use crate::negotiation::{OpKind, Params, RESERVED_PREFIX};
use crate::queue::{Entry, Output, Wanted};
use crate::tensor::{Device, Dtype, ReduceOp, Shape, Span, fits_memory};

/// Operation on one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Combines tensors of the same shape; every rank gets the result, of that shape.
    Allreduce {
        /// Reduction operation.
        op: ReduceOp,
        /// Factor on every contribution.
        prescale: f64,
        /// Factor on the result.
        postscale: f64,
    },
    /// Every rank gets the rows of all ranks, in rank order. Numbers of rows may differ between
    /// ranks.
    Allgather,
    /// Every rank gets the root's tensor.
    Broadcast {
        /// The root, a job rank.
        root: usize,
    },
    /// Every rank sends some rows to each rank and gets the rows that were sent to it, in rank
    /// order.
    Alltoall {
        /// Number of rows for each rank of the process set; empty: the same number for each.
        splits: &'a [usize],
    },
    /// Combines tensors as an allreduce does; every rank gets a share of the rows of the result, in
    /// rank order. The shares differ by at most one row, and the first ranks have the larger ones.
    Reducescatter {
        /// Reduction operation.
        op: ReduceOp,
        /// Factor on every contribution.
        prescale: f64,
        /// Factor on the result.
        postscale: f64,
    },
}

/// A tensor in memory that the caller manages.
#[derive(Clone, Copy, Debug)]
pub struct RawTensor<'a> {
    /// The tensor's name: the same on all ranks, and different from other tensors in flight.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Element type in which an allreduce or reducescatter sends the elements: floats on GPUs may
    /// be sent as 16-bit floats. `None`: the tensor's own type.
    pub wire_dtype: Option<Dtype>,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
    /// Device that holds the input and the output. On a GPU the input is ready when the work that
    /// is on the stream now has completed.
    pub device: Device,
    /// Address of the first element.
    pub input: *const u8,
    /// Destination of the result.
    pub output: RawOutput,
}

impl RawTensor<'_> {
    /// Checks the properties that do not depend on the operation.
    #[inline]
    fn check(&self) -> Result<(), Error> {
        if !fits_memory(self.dtype, self.shape) {
            return Err(too_large(self.name, self.shape));
        }
        if self.name.starts_with(RESERVED_PREFIX) {
            return Err(ArgumentError::ReservedName {
                tensor: self.name.to_owned(),
            }
            .into());
        }
        Ok(())
    }

    /// Checks that the reduction is defined for the elements.
    #[inline]
    fn check_reduction(&self, op: ReduceOp, prescale: f64, postscale: f64) -> Result<(), Error> {
        if self.dtype == Dtype::Bool
            && (op == ReduceOp::Average || (prescale, postscale) != (1.0, 1.0))
        {
            return Err(ArgumentError::InvalidDtype {
                tensor: self.name.to_owned(),
                dtype: self.dtype,
                what: if op == ReduceOp::Average {
                    "average"
                } else {
                    "a scale factor"
                },
            }
            .into());
        }
        Ok(())
    }
}

/// Destination of an operation's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawOutput {
    /// Given memory, with exactly as many bytes as the result. For an allreduce and a broadcast it
    /// may be the input.
    Into {
        /// Address of the first byte.
        address: *mut u8,
        /// Length in bytes.
        bytes: usize,
    },
    /// Memory that the runtime allocates
    /// ([`RawHandle::take_delivery`](super::RawHandle::take_delivery)).
    Allocate,
}

impl Operation<'_> {
    fn kind(&self) -> OpKind {
        match self {
            Self::Allreduce { .. } => OpKind::Allreduce,
            Self::Allgather => OpKind::Allgather,
            Self::Broadcast { .. } => OpKind::Broadcast,
            Self::Alltoall { .. } => OpKind::Alltoall,
            Self::Reducescatter { .. } => OpKind::Reducescatter,
        }
    }

    /// Checks the operation as far as this rank alone can, and returns the parameters that the
    /// ranks compare.
    fn params(&self, set: &ProcessSet, tensor: &RawTensor<'_>) -> Result<Params, Error> {
        let name = || tensor.name.to_owned();
        let RawTensor { dtype, shape, .. } = *tensor;
        tensor.check()?;
        let mut params = Params::plain(self.kind(), dtype, Shape::from_slice(shape));
        params.wire_dtype = tensor.wire_dtype.filter(|&wire| wire != dtype);
        if let Some(wire) = params.wire_dtype
            && !may_send_as(params.kind, dtype, wire, tensor.device != Device::Cpu)
        {
            return Err(ArgumentError::InvalidCompression {
                tensor: name(),
                dtype,
                wire,
            }
            .into());
        }
        let is_on_rows = matches!(
            self,
            Self::Allgather | Self::Alltoall { .. } | Self::Reducescatter { .. }
        );
        let Some(&rows) = shape.first().or((!is_on_rows).then_some(&1)) else {
            return Err(ArgumentError::NoRows {
                tensor: name(),
                operation: params.kind.name(),
            }
            .into());
        };
        match *self {
            Self::Allreduce {
                op,
                prescale,
                postscale,
            }
            | Self::Reducescatter {
                op,
                prescale,
                postscale,
            } => {
                tensor.check_reduction(op, prescale, postscale)?;
                (params.op, params.prescale, params.postscale) = (op, prescale, postscale);
            }
            Self::Broadcast { root } => {
                set.check_root(tensor.name, root)?;
                params.root = root as u32;
            }
            Self::Alltoall { splits } => {
                params.splits = Some(set.check_splits(tensor.name, rows, splits)?)
            }
            Self::Allgather => {}
        }
        params.needs_all = set.inner.strict_join && params.kind != OpKind::Allreduce;
        Ok(params)
    }

    /// Checks the operation, and returns its parameters and the tensor's place on a device. An
    /// allreduce in host memory needs no parameters.
    #[inline]
    fn wanted<'t>(
        &self,
        set: &ProcessSet,
        tensor: &RawTensor<'t>,
        can_follow: bool,
    ) -> Result<(Wanted<'t>, Option<Box<OnDevice>>), Error> {
        let (device, wire_dtype) = (tensor.device, tensor.wire_dtype);
        match *self {
            Self::Allreduce {
                op,
                prescale,
                postscale,
            } if device == Device::Cpu && wire_dtype.is_none() => {
                tensor.check()?;
                tensor.check_reduction(op, prescale, postscale)?;
                let wanted = Wanted::Allreduce {
                    dtype: tensor.dtype,
                    shape: tensor.shape,
                    op,
                    prescale,
                    postscale,
                    group: None,
                };
                Ok((wanted, None))
            }
            _ => {
                let mut params = self.params(set, tensor)?;
                let on = set.inner.binding.submit(device, can_follow);
                let on = on.map_err(|error| DeviceError::Tensor {
                    tensor: tensor.name.to_owned(),
                    rank: set.inner.job_rank,
                    source: Arc::new(error),
                })?;
                params.device = on.as_ref().map(|on| on.ordinal);
                Ok((params.into(), on.map(Box::new)))
            }
        }
    }

    /// Returns the operation as a queue entry. `can_follow`: the caller can make a stream wait for
    /// the result.
    ///
    /// # Safety
    /// As for [`ProcessSet::submit`].
    pub(super) unsafe fn entry<'t>(
        &self,
        set: &ProcessSet,
        tensor: &RawTensor<'t>,
        can_follow: bool,
    ) -> Result<Entry<'t>, Error> {
        let (params, on) = self.wanted(set, tensor, can_follow)?;
        let is_same_size = matches!(self, Self::Allreduce { .. } | Self::Broadcast { .. });
        let bytes = tensor.shape.iter().product::<usize>() * tensor.dtype.size_bytes();
        let (address, output) = match tensor.output {
            RawOutput::Allocate => (std::ptr::null_mut(), Output::New),
            RawOutput::Into {
                address,
                bytes: found,
            } if is_same_size && found == bytes => (address, Output::Fixed),
            RawOutput::Into { bytes: found, .. } if is_same_size => {
                return Err(ArgumentError::OutputSize {
                    tensor: tensor.name.to_owned(),
                    shape: tensor.shape.to_vec(),
                    expected_bytes: bytes,
                    found_bytes: found,
                }
                .into());
            }
            RawOutput::Into { address, bytes } => (address, Output::Sized(bytes)),
        };
        // No elements need no address, but null means that there is no tensor.
        let input = match bytes == 0 && tensor.input.is_null() {
            true => std::ptr::dangling(),
            false => tensor.input,
        };
        // SAFETY: the caller keeps the same contract, except for the output's length, which is
        // checked here or in the cycle.
        let span = unsafe { Span::new(input, address, bytes) };
        Ok(Entry {
            name: tensor.name,
            params,
            span: Some(span),
            output,
            on,
        })
    }
}

/// Shape of `elements` elements: the caller's, or one dimension if it gave none.
pub(super) fn shape_of(
    name: &str,
    shape: Option<&[usize]>,
    elements: usize,
) -> Result<Shape, Error> {
    let Some(shape) = shape else {
        return Ok([elements].into_iter().collect());
    };
    match shape
        .iter()
        .try_fold(1usize, |product, &dimension| product.checked_mul(dimension))
    {
        Some(product) if product == elements => Ok(Shape::from_slice(shape)),
        Some(expected) => Err(ArgumentError::ShapeMismatch {
            tensor: name.to_owned(),
            shape: shape.to_vec(),
            expected,
            found: elements,
        }
        .into()),
        None => Err(too_large(name, shape)),
    }
}

fn too_large(tensor: &str, shape: &[usize]) -> Error {
    ArgumentError::ShapeTooLarge {
        tensor: tensor.to_owned(),
        shape: shape.to_vec(),
    }
    .into()
}
