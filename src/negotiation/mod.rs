//! Negotiation: the ranks agree on the tensors that are ready on all of them, and on the order of
//! their operations.
//!
//! A tensor that was negotiated before costs one bit: its slot in the [`cache`], set in the rank's
//! block for the cycle and intersected with the others'. A new tensor is sent as a [`Request`] to
//! rank 0. Its [`Coordinator`] compares the requests and sends the same [`Response`]s in the same
//! order to every rank. The responses fill the cache, so that the caches of all ranks stay equal
//! without a comparison.

/// Most tensors in flight at once on one rank.
pub(crate) const IN_FLIGHT_MAX: usize = 1 << 20;

mod agreement;
pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod coordinator;
mod details;
mod partial;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stall;

pub(crate) use agreement::{Agreement, Last};
pub(crate) use block::{Block, Status};
pub(crate) use cache::ResponseCache;
pub(crate) use coordinator::Coordinator;
pub(crate) use details::Details;
pub(crate) use request::{JOIN, RESERVED_PREFIX};
pub(crate) use request::{OpKind, Params, Request, RequestList};
pub(crate) use response::Receiver;
pub(crate) use response::{Agreed, Refusal, Response, ResponseList};

pub(crate) use crate::tensor::Group;
