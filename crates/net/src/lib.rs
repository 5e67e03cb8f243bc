//! Messages of bytes among the ranks of a job on several hosts, over TCP.
//!
//! - `secret`: the job's shared secret, from a file. `authentication`: challenge and response on
//!   every connection, before any other byte is parsed.
//! - `frame`, `control`, `inbound`: what a connection carries after that, and its validation.
//! - `inbox`: matches messages with the receives that wait for them. `outbound`: the messages that
//!   wait for a connection. `link`: one connection.
//! - [`Memory`]: what messages are sent from and received to.
//! - [`Mesh`]: the connections of one rank. [`Mesh::join`] is the rendezvous: rank 0 listens, the
//!   other ranks connect to it and are compared with it, and each gets the addresses of all.
//! - [`neighbours`]: the ranks that a rank sends heartbeats to.
//! - [`Comm`]: nonblocking messages and collective operations of some ranks of a mesh;
//!   [`Pending`] is one that has begun.
//! - [`simulated`]: a network of ranks of one thread, for tests.
//!
//! A mesh belongs to one thread at a time: nothing is sent or received unless that thread calls
//! [`Mesh::turn`]. Several meshes may exist in a process, one after another or at the
//! same time. Traffic is authenticated when a connection begins, and is not encrypted.
//!
//! ```
//! use std::time::Duration;
//!
//! use ronde_net::{Comm, Config, Mesh, Secret};
//!
//! # fn main() -> Result<(), ronde_net::NetError> {
//! let secret = Secret::random()?;
//! let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
//! let ranks: Vec<_> = (0..2)
//!     .map(|rank| {
//!         let config = Config::new(rank, 2, address, secret.clone(), "example");
//!         std::thread::spawn(move || {
//!             let mesh = Mesh::join(&config)?;
//!             let comm = Comm::new(&mesh, 0, &[0, 1])?;
//!             let mut pending = comm.allgather(vec![rank as u8], vec![0; 2], 1);
//!             loop {
//!                 if let Some((_, all)) = pending.test()? {
//!                     return Ok::<_, ronde_net::NetError>(all);
//!                 }
//!                 mesh.turn(Some(Duration::from_secs(1)))?;
//!             }
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().unwrap()?, [0, 1]);
//! }
//! # Ok(())
//! # }
//! ```

mod address;
mod authentication;
mod comm;
mod config;
mod control;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod hostile;
mod inbound;
mod inbox;
mod late;
mod link;
mod memory;
mod mesh;
pub mod neighbours;
mod open_files;
mod outbound;
mod pending;
mod rendezvous;
mod reservation;
mod secret;
pub mod simulated;

pub use address::{Destination, interface_address, is_own_address, resolve};
pub use comm::{Comm, Parts, part_range};
pub use config::{Alarm, Config};
pub use control::Peer;
pub use error::{Loss, NetError};
pub use late::{LateWarnings, not_come};
pub use memory::{Filled, Memory};
pub use mesh::{Mesh, Readiness, Waker};
pub use open_files::raise_open_files_limit;
pub use pending::Pending;
pub use reservation::Reservation;
pub use secret::{Secret, SecretError};
