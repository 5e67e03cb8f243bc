//! MPI as a library that is found at run time: its functions, with return codes as values.
//!
//! - `library`: finds MPI's library and the plug-in with the table of its functions, and loads
//!   both.
//! - `calls`: the calls themselves; [`Comm`], a communicator; `pending`: [`Pending`], calls that
//!   have begun, which keep the memory that MPI may still use.
//! - `start`: initializes MPI; `session`: [`Session`], the communicators of the process.
//! - `mixed`: the error for contradicting launchers.
//!
//! All calls are made by one thread, the engine's (`hosts/engine`). Nothing here waits inside of
//! MPI once the job has started, so a peer that falls silent can be given up.

mod calls;
mod library;
mod mixed;
mod pending;
mod session;
mod start;

pub(crate) use calls::{Comm, MpiError};
pub(crate) use library::{Mpi, load};
pub use library::{MpiFound, has_mpi_plugin, mpi_libraries};
pub(crate) use mixed::Contradiction;
pub(crate) use pending::Pending;
pub(crate) use session::Session;
pub(crate) use start::{
    MpiStartError, check, finalize_at_exit, has_failed, initialize, is_broken, set_broken,
    set_failed,
};
