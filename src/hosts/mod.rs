//! Messages of bytes between hosts, over MPI or TCP.
//!
//! - [`Comm`]: nonblocking operations of some ranks, whatever moves the bytes; [`Pending`]:
//!   operations that have begun.
//! - `engine`: carries them out; `world`: its communicators.
//! - `heartbeat`: liveness, departures and requests for a cycle: small messages between neighbours.
//! - `job`: the state of a rank after the rendezvous, and the communicators of process sets.
//! - `mpi`, `tcp`: the rendezvous over each of the two.
//! - `traffic`: counters of the messages.

mod comm;
mod engine;
mod heartbeat;
mod job;
pub(crate) mod mpi;
pub(crate) mod tcp;
mod traffic;
mod world;

pub(crate) use comm::{Comm, CommError, Pending};
pub(crate) use engine::{Promise, turn};
pub(crate) use heartbeat::{Bell, Heartbeat, Waiting};
pub(crate) use job::{Communicators, HostsJob, connect_set};
pub(crate) use traffic::traffic;
pub(crate) use world::{CommId, World};
