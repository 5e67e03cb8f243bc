//! Operations as front ends describe them that manage memory themselves, and the checks that one rank can make alone.

#![allow(unsafe_code)] // the contract of submitted memory: it outlives the operation

use std::sync::Arc;

use super::ProcessSet;
use crate::device::OnDevice;
use crate::error::{ArgumentError, DeviceError, Error};
use crate::negotiation::request::may_send_as;
use crate::negotiation::{OpKind, Params, RESERVED_PREFIX};
use crate::queue::{Entry, Output, Wanted};
use crate::tensor::{Device, Dtype, ReduceOp, Shape, Span, fits_memory};

/// What is to be done with a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Combine with the other ranks' tensors of the same shape; everyone gets the result, of that shape.
    Allreduce {
        /// How elements are combined.
        op: ReduceOp,
        /// Factor on every contribution.
        prescale: f64,
        /// Factor on the result.
        postscale: f64,
    },
    /// Everyone gets the rows of all ranks, in rank order. Ranks may bring different numbers of rows.
    Allgather,
    /// Everyone gets the root's tensor.
    Broadcast {
        /// The root, a rank of the job.
        root: usize,
    },
    /// Everyone sends some rows to each rank and gets the rows that each has sent to it, in rank order.
    Alltoall {
        /// Rows for each rank of the process set; empty: the same number for each.
        splits: &'a [usize],
    },
    /// Combine as in an allreduce; everyone gets a share of the rows of the result, in rank order, as even as can be
    /// (the first ranks get one more).
    Reducescatter {
        /// How elements are combined.
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
    /// Its name: the same on all ranks, and of no other tensor in flight.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Data type in which the elements of an allreduce or reducescatter are sent: floats on GPUs may be sent as 16-bit floats.
    /// None: the tensor's own type.
    pub wire_dtype: Option<Dtype>,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
    /// Where its memory is, the output's too. On a GPU the input is ready when what is on the stream now is done.
    pub device: Device,
    /// The first element.
    pub input: *const u8,
    /// Where the result goes.
    pub output: RawOutput,
}

impl RawTensor<'_> {
    /// Checks what does not depend on the operation.
    #[inline]
    fn check(&self) -> Result<(), Error> {
        if !fits_memory(self.dtype, self.shape) {
            return Err(ArgumentError::ShapeMismatch {
                tensor: self.name.to_owned(),
                shape: self.shape.to_vec(),
                expected: usize::MAX,
                found: 0,
            }
            .into());
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
        if self.dtype == Dtype::Bool && (op == ReduceOp::Average || (prescale, postscale) != (1.0, 1.0)) {
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

/// Where the result of an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawOutput {
    /// Here; the memory has just so many bytes as the result. For an allreduce and a broadcast it may be the input.
    Into {
        /// The first byte.
        address: *mut u8,
        /// Length in bytes.
        bytes: usize,
    },
    /// To memory that the runtime allocates ([`RawHandle::take_delivery`](super::RawHandle::take_delivery)).
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

    /// Checks what this rank alone can check, and describes the operation as the ranks compare it.
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
            Self::Alltoall { splits } => params.splits = Some(set.check_splits(tensor.name, rows, splits)?),
            Self::Allgather => {}
        }
        params.needs_all = set.inner.strict_join && params.kind != OpKind::Allreduce;
        Ok(params)
    }

    /// The same, and the tensor's place on a device. An allreduce in host memory needs no params of
    /// its own.
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

    /// The operation as it is submitted. `can_follow`: its caller can put a stream behind the result.
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
        // SAFETY: the caller's promise is the same, but for the output's length, which is checked here or in the cycle.
        let span = unsafe { Span::new(tensor.input, address, bytes) };
        Ok(Entry {
            name: tensor.name,
            params,
            span: Some(span),
            output,
            on,
        })
    }
}

/// The dimensions of `elements` elements, as the caller gave them; one dimension if it gave none.
pub(super) fn shape_of(name: &str, shape: Option<&[usize]>, elements: usize) -> Result<Shape, Error> {
    let Some(shape) = shape else {
        return Ok([elements].into_iter().collect());
    };
    match shape
        .iter()
        .try_fold(1usize, |product, &dimension| product.checked_mul(dimension))
    {
        Some(product) if product == elements => Ok(Shape::from_slice(shape)),
        product => Err(ArgumentError::ShapeMismatch {
            tensor: name.to_owned(),
            shape: shape.to_vec(),
            expected: product.unwrap_or(usize::MAX),
            found: elements,
        }
        .into()),
    }
}
