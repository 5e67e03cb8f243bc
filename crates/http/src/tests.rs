//! Tests of the server with real sockets: streams, slow clients, many connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::{Answer, Limits, Request, Response, Server, Service, Streams};

/// Sends a message of `bytes` bytes every millisecond on its streams, and one when it ends.
struct Ticker {
    bytes: usize,
    ended: Arc<()>,
}

impl Service for Ticker {
    fn respond(&mut self, request: &Request) -> Answer {
        match request.path() {
            "/stream" => Answer::Stream {
                head: Response::text("text/event-stream", ""),
                first: b"first\n".as_slice().into(),
            },
            _ => Response::text("text/plain", request.body().len().to_string()).into(),
        }
    }

    fn tick(&mut self, streams: &mut Streams<'_>) -> Option<Duration> {
        let is_last = Arc::strong_count(&self.ended) == 1;
        let message = if is_last { "last\n" } else { "more\n" };
        streams.send(message.repeat(self.bytes / 5 + 1).as_bytes());
        Some(Duration::from_millis(1))
    }
}

/// A server with these limits, and what must be dropped before it sends its last message.
fn ticking(bytes: usize, limits: Limits) -> (Server, Arc<()>) {
    let ended = Arc::new(());
    let ticker = Ticker {
        bytes,
        ended: Arc::clone(&ended),
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_service(address, limits, "ticker", ticker).unwrap();
    (server, ended)
}

fn ask(address: SocketAddr, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(10));
    client.set_read_timeout(patience).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    client
}

fn stream(address: SocketAddr) -> TcpStream {
    ask(address, "GET /stream HTTP/1.1\r\n\r\n")
}

/// Reads until the text has been received.
fn expect(client: &mut TcpStream, text: &str) {
    let mut received = String::new();
    let mut buffer = [0; 4096];
    while !received.contains(text) {
        let count = client.read(&mut buffer).unwrap();
        assert!(count > 0, "the end instead of {text:?}: {received:.200}");
        received += std::str::from_utf8(&buffer[..count]).unwrap();
    }
}

fn response(address: SocketAddr, request: &str) -> String {
    let mut text = String::new();
    ask(address, request).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_stream_has_a_first_message_further_ones_and_a_last_one() {
    let (server, ended) = ticking(1, Limits::default());
    let mut client = stream(server.address());
    expect(&mut client, "\r\n\r\nfirst\nmore\nmore\n");
    drop(ended);
    expect(&mut client, "last\n");
    drop(server);
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("last\n") || rest.is_empty(), "{rest:.200}");
}

#[test]
fn a_slow_client_is_disconnected_and_others_go_on() {
    let limits = Limits {
        stream_bytes: 4 << 20, // of a client that gets no time for a moment
        ..Limits::default()
    };
    let (server, _ended) = ticking(64 << 10, limits);
    let (mut slow, mut fast) = (stream(server.address()), stream(server.address()));
    expect(&mut slow, "first");
    let far_more_than_buffers = 32 << 20;
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while received < far_more_than_buffers {
        let count = fast.read(&mut buffer).unwrap();
        assert!(count > 0, "the fast client is disconnected too");
        received += count;
    }
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest); // reset, or closed
    assert!(rest.len() < far_more_than_buffers);
}

#[test]
fn further_streams_are_refused_but_not_requests() {
    let limits = Limits {
        connections: 4,
        streams: 2,
        ..Limits::default()
    };
    let (server, _ended) = ticking(1, limits);
    let mut streams = [stream(server.address()), stream(server.address())];
    streams.iter_mut().for_each(|open| expect(open, "first"));
    let refused = response(server.address(), "GET /stream HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    // Connections that send nothing, or half a request.
    let idle: Vec<TcpStream> = (0..400)
        .map(|number| ask(server.address(), &"GET / HTTP/1.1\r\n"[..number % 16]))
        .collect();
    let answer = response(
        server.address(),
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n3"),
        "{answer}"
    );
    drop(idle);
    streams.iter_mut().for_each(|open| expect(open, "more"));
}

#[test]
fn a_client_that_sends_without_end_is_disconnected() {
    let (server, _ended) = ticking(1, Limits::default());
    for request in [
        "GET /stream HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\na: ",
    ] {
        let mut client = ask(server.address(), request);
        let flood = vec![b'x'; 1 << 20];
        let is_over = (0..64).any(|_| client.write_all(&flood).is_err());
        assert!(is_over, "{request:?}");
    }
    assert!(response(server.address(), "GET / HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n0"));
}

#[test]
fn a_server_that_has_ended_leaves_its_port_although_a_child_has_its_socket() {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let (server, _ended) = ticking(1, Limits::default());
    let address = server.address();
    // All sockets of this process a second time, as a forked child has them.
    let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("Linux 5.3");
    let numbers = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    let sockets: Vec<_> = numbers
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let target = std::fs::read_link(&path).ok()?;
            let number = path.file_name()?.to_str()?.parse().ok()?;
            let is_socket = target.to_str()?.starts_with("socket:");
            is_socket.then(|| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok())?
        })
        .collect();
    assert!(!sockets.is_empty());
    drop(server);
    let again = Server::start(address, Limits::default(), "again", |_: &Request| {
        Response::text("text/plain", "again")
    });
    let answer = response(
        again.expect("the port is free").address(),
        "GET / HTTP/1.1\r\n\r\n",
    );
    assert!(answer.ends_with("again"), "{answer}");
}
