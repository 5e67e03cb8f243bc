//! Connection of a client: reads one request, then writes its response or a stream.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Result, Write};
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;

use crate::request::{Read as Received, Request};
use crate::{Answer, Limits, Response};

/// Bytes that are read at a time.
const READ_BYTES: usize = 4096;

/// Largest number of bytes that a client may send after its request. They are not used; a client
/// that sends more would keep the server's thread busy.
const SURPLUS_BYTES_MAX: usize = 64 << 10;

/// An accepted connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// Time at which it is closed, unless it proceeds. A stream without bytes to send has none.
    pub(crate) deadline: Option<Instant>,
    state: State,
    /// Bytes that the client has sent after its request.
    surplus: usize,
}

enum State {
    Reading(Vec<u8>),
    /// Head and body of a response, and the number of bytes written.
    Writing(Vec<u8>, Cow<'static, [u8]>, usize),
    /// A response without an end.
    Streaming(Pending),
    /// The response has been written; waits for the client to close the connection. Closing it
    /// while unread bytes are left would reset it, and the client could lose the response.
    Closing,
}

/// Messages of a stream that have not been written yet.
#[derive(Default)]
struct Pending {
    messages: VecDeque<Arc<[u8]>>,
    /// Bytes of the first message that have been written.
    written: usize,
    /// Bytes of all messages.
    bytes: usize,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, limits: &Limits, now: Instant) -> Self {
        Self {
            stream,
            deadline: Some(now + limits.time),
            state: State::Reading(Vec::new()),
            surplus: 0,
        }
    }

    /// Whether a request has not arrived yet.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading(_))
    }

    pub(crate) fn is_streaming(&self) -> bool {
        matches!(self.state, State::Streaming(_))
    }

    /// Whether bytes of a stream have not been written yet.
    pub(crate) fn has_pending(&self) -> bool {
        matches!(&self.state, State::Streaming(pending) if pending.bytes > 0)
    }

    /// Reads and writes what can be. Returns false when the connection is over.
    pub(crate) fn advance(
        &mut self,
        limits: &Limits,
        respond: &mut dyn FnMut(&Request) -> Answer,
    ) -> bool {
        loop {
            let proceeds = match &mut self.state {
                State::Reading(_) => self.read(limits, respond),
                State::Writing(..) => {
                    let proceeds = self.write();
                    if matches!(proceeds, Ok(true)) {
                        self.deadline = Some(Instant::now() + limits.time);
                    }
                    proceeds
                }
                State::Streaming(pending) if pending.bytes > 0 => {
                    let proceeds = pending.write(&mut self.stream);
                    if matches!(proceeds, Ok(true)) {
                        self.deadline = (pending.bytes > 0).then(|| Instant::now() + limits.time);
                    }
                    match proceeds {
                        // The client may have closed the connection, whose buffer is full.
                        Err(error) if error.kind() == ErrorKind::WouldBlock => self.skip(),
                        proceeds => proceeds,
                    }
                }
                State::Streaming(_) | State::Closing => self.skip(),
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

    /// Sends a message on a stream. Returns false when the connection is over: also if the client
    /// reads so slowly that the limit of unsent bytes is exceeded.
    pub(crate) fn send(&mut self, message: &Arc<[u8]>, limits: &Limits) -> bool {
        let State::Streaming(pending) = &mut self.state else {
            return true;
        };
        if pending.bytes + message.len() > limits.stream_bytes {
            return false;
        }
        if pending.bytes == 0 {
            self.deadline = Some(Instant::now() + limits.time);
        }
        pending.push(Arc::clone(message));
        self.advance(limits, &mut |_| unreachable!("a stream has its request"))
    }

    /// Answers a client that was too slow to send its request. Returns false if nothing can be
    /// sent.
    pub(crate) fn time_out(&mut self) -> bool {
        let response = Response::error(408, "the request did not arrive in time");
        let (head, body) = response.into_parts(false);
        // One try: a client that receives nothing is not waited for.
        let parts = [IoSlice::new(&head), IoSlice::new(&body)];
        self.is_reading() && self.stream.write_vectored(&parts).is_ok()
    }

    fn read(
        &mut self,
        limits: &Limits,
        respond: &mut dyn FnMut(&Request) -> Answer,
    ) -> Result<bool> {
        let State::Reading(bytes) = &mut self.state else {
            return Ok(true);
        };
        let mut buffer = [0; READ_BYTES];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(false);
        }
        bytes.extend_from_slice(&buffer[..count]);
        let too_long = || Response::error(413, "the request is too long").into();
        let (answer, head_only) = if bytes.len() > limits.request_bytes {
            (too_long(), false)
        } else {
            match Request::read(bytes, limits.request_bytes) {
                Received::Partial => return Ok(true),
                Received::Whole(request) => (respond(&request), request.method() == "HEAD"),
                Received::TooLong => (too_long(), false),
                Received::Invalid(why) => (Response::error(400, why).into(), false),
            }
        };
        self.deadline = Some(Instant::now() + limits.time);
        self.state = match answer {
            Answer::Stream { head, first } if !head_only => {
                let mut pending = Pending::default();
                pending.push(head.into_stream_head().into());
                pending.push(first);
                State::Streaming(pending)
            }
            Answer::Whole(response) | Answer::Stream { head: response, .. } => {
                let (head, body) = response.into_parts(head_only);
                State::Writing(head, body, 0)
            }
        };
        Ok(true)
    }

    /// Writes a part of a response.
    fn write(&mut self) -> Result<bool> {
        let State::Writing(head, body, written) = &mut self.state else {
            return Ok(true);
        };
        let of_head = (*written).min(head.len());
        let of_body = *written - of_head;
        let parts = [
            IoSlice::new(&head[of_head..]),
            IoSlice::new(&body[of_body..]),
        ];
        let count = self.stream.write_vectored(&parts)?;
        *written += count;
        if *written == head.len() + body.len() {
            let _ = self.stream.shutdown(std::net::Shutdown::Write);
            self.state = State::Closing;
            return Ok(true);
        }
        Ok(count > 0)
    }

    /// Reads bytes after the request, which are not used.
    fn skip(&mut self) -> Result<bool> {
        let count = self.stream.read(&mut [0; READ_BYTES])?;
        self.surplus += count;
        Ok(count > 0 && self.surplus <= SURPLUS_BYTES_MAX)
    }
}

impl Pending {
    fn push(&mut self, message: Arc<[u8]>) {
        self.bytes += message.len();
        self.messages.push_back(message);
    }

    /// Writes a part of the first message.
    fn write(&mut self, stream: &mut TcpStream) -> Result<bool> {
        while self.messages.front().is_some_and(|first| first.is_empty()) {
            self.messages.pop_front();
        }
        let Some(first) = self.messages.front() else {
            return Ok(true);
        };
        let count = stream.write(&first[self.written..])?;
        self.written += count;
        self.bytes -= count;
        if self.written == first.len() {
            self.messages.pop_front();
            self.written = 0;
        }
        Ok(count > 0)
    }
}
