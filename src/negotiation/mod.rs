//! Negotiation: how ranks agree on which tensors are ready everywhere, and in which order they travel.
//!
//! A tensor seen before costs one bit: its slot in the [`cache`], set in the rank's block for the cycle and
//! intersected with the others'. A new one goes as a [`Request`] to rank 0, whose
//! [`Coordinator`] compares what the ranks said and answers every rank with the same [`Response`]s in the same
//! order; these fill the cache, so that the caches of all ranks stay equal without ever being compared.

/// Tensors in flight at once on one rank.
pub(crate) const IN_FLIGHT_MAX: usize = 1 << 20;

mod agreement;
pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod coordinator;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stall;

pub(crate) use agreement::Agreement;
pub(crate) use block::{Block, Status};
pub(crate) use cache::ResponseCache;
pub(crate) use coordinator::Coordinator;
pub(crate) use request::{JOIN, RESERVED_PREFIX};
pub(crate) use request::{OpKind, Params, Request, RequestList};
pub(crate) use response::Receiver;
pub(crate) use response::{Agreed, Refusal, Response, ResponseList};

pub(crate) use crate::tensor::Group;
