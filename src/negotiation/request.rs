//! Requests: descriptions of tensors that are not in the response cache, and the comparison of two
//! of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::block::READY_US_MAX;
pub(crate) use ronde_job::OpKind;

use crate::error::{Mismatched, Submitted};
use crate::tensor::{Dtype, Group, ReduceOp, Shape, fits_memory};

/// Prefix of the names of the runtime's own operations. User tensors must not have it, because they
/// would be compared with these operations.
pub(crate) const RESERVED_PREFIX: &str = "ronde.";

/// Name of all joins.
pub(crate) const JOIN: &str = "ronde.join";

/// Whether elements of `dtype` may be sent as `wire`: floats of a reduction in device memory, as
/// shorter floats.
pub(crate) fn may_send_as(kind: OpKind, dtype: Dtype, wire: Dtype, is_on_device: bool) -> bool {
    kind.is_reduction() && is_on_device && dtype.narrows_to(wire)
}

/// Parameters of an operation. They must be equal on all ranks, except for the rows of an allgather
/// or an alltoall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Params {
    /// The operation.
    pub kind: OpKind,
    /// Element type.
    #[serde(with = "wire::dtype")]
    pub dtype: Dtype,
    /// Element type between ranks, if it differs (reductions on GPUs).
    #[serde(with = "wire::maybe_dtype")]
    pub wire_dtype: Option<Dtype>,
    /// Dimensions; in an [`OpKind::Agree`] the numbers to agree on.
    pub shape: Shape,
    /// Reduction operation (reductions).
    #[serde(with = "wire::op")]
    pub op: ReduceOp,
    /// Factor on every contribution (reductions).
    pub prescale: f64,
    /// Factor on the result (reductions).
    pub postscale: f64,
    /// Job rank that sends the data (broadcast).
    pub root: u32,
    /// Rows for each rank of the process set (alltoall).
    pub splits: Option<Box<[u64]>>,
    /// Group of the tensor.
    pub group: Option<Group>,
    /// CUDA ordinal, or `None` for host memory. Ranks must agree only on GPU or host memory.
    pub device: Option<u32>,
    /// Whether the operation fails if a rank has joined, instead of running without that rank.
    pub needs_all: bool,
}

impl Params {
    /// Makes parameters of an operation without scale factors, root, splits, group and device.
    pub(crate) fn plain(kind: OpKind, dtype: Dtype, shape: Shape) -> Self {
        Self {
            kind,
            dtype,
            wire_dtype: None,
            shape,
            op: ReduceOp::Sum,
            prescale: 1.0,
            postscale: 1.0,
            root: 0,
            splits: None,
            group: None,
            device: None,
            needs_all: false,
        }
    }

    /// Payload of this rank, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }

    /// Number of elements of this rank.
    pub(crate) fn elements(&self) -> usize {
        if self.kind.moves_data() {
            self.shape.iter().product()
        } else {
            0
        }
    }

    /// Bytes of one row: the elements with the same index in the first dimension.
    pub(crate) fn row_bytes(&self) -> usize {
        match self.kind.moves_data() {
            true => self.shape.iter().skip(1).product::<usize>() * self.dtype.size_bytes(),
            false => 0, // the shape may be a list of ranks
        }
    }

    /// Returns the first parameter in which `other` differs, with both values: name, here, there.
    pub(crate) fn difference(&self, other: &Self) -> Option<(Mismatched, [Submitted; 2])> {
        let both = [self, other];
        let differ = |what, submitted: fn(&Self) -> Submitted| Some((what, both.map(submitted)));
        if self.kind != other.kind {
            return differ(Mismatched::Operation, |params| {
                Submitted::Operation(params.kind)
            });
        }
        if self.dtype != other.dtype {
            return differ(Mismatched::Dtype, |params| Submitted::Dtype(params.dtype));
        }
        if !self.shape_fits(other) {
            let shape = |params: &Self| Submitted::Shape(params.shape.to_vec());
            return differ(Mismatched::Shape(self.kind), shape);
        }
        if self.op != other.op {
            return differ(Mismatched::ReduceOp, |params| {
                Submitted::ReduceOp(params.op)
            });
        }
        // NaN factors on all ranks count as equal.
        let unequal = |here: f64, there: f64| here != there && !(here.is_nan() && there.is_nan());
        if unequal(self.prescale, other.prescale) || unequal(self.postscale, other.postscale) {
            return differ(Mismatched::Factors, |params| Submitted::Factors {
                prescale: params.prescale,
                postscale: params.postscale,
            });
        }
        if self.wire_dtype != other.wire_dtype {
            return differ(Mismatched::WireDtype, |params| {
                Submitted::WireDtype(params.wire_dtype)
            });
        }
        if self.root != other.root && self.kind == OpKind::Agree {
            return differ(Mismatched::InFlight, |params| {
                Submitted::InFlight(params.root as usize)
            });
        }
        if self.root != other.root {
            return differ(Mismatched::Root, |params| Submitted::Root(params.root));
        }
        if self.group != other.group {
            return differ(Mismatched::Group, |params| Submitted::Group(params.group));
        }
        if self.device.is_some() != other.device.is_some() {
            return differ(Mismatched::Device, |params| Submitted::Device {
                is_gpu: params.device.is_some(),
            });
        }
        if self.needs_all != other.needs_all {
            return differ(Mismatched::JoinedRanks, |params| Submitted::JoinedRanks {
                needs_all: params.needs_all,
            });
        }
        None
    }

