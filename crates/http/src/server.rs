//! Server: the thread that accepts connections and answers requests.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::connection::Connection;
use crate::{Limits, Request, Response};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;

/// Time without accepting after the process or the system has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

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
            respond,
            connections: BTreeMap::new(),
            next: FIRST_CONNECTION,
            accept_from: None,
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
struct Serving<F> {
    poll: Poll,
    listener: TcpListener,
    limits: Limits,
    respond: F,
    /// Open connections by number; the lowest is the oldest.
    connections: BTreeMap<usize, Connection>,
    next: usize,
    /// Time from which on connections are accepted again, after an error.
    accept_from: Option<Instant>,
}

impl<F: FnMut(&Request) -> Response> Serving<F> {
    /// Runs until the waker is used.
    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            let deadlines = self.connections.values().map(|open| open.deadline);
            let next = deadlines.chain(self.accept_from).min();
            let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => return Ok(()),
                    Token(number) => self.advance(number),
                }
            }
            let now = Instant::now();
            if self.accept_from.is_some_and(|from| from <= now) {
                self.accept_from = None;
                self.accept(); // its event may have been before the pause
            }
            self.connections.retain(|_, open| {
                let is_over = open.deadline <= now;
                if is_over {
                    open.time_out();
                }
                !is_over
            });
        }
    }

    /// Accepts all waiting connections.
    fn accept(&mut self) {
        while self.accept_from.is_none() {
            match self.listener.accept() {
                Ok((stream, _)) => self.open(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    tracing::warn!("a connection cannot be accepted: {error}");
                    self.accept_from = Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        }
    }

    fn open(&mut self, mut stream: mio::net::TcpStream) {
        if self.connections.len() >= self.limits.connections {
            // Rather one that has not asked for anything.
            let mut open = self.connections.iter();
            let idle = open.find(|(_, open)| open.is_reading());
            let victim = idle.or(self.connections.first_key_value());
            if let Some((&number, _)) = victim {
                self.connections.remove(&number);
            }
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
        if let Some(open) = self.connections.get_mut(&number)
            && !open.advance(&self.limits, &mut self.respond)
        {
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
