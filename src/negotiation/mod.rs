//! Negotiation: how ranks agree on which tensors are ready everywhere, and in which order they travel.
//!
//! A tensor seen before costs one bit: its slot in the [`cache`], set in the rank's block for the cycle and
//! intersected with the others'. A new one goes as a [`Request`] to rank 0, whose
//! [`Coordinator`] compares what the ranks said and answers every rank with the same [`Response`]s in the same
//! order; these fill the cache, so that the caches of all ranks stay equal without ever being compared.

mod agreement;
mod block;
pub mod cache;
pub mod coordinator;
pub mod request;
pub mod response;
pub mod stall;

pub use agreement::Agreement;
pub use block::{Block, InvalidBlock, READY_US_MAX, Status};
pub use cache::ResponseCache;
pub use coordinator::Coordinator;
pub use request::{Group, OpKind, Params, Request, RequestList};
pub(crate) use request::{JOIN, RESERVED_PREFIX};
pub(crate) use response::Receiver;
pub use response::{Agreed, Refusal, Response, ResponseList};
