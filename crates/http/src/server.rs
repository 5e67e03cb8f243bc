//! Server: the thread that accepts connections, answers requests and sends messages on streams.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::connection::Connection;
use crate::{Answer, Limits, Request, Response};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;

/// Time without accepting after the process or the system has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Time that clients have to receive the last messages when the server ends.
const FAREWELL: Duration = Duration::from_millis(300);

/// Behaviour of a server. Its functions are called by the server's thread and must not block: they
/// would delay all clients.
pub trait Service: Send + 'static {
    /// Answers a request.
    fn respond(&mut self, request: &Request) -> Answer;

    /// Sends messages on the open streams. Called at the start, after the time that the last call
    /// returned, and when the server ends.
    fn tick(&mut self, _streams: &mut Streams<'_>) -> Option<Duration> {
        None
    }
}

/// Service without streams.
struct Function<F>(F);

impl<F: FnMut(&Request) -> Response + Send + 'static> Service for Function<F> {
    fn respond(&mut self, request: &Request) -> Answer {
        (self.0)(request).into()
    }
}

/// The open streams.
pub struct Streams<'a> {
    connections: &'a mut BTreeMap<usize, Connection>,
    limits: &'a Limits,
}

impl Streams<'_> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        !self.connections.values().any(Connection::is_streaming)
    }

    /// Sends a message on all streams. Disconnects clients with more unreceived bytes than
    /// [`Limits::stream_bytes`].
    pub fn send(&mut self, message: &[u8]) {
        let message: Arc<[u8]> = message.into();
        self.connections
            .retain(|_, open| open.send(&message, self.limits));
    }
}

/// A server that runs in a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address`, whose port 0 means any free one, and answers requests with `respond`
    /// in a thread of this name.
    ///
    /// # Errors
    /// The address is in use or not one of this host; no descriptor or thread is left.
    pub fn start(
        address: SocketAddr,
        limits: Limits,
        name: &str,
        respond: impl FnMut(&Request) -> Response + Send + 'static,
    ) -> Result<Self> {
        Self::start_service(address, limits, name, Function(respond))
    }

    /// Listens on `address` like [`start`](Self::start), for a service that may have streams.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_service(
        address: SocketAddr,
        limits: Limits,
        name: &str,
        service: impl Service,
    ) -> Result<Self> {
        let mut listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let poll = Poll::new()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let mut serving = Serving {
            poll,
            listener,
            limits,
            service,
            tick_at: Some(Instant::now()),
            connections: BTreeMap::new(),
            next: FIRST_CONNECTION,
            accept_from: None,
            is_refusing: false,
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                if let Err(error) = serving.run() {
                    tracing::error!("the server on {address} has ended: {error}");
                }
            })?;
        Ok(Self {
            address,
            waker,
            thread: Some(thread),
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.waker.wake().is_ok() {
            let _ = thread.join();
        }
    }
}

/// State of the server's thread.
struct Serving<S> {
    poll: Poll,
    listener: TcpListener,
    limits: Limits,
    service: S,
    /// Time of the service's next tick.
    tick_at: Option<Instant>,
    /// Open connections by number; the lowest is the oldest.
    connections: BTreeMap<usize, Connection>,
    next: usize,
    /// Time from which on connections are accepted again, after an error.
    accept_from: Option<Instant>,
    /// Whether the latest connection could not be accepted: the first error is a warning.
    is_refusing: bool,
}

impl<S: Service> Serving<S> {
    /// Runs until the waker is used.
    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            self.tick();
            let deadlines = self.connections.values().filter_map(|open| open.deadline);
            let next = deadlines.chain(self.accept_from).chain(self.tick_at).min();
            let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => return self.end(),
                    Token(number) => self.advance(number),
                }
            }
            let now = Instant::now();
            if self.accept_from.is_some_and(|from| from <= now) {
                self.accept_from = None;
                self.accept(); // its event may have been before the pause
            }
            self.connections.retain(|_, open| {
                let is_over = open.deadline.is_some_and(|deadline| deadline <= now);
                if is_over {
                    open.time_out();
                }
                !is_over
            });
        }
    }

    /// Lets the service send messages, when it is time.
    fn tick(&mut self) {
        if self.tick_at.is_some_and(|at| at <= Instant::now()) {
            let mut streams = Streams {
                connections: &mut self.connections,
                limits: &self.limits,
            };
            let next = self.service.tick(&mut streams);
            self.tick_at = next.map(|next| Instant::now() + next);
        }
    }

    /// Sends the last messages.
    fn end(&mut self) -> Result<()> {
        // Children that were forked meanwhile have the listener too, and would keep the port.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        self.tick_at = Some(Instant::now());
        self.tick();
        let deadline = Instant::now() + FAREWELL;
        let mut events = Events::with_capacity(64);
        while self.connections.values().any(Connection::has_pending) {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            match self.poll.poll(&mut events, Some(rest)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                self.advance(event.token().0);
            }
        }
        Ok(())
    }

    /// Accepts all waiting connections.
    fn accept(&mut self) {
        while self.accept_from.is_none() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.is_refusing = false;
                    self.open(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.is_refusing, true) {
                        tracing::warn!("a connection cannot be accepted: {error}");
                    }
                    self.accept_from = Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        }
    }

    fn open(&mut self, mut stream: mio::net::TcpStream) {
        if self.connections.len() >= self.limits.connections {
            // Rather one that has not asked for anything; a stream only if there is nothing else.
            let first = |is_victim: fn(&Connection) -> bool| {
                let mut open = self.connections.iter();
                open.find(|(_, open)| is_victim(open))
                    .map(|(&number, _)| number)
            };
            let victim = first(Connection::is_reading)
                .or_else(|| first(|open| !open.is_streaming()))
                .or_else(|| first(|_| true));
            victim.map(|number| self.connections.remove(&number));
        }
        let number = self.next;
        self.next += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if registry
            .register(&mut stream, Token(number), interest)
            .is_ok()
        {
            let connection = Connection::new(stream, &self.limits, Instant::now());
            self.connections.insert(number, connection);
        }
    }

    fn advance(&mut self, number: usize) {
        let streams = self.connections.values().filter(|open| open.is_streaming());
        let is_full = streams.count() >= self.limits.streams;
        let Some(open) = self.connections.get_mut(&number) else {
            return;
        };
        let mut respond = |request: &Request| match self.service.respond(request) {
            Answer::Stream { .. } if is_full => {
                Response::error(503, "as many pages as are allowed are open").into()
            }
            answer => answer,
        };
        if !open.advance(&self.limits, &mut respond) {
            self.connections.remove(&number);
        }
    }
}

/// Whether an error of `accept` concerns one connection only.
fn is_of_the_peer(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}
