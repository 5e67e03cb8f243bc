//! A small HTTP/1.1 server for the figures of a running job: one thread, bounded memory.
//!
//! Clients are untrusted. The number of connections and of streams, the bytes of a request, the
//! unsent bytes of a stream and the time of a connection are [limited](Limits); beyond them the
//! server answers with an error or closes the connection. A connection carries one request. The
//! thread sleeps while there is nothing to do.
//!
//! A [`Service`] may answer with a stream, on which it sends messages later, such as server-sent
//! events.
//!
//! ```
//! use ronde_http::{Limits, Request, Response, Server};
//!
//! let address = "127.0.0.1:0".parse().expect("an address");
//! let respond = |request: &Request| match request.path() {
//!     "/figures" => Response::text("text/plain", "steps 7\n"),
//!     _ => Response::error(404, "there is only /figures"),
//! };
//! let server = Server::start(address, Limits::default(), "figures", respond)?;
//! println!("http://{}/figures", server.address());
//! # Ok::<(), std::io::Error>(())
//! ```

mod address;
mod connection;
mod request;
mod response;
mod server;
#[cfg(test)]
mod tests;
mod token;

pub use address::{AddressError, address, listen_hint};
pub use request::Request;
pub use response::{Answer, Response};
pub use server::{Server, Service, Streams};
pub use token::{Token, TokenError};

use std::time::Duration;

/// Limits that protect the server's process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections that are open at a time. A further one replaces the oldest, so that clients
    /// that send nothing cannot keep others out.
    pub connections: usize,
    /// Most streams that are open at a time; a further one is refused. Fewer than connections, so
    /// that there is always one for a request.
    pub streams: usize,
    /// Largest number of bytes of a request.
    pub request_bytes: usize,
    /// Largest number of bytes of a stream that its client has not received yet; a client that is
    /// slower is disconnected.
    pub stream_bytes: usize,
    /// Time in which a request must have arrived, and then in which the next part of its response
    /// or stream must have been received.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            streams: 16,
            request_bytes: 16 << 10,
            stream_bytes: 2 << 20,
            time: Duration::from_secs(5),
        }
    }
}