    /// Checks parameters from another rank of a process set, as
    /// [`Operation`](crate::context::Operation) checks those of this rank. `members` has the job
    /// ranks of the set.
    ///
    /// # Errors
    /// The first parameter that no rank can submit.
    pub(crate) fn check(&self, members: &[usize]) -> Result<(), String> {
        let (kind, shape) = (self.kind, &self.shape[..]);
        if kind.moves_data() && !fits_memory(self.dtype, shape) {
            return Err(format!(
                "{} of shape {shape:?} does not fit memory",
                kind.name()
            ));
        }
        if matches!(
            kind,
            OpKind::Allgather | OpKind::Alltoall | OpKind::Reducescatter
        ) && shape.is_empty()
        {
            return Err(format!("{} of a tensor without rows", kind.name()));
        }
        let splits_fit = match (&self.splits, kind) {
            (Some(splits), OpKind::Alltoall) => {
                let mut rows = splits.iter();
                let rows = rows.try_fold(0u64, |sum, &rows| sum.checked_add(rows));
                splits.len() == members.len() && rows == Some(shape[0] as u64)
            }
            (splits, _) => splits.is_none() && kind != OpKind::Alltoall,
        };
        if !splits_fit {
            return Err(format!(
                "{} of shape {shape:?} with splits {:?}",
                kind.name(),
                self.splits
            ));
        }
        if kind == OpKind::Broadcast && !members.contains(&(self.root as usize)) {
            return Err(format!(
                "BROADCAST from rank {}, which is not a member",
                self.root
            ));
        }
        let is_scaled = (self.prescale, self.postscale) != (1.0, 1.0);
        if kind.is_reduction()
            && self.dtype == Dtype::Bool
            && (self.op == ReduceOp::Average || is_scaled)
        {
            return Err(format!(
                "{} with an average or a scale factor of bool",
                kind.name()
            ));
        }
        if let Some(wire) = self.wire_dtype
            && !may_send_as(kind, self.dtype, wire, self.device.is_some())
        {
            return Err(format!("{} of {} sent as {wire}", kind.name(), self.dtype));
        }
        if self.group.is_some_and(|group| group.size == 0) {
            return Err("a group without members".to_owned());
        }
        Ok(())
    }

    /// Whether the operation needs job rank `rank`.
    pub(crate) fn needs_rank(&self, rank: usize) -> bool {
        match self.kind {
            OpKind::Agree => true,
            OpKind::Broadcast => self.needs_all || self.root as usize == rank,
            _ => self.needs_all,
        }
    }

    /// Rows that this rank contributes to the list of all ranks' rows, see
    /// [`Agreed::rows`](super::Agreed::rows): one number, or one for each rank.
    pub(crate) fn own_rows(&self) -> SmallVec<[u64; 4]> {
        match self.kind {
            OpKind::Allgather => self.shape.iter().take(1).map(|&rows| rows as u64).collect(),
            OpKind::Alltoall => self.splits.iter().flatten().copied().collect(),
            _ => SmallVec::new(),
        }
    }

    fn shape_fits(&self, other: &Self) -> bool {
        if self.kind.has_own_rows() {
            self.shape.len() == other.shape.len()
                && self.shape.iter().skip(1).eq(other.shape.iter().skip(1))
        } else {
            self.shape == other.shape
        }
    }
}

/// One tensor that is ready on a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// Operation and its parameters.
    pub params: Params,
    /// Time of submission, microseconds on rank 0's clock.
    pub ready_us: u64,
}

impl Request {
    /// Checks a request from another rank of the process set of `members`.
    ///
    /// # Errors
    /// The first value that no rank can send.
    pub(crate) fn check(&self, members: &[usize]) -> Result<(), String> {
        let Self {
            name,
            params,
            ready_us,
        } = self;
        let is_join = params.kind == OpKind::Join;
        let is_reserved = params.kind.moves_data() && name.starts_with(RESERVED_PREFIX);
        if is_reserved || is_join != (&**name == JOIN) {
            return Err(format!(
                "a request for {} under the name {name}",
                params.kind.name()
            ));
        }
        if *ready_us > READY_US_MAX {
            return Err(format!(
                "tensor {name} is ready since microsecond {ready_us}"
            ));
        }
        if is_join && *params != Params::plain(OpKind::Join, Dtype::U8, Shape::default()) {
            return Err(format!("a join with {params:?}"));
        }
        let in_tensor = |problem| format!("tensor {name}: {problem}");
        params.check(members).map_err(in_tensor)
    }
}

/// All new requests of one rank in one cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestList {
    /// In order of submission.
    pub requests: Vec<Request>,
}

/// Serde functions for enums that have wire numbers.
mod wire {
    macro_rules! by_number {
        ($module:ident, $type:ty) => {
            pub(super) mod $module {
                use serde::{Deserialize, Deserializer, Serializer, de::Error};
                pub(crate) fn serialize<S: Serializer>(
                    value: &$type,
                    to: S,
                ) -> Result<S::Ok, S::Error> {
                    to.serialize_u8(*value as u8)
                }
                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                    from: D,
                ) -> Result<$type, D::Error> {
                    let number = u8::deserialize(from)?;
                    <$type>::from_wire(number)
                        .ok_or_else(|| D::Error::custom(format!("unknown number {number}")))
                }
            }
        };
    }
    by_number!(dtype, crate::tensor::Dtype);
    by_number!(op, crate::tensor::ReduceOp);

    pub(super) mod maybe_dtype {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use crate::tensor::Dtype;

        #[derive(Serialize, Deserialize)]
        struct Known(#[serde(with = "super::dtype")] Dtype);

        pub(crate) fn serialize<S: Serializer>(
            value: &Option<Dtype>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            value.map(Known).serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Dtype>, D::Error> {
            Ok(Option::<Known>::deserialize(from)?.map(|known| known.0))
        }
    }
}
