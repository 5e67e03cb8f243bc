//! What a rank says about a tensor that is not in the response cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::tensor::{Dtype, ReduceOp, Shape};

/// The operations. Discriminants are Horovod's (`facts/horovod.md` §4.1) and travel on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum OpKind {
    /// Combine over all ranks, result everywhere.
    Allreduce = 0,
    /// Copy from one rank to all.
    Broadcast = 2,
    /// Wait for all; moves nothing.
    Barrier = 6,
}

impl OpKind {
    /// Upper-case name, as in timelines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "ALLREDUCE",
            Self::Broadcast => "BROADCAST",
            Self::Barrier => "BARRIER",
        }
    }

    /// Name of the negotiation phase in timelines.
    pub const fn negotiate_name(self) -> &'static str {
        match self {
            Self::Allreduce => "NEGOTIATE_ALLREDUCE",
            Self::Broadcast => "NEGOTIATE_BROADCAST",
            Self::Barrier => "NEGOTIATE_BARRIER",
        }
    }
}

/// Everything about a submission that must be the same on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The operation.
    pub kind: OpKind,
    /// Element type.
    #[serde(with = "wire::dtype")]
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Shape,
    /// How elements are combined (allreduce).
    #[serde(with = "wire::op")]
    pub op: ReduceOp,
    /// Factor on every contribution (allreduce).
    pub prescale: f64,
    /// Factor on the result (allreduce).
    pub postscale: f64,
    /// Where the data comes from (broadcast).
    pub root: u32,
    /// CUDA ordinal, or `None` for host memory. Only which of the two it is must agree.
    pub device: Option<u32>,
}

impl Params {
    /// Payload in bytes.
    pub fn bytes(&self) -> u64 {
        self.elements() as u64 * self.dtype.size_bytes() as u64
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        if self.kind == OpKind::Barrier {
            0
        } else {
            self.shape.iter().product()
        }
    }

    /// The first thing in which `other` differs, with both values as text: what, here, there.
    pub fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let text = |what, here: &dyn std::fmt::Display, there: &dyn std::fmt::Display| {
            Some((what, here.to_string(), there.to_string()))
        };
        let place = |device: Option<u32>| if device.is_some() { "GPU" } else { "CPU" };
        if self.kind != other.kind {
            return text("operations", &self.kind.name(), &other.kind.name());
        }
        if self.dtype != other.dtype {
            return text("data types", &self.dtype, &other.dtype);
        }
        if self.shape != other.shape {
            let what = match self.kind {
                OpKind::Broadcast => "BROADCAST tensor shapes",
                OpKind::Allreduce | OpKind::Barrier => "ALLREDUCE tensor shapes",
            };
            return Some((
                what,
                format!("{:?}", &self.shape[..]),
                format!("{:?}", &other.shape[..]),
            ));
        }
        if self.op != other.op {
            return text("reduction operation", &self.op, &other.op);
        }
        if self.prescale != other.prescale || self.postscale != other.postscale {
            let show =
                |params: &Self| format!("prescale {} and postscale {}", params.prescale, params.postscale);
            return Some(("prescale and/or postscale factors", show(self), show(other)));
        }
        if self.root != other.root {
            return text("BROADCAST root ranks", &self.root, &other.root);
        }
        if self.device.is_some() != other.device.is_some() {
            return text(
                "CPU/GPU device selection",
                &place(self.device),
                &place(other.device),
            );
        }
        None
    }
}

/// One tensor that a rank has ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// What is to be done with it.
    pub params: Params,
    /// When it was submitted, microseconds on the job's clock.
    pub ready_us: u64,
}

/// All new requests of one rank in one cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestList {
    /// In order of submission.
    pub requests: Vec<Request>,
}

/// Serde for enums that keep their wire number.
mod wire {
    macro_rules! by_number {
        ($module:ident, $type:ty) => {
            pub(super) mod $module {
                use serde::{Deserialize, Deserializer, Serializer, de::Error};
                pub(crate) fn serialize<S: Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                    to.serialize_u8(*value as u8)
                }
                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                    let number = u8::deserialize(from)?;
                    <$type>::from_wire(number)
                        .ok_or_else(|| D::Error::custom(format!("unknown number {number}")))
                }
            }
        };
    }
    by_number!(dtype, crate::tensor::Dtype);
    by_number!(op, crate::tensor::ReduceOp);
}
