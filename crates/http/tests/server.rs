//! Tests of the server against clients of all kinds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ronde_http::{Limits, Response, Server, Token};

/// Bytes of a page that the buffers of a connection do not hold: tcp(7) doubles their limits.
const LARGE: usize = 64 << 20;

/// A server whose pages are `/figures` and `/large`.
fn server(limits: Limits) -> Server {
    let address = "127.0.0.1:0".parse().expect("an address");
    let figures = |request: &ronde_http::Request| match (request.method(), request.path()) {
        ("GET" | "HEAD", "/figures") => Response::text("text/plain", "x".repeat(1 << 20)),
        ("GET", "/large") => Response::text("text/plain", "x".repeat(LARGE)),
        _ => Response::error(404, "there is only /figures"),
    };
    Server::start(address, limits, "figures", figures).expect("a free port")
}

/// Sends `text` and returns all that comes back.
fn ask(server: &Server, text: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

const GET: &str = "GET /figures HTTP/1.1\r\nHost: here\r\n\r\n";

#[test]
fn requests_are_answered_and_errors_named() {
    let server = server(Limits::default());
    let page = ask(&server, GET);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"));
    assert!(page.contains("Content-Length: 1048576\r\n") && page.ends_with(&"x".repeat(1 << 20)));
    let head = ask(&server, "HEAD /figures HTTP/1.1\r\n\r\n");
    assert!(
        head.contains("Content-Length: 1048576") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let absent = ask(&server, "GET /other HTTP/1.1\r\n\r\n");
    assert!(absent.starts_with("HTTP/1.1 404 Not Found"), "{absent}");
    assert!(
        absent.ends_with("\r\n\r\nthere is only /figures\n"),
        "{absent}"
    );
    let garbage = ask(&server, "\u{16}\u{3}\u{1}nonsense\r\n\r\n");
    assert!(garbage.starts_with("HTTP/1.1 400 Bad Request"), "{garbage}");
    let long = ask(
        &server,
        &format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000)),
    );
    assert!(long.starts_with("HTTP/1.1 413 Content Too Large"), "{long}");
}

#[test]
fn a_slow_client_is_let_go_and_delays_nobody() {
    let limits = Limits {
        time: Duration::from_secs(6), // in which an answer is sent, on a busy machine too
        ..Limits::default()
    };
    let server = server(limits);
    let began = Instant::now();
    let mut half = TcpStream::connect(server.address()).expect("it listens");
    half.write_all(b"GET /figures HT").expect("it reads");
    // Asks, and does not read the response.
    let mut idle = TcpStream::connect(server.address()).expect("it listens");
    let large = GET.replace("/figures", "/large");
    idle.write_all(large.as_bytes()).expect("it reads");
    assert!(ask(&server, GET).starts_with("HTTP/1.1 200"));
    let mut answer = String::new();
    half.read_to_string(&mut answer).expect("it answers");
    assert!(
        answer.starts_with("HTTP/1.1 408 Request Timeout"),
        "{answer}"
    );
    assert!(began.elapsed() >= limits.time);
    std::thread::sleep(limits.time / 2); // its own time ends soon after that of the other
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest); // or an error: the connection is reset
    assert!(!rest.is_empty() && rest.len() < LARGE, "{}", rest.len());
}

#[test]
fn hundreds_of_connections_that_say_nothing_keep_nobody_out() {
    let server = server(Limits::default());
    let silent: Vec<_> = (0..400)
        .filter_map(|_| TcpStream::connect(server.address()).ok())
        .collect();
    assert!(silent.len() > 350, "{}", silent.len());
    assert!(ask(&server, GET).starts_with("HTTP/1.1 200"));
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    let own = silent.len() + 40; // the standard ones, those of other tests
    assert!(
        descriptors < own + Limits::default().connections,
        "{descriptors}"
    );
}

#[test]
fn a_dropped_server_frees_its_port() {
    let first = server(Limits::default());
    let address = first.address();
    let respond = |_: &ronde_http::Request| Response::error(404, "nothing here");
    let taken = Server::start(address, Limits::default(), "other", respond);
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    Server::start(address, Limits::default(), "other", respond).expect("free again");
}

#[test]
fn a_token_is_one_line_that_its_owner_alone_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("ronde-http-token-{}", std::process::id()));
    let write = |text: &str, mode: u32| {
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its owner");
        Token::read(&path).map_err(|error| error.to_string())
    };
    assert!(write("0123456789abcdef\n", 0o600).is_ok());
    assert!(
        write("0123456789abcdef\n", 0o640)
            .unwrap_err()
            .contains("mode 0640")
    );
    assert!(write("short\n", 0o600).unwrap_err().contains("16 to 1024"));
    assert!(write("two lines of text\nmore", 0o600).is_err());
    std::fs::remove_file(&path).expect("written above");
    let absent = Token::read(&path).unwrap_err().to_string();
    assert!(absent.starts_with("it cannot be read: "), "{absent}");
}
