//! A small HTTP/1.1 server for the figures of a running job: one thread, bounded memory.
//!
//! Clients are untrusted. The number of connections, the bytes of a request and the time of a
//! connection are [limited](Limits); beyond them the server answers with an error or closes the
//! connection. A connection carries one request. The thread sleeps while there is nothing to do.
//!
//! ```
//! use ronde_http::{Limits, Response, Server};
//!
//! let address = "127.0.0.1:0".parse().expect("an address");
//! let server = Server::start(address, Limits::default(), "figures", |request| match request.path() {
//!     "/figures" => Response::text("text/plain", "steps 7\n".to_owned()),
//!     _ => Response::error(404, "there is only /figures"),
//! })?;
//! println!("http://{}/figures", server.address());
//! # Ok::<(), std::io::Error>(())
//! ```

mod address;
mod connection;
mod request;
mod response;
mod server;
mod token;

pub use address::{AddressError, address};
pub use request::Request;
pub use response::Response;
pub use server::Server;
pub use token::{Token, TokenError};

use std::time::Duration;

/// Limits that protect the server's process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections that are open at a time. A further one replaces the oldest, so that clients
    /// that send nothing cannot keep others out.
    pub connections: usize,
    /// Most bytes of a request.
    pub request_bytes: usize,
    /// Time in which a request must have arrived, and then in which its response must have been
    /// received.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            request_bytes: 16 << 10,
            time: Duration::from_secs(5),
        }
    }
}
