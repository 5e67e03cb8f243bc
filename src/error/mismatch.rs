//! Mismatch: difference between two ranks' submissions of the same tensor.

use std::fmt;

use ronde_job::OpKind;

use crate::tensor::{Dtype, Group, ReduceOp};

/// Parameter in which two ranks' submissions of a tensor differ.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "mismatched {what} for tensor {tensor}: rank {rank} has {found}, rank {first_rank} has {expected}"
)]
pub struct Mismatch {
    /// Name of the tensor.
    pub tensor: String,
    /// The parameter that differs.
    pub what: Mismatched,
    /// The rank that `expected` was taken from.
    pub first_rank: usize,
    /// Value on that rank.
    pub expected: Submitted,
    /// The rank that differs from it.
    pub rank: usize,
    /// Value on that rank.
    pub found: Submitted,
}

/// Parameter that differs between two ranks; printed in Horovod's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatched {
    /// The operation.
    Operation,
    /// The element type.
    Dtype,
    /// Dimensions, for this operation; the members of the process set in [`OpKind::Agree`].
    Shape(OpKind),
    /// Reduction operation.
    ReduceOp,
    /// Factors before and after the reduction.
    Factors,
    /// The element type between ranks.
    WireDtype,
    /// The root of a broadcast.
    Root,
    /// Number of tensors in flight, when a process set is removed.
    InFlight,
    /// The group that the tensor belongs to.
    Group,
    /// Host memory or GPU.
    Device,
    /// Whether the operation continues without ranks that have joined.
    JoinedRanks,
}

impl Mismatched {
    /// Returns the name in error texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operation => "operations",
            Self::Dtype => "data types",
            Self::Shape(OpKind::Allreduce) => "ALLREDUCE tensor shapes",
            Self::Shape(OpKind::Allgather) => {
                "ALLGATHER tensor shapes (all dimensions but the first)"
            }
            Self::Shape(OpKind::Broadcast) => "BROADCAST tensor shapes",
            Self::Shape(OpKind::Alltoall) => {
                "ALLTOALL tensor shapes (all dimensions but the first)"
            }
            Self::Shape(OpKind::Reducescatter) => "REDUCESCATTER tensor shapes",
            Self::Shape(OpKind::Agree) => "process sets",
            Self::Shape(OpKind::Join | OpKind::Barrier) => "shapes",
            Self::ReduceOp => "reduction operation",
            Self::Factors => "prescale and/or postscale factors",
            Self::WireDtype => "compression of elements",
            Self::Root => "BROADCAST root ranks",
            Self::InFlight => "tensors in flight",
            Self::Group => "groups",
            Self::Device => "CPU/GPU device selection",
            Self::JoinedRanks => "setting strict_join",
        }
    }
}

impl fmt::Display for Mismatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Value of a parameter on one rank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Submitted {
    /// The operation.
    Operation(OpKind),
    /// The element type.
    Dtype(Dtype),
    /// The dimensions, or the members of the process set.
    Shape(Vec<usize>),
    /// Reduction operation.
    ReduceOp(ReduceOp),
    /// Factors before and after the reduction.
    Factors {
        /// Factor on every contribution.
        prescale: f64,
        /// Factor on the result.
        postscale: f64,
    },
    /// The element type between ranks; `None` for the tensor's own.
    WireDtype(Option<Dtype>),
    /// The root of a broadcast, a job rank.
    Root(u32),
    /// Number of tensors in flight.
    InFlight(usize),
    /// The group, if the tensor has one.
    Group(Option<Group>),
    /// Host memory or GPU.
    Device {
        /// Whether it is a GPU.
        is_gpu: bool,
    },
    /// Setting `strict_join`.
    JoinedRanks {
        /// Whether the operation fails once a rank has joined.
        needs_all: bool,
    },
}

impl fmt::Display for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(kind) => f.write_str(kind.name()),
            Self::Dtype(dtype) => dtype.fmt(f),
            Self::Shape(shape) => write!(f, "{shape:?}"),
            Self::ReduceOp(op) => op.fmt(f),
            Self::Factors {
                prescale,
                postscale,
            } => {
                write!(f, "prescale {prescale} and postscale {postscale}")
            }
            Self::WireDtype(Some(dtype)) => dtype.fmt(f),
            Self::WireDtype(None) => f.write_str("none"),
            Self::Root(rank) => rank.fmt(f),
            Self::InFlight(count) => count.fmt(f),
            Self::Group(Some(group)) => {
                write!(f, "a group of {} (hash {:x})", group.size, group.tag)
            }
            Self::Group(None) => f.write_str("no group"),
            Self::Device { is_gpu: true } => f.write_str("GPU"),
            Self::Device { is_gpu: false } => f.write_str("CPU"),
            Self::JoinedRanks { needs_all } => needs_all.fmt(f),
        }
    }
}
