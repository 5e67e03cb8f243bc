//! What two ranks submitted differently under one name.

use std::fmt;

use ronde_job::OpKind;

use crate::tensor::{Dtype, Group, ReduceOp};

/// What two ranks disagree about.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("mismatched {what} for tensor {tensor}: rank {rank} has {found}, rank {first_rank} has {expected}")]
pub struct Mismatch {
    /// Name of the tensor.
    pub tensor: String,
    /// What differs.
    pub what: Mismatched,
    /// The rank that `expected` was taken from.
    pub first_rank: usize,
    /// What that rank submitted.
    pub expected: Submitted,
    /// The rank that differs from it.
    pub rank: usize,
    /// What the latter submitted.
    pub found: Submitted,
}

/// What differs between two ranks; shown in the words that Horovod's users know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatched {
    /// The operation.
    Operation,
    /// The element type.
    Dtype,
    /// Dimensions, of this operation; the members of the process set in [`OpKind::Agree`].
    Shape(OpKind),
    /// How elements are combined.
    ReduceOp,
    /// Factors before and after the reduction.
    Factors,
    /// The element type between ranks.
    WireDtype,
    /// The root of a broadcast.
    Root,
    /// How many tensors are in flight, where a process set is to be removed.
    InFlight,
    /// The group that the tensor belongs to.
    Group,
    /// Host memory or GPU.
    Device,
    /// Whether the operation continues without ranks that have joined.
    JoinedRanks,
}

impl Mismatched {
    /// As text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operation => "operations",
            Self::Dtype => "data types",
            Self::Shape(OpKind::Allreduce) => "ALLREDUCE tensor shapes",
            Self::Shape(OpKind::Allgather) => "ALLGATHER tensor shapes (all dimensions but the first)",
            Self::Shape(OpKind::Broadcast) => "BROADCAST tensor shapes",
            Self::Shape(OpKind::Alltoall) => "ALLTOALL tensor shapes (all dimensions but the first)",
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

/// What one rank submitted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Submitted {
    /// See [`Mismatched::Operation`].
    Operation(OpKind),
    /// See [`Mismatched::Dtype`].
    Dtype(Dtype),
    /// See [`Mismatched::Shape`].
    Shape(Vec<usize>),
    /// See [`Mismatched::ReduceOp`].
    ReduceOp(ReduceOp),
    /// See [`Mismatched::Factors`].
    Factors {
        /// On every contribution.
        prescale: f64,
        /// On the result.
        postscale: f64,
    },
    /// See [`Mismatched::WireDtype`]; `None` for the tensor's own.
    WireDtype(Option<Dtype>),
    /// See [`Mismatched::Root`]: a rank of the job.
    Root(u32),
    /// See [`Mismatched::InFlight`].
    InFlight(usize),
    /// See [`Mismatched::Group`].
    Group(Option<Group>),
    /// See [`Mismatched::Device`].
    Device {
        /// Whether it is a GPU.
        is_gpu: bool,
    },
    /// See [`Mismatched::JoinedRanks`].
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
            Self::Factors { prescale, postscale } => {
                write!(f, "prescale {prescale} and postscale {postscale}")
            }
            Self::WireDtype(Some(dtype)) => write!(f, "as {dtype}"),
            Self::WireDtype(None) => f.write_str("as they are"),
            Self::Root(rank) => rank.fmt(f),
            Self::InFlight(count) => count.fmt(f),
            Self::Group(Some(group)) => write!(f, "a group of {} (hash {:x})", group.size, group.tag),
            Self::Group(None) => f.write_str("no group"),
            Self::Device { is_gpu: true } => f.write_str("GPU"),
            Self::Device { is_gpu: false } => f.write_str("CPU"),
            Self::JoinedRanks { needs_all } => needs_all.fmt(f),
        }
    }
}
