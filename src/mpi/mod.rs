//! MPI: every MPI call of this process is made here, by one thread.
//!
//! MPI can be initialized once in a process's life, contexts come and go: so a thread of its own, the *engine*, is started
//! by the first context that needs it, makes every call from `MPI_Init_thread` to `MPI_Finalize`, and is borrowed by all
//! of them. What is asked of it is a future: a few nonblocking calls, awaited one after another. The engine polls all
//! futures in turn, `MPI_Test` by `MPI_Test`, and sleeps the longer the longer nothing has happened, 5 ms at most.
//! Nothing here waits inside of MPI once the job has started, so a peer that falls silent can be given up.
//!
//! - `library`: finds MPI's library and the plug-in with the table of its functions, and loads both.
//! - `calls`: the calls themselves, their return codes as values; [`Comm`], what it can do; `pending`: [`Pending`], calls
//!   under way, which keep the memory that MPI may still touch.
//! - `engine`: the thread. `start`: initializes and finalizes MPI; `finalize`: the last barrier of all ranks.
//! - `heartbeat`: liveness, departures and requests for a cycle: small messages between neighbours.
//! - `traffic`: what is sent, counted.
//! - `rendezvous`: creates the communicators of a job or of a process set; `startup_barrier`: finds missing ranks;
//!   `hello`: the versions and settings that ranks compare; `mixed`: the error for contradicting launchers.

mod calls;
mod engine;
mod finalize;
mod heartbeat;
mod hello;
mod library;
mod mixed;
mod pending;
mod rendezvous;
mod start;
mod startup_barrier;
mod traffic;
mod world;

pub(crate) use calls::{Comm, MpiError, Parts, part_range};
pub(crate) use engine::{Promise, turn};
pub(crate) use heartbeat::{Bell, Heartbeat, Waiting, distances};
pub(crate) use library::{Mpi, load};
pub use library::{MpiFound, has_mpi_plugin, mpi_libraries};
pub(crate) use pending::Pending;
pub(crate) use rendezvous::{Communicators, MpiJob, connect_job, connect_set};
pub(crate) use traffic::traffic;
pub(crate) use world::CommId;
