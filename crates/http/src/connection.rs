//! Connection of a client: reads one request, then writes its response.

use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;

use crate::request::{Read as Received, Request};
use crate::{Limits, Response};

/// Bytes that are read at a time.
const READ_BYTES: usize = 4096;

/// An accepted connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// Time at which it is closed, unless it proceeds.
    pub(crate) deadline: Instant,
    state: State,
}

enum State {
    Reading(Vec<u8>),
    /// Bytes to write, and the number of those written.
    Writing(Vec<u8>, usize),
    /// The response has been written; waits for the client to close the connection. Closing it
    /// while unread bytes are left would reset it, and the client could lose the response.
    Closing,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, limits: &Limits, now: Instant) -> Self {
        Self {
            stream,
            deadline: now + limits.time,
            state: State::Reading(Vec::new()),
        }
    }

    /// Whether a request has not arrived yet.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading(_))
    }

    /// Reads and writes what can be. Returns false when the connection is over.
    pub(crate) fn advance(
        &mut self,
        limits: &Limits,
        respond: &mut dyn FnMut(&Request) -> Response,
    ) -> bool {
        loop {
            let proceeds = match &mut self.state {
                State::Reading(_) => self.read(limits, respond),
                State::Writing(bytes, written) => match self.stream.write(&bytes[*written..]) {
                    Ok(0) => return false,
                    Ok(count) => {
                        *written += count;
                        if *written == bytes.len() {
                            let _ = self.stream.shutdown(std::net::Shutdown::Write);
                            self.state = State::Closing;
                        }
                        Ok(true)
                    }
                    Err(error) => Err(error),
                },
                State::Closing => {
                    let read = self.stream.read(&mut [0; READ_BYTES]);
                    read.map(|count| count > 0)
                }
            };
            match proceeds {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Answers a client that was too slow to send its request. Returns false if nothing can be
    /// sent.
    pub(crate) fn time_out(&mut self) -> bool {
        let response = Response::error(408, "the request did not arrive in time");
        let bytes = response.bytes(false);
        // One try: a client that receives nothing is not waited for.
        self.is_reading() && self.stream.write(&bytes).is_ok()
    }

    fn read(
        &mut self,
        limits: &Limits,
        respond: &mut dyn FnMut(&Request) -> Response,
    ) -> std::io::Result<bool> {
        let State::Reading(bytes) = &mut self.state else {
            return Ok(true);
        };
        let mut buffer = [0; READ_BYTES];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(false);
        }
        bytes.extend_from_slice(&buffer[..count]);
        let (response, head_only) = if bytes.len() > limits.request_bytes {
            (Response::error(413, "the request is too long"), false)
        } else {
            match Request::read(bytes) {
                Received::Partial => return Ok(true),
                Received::Whole(request) => (respond(&request), request.method() == "HEAD"),
                Received::Invalid(why) => (Response::error(400, why), false),
            }
        };
        self.deadline = Instant::now() + limits.time;
        self.state = State::Writing(response.bytes(head_only), 0);
        Ok(true)
    }
}
