//! The server of a page with real and hostile clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ronde_dash::{Command, Config, Dash, DashError, Event, Job, Step, Window};
use ronde_job::settings::Settings;

const PATIENCE: Duration = Duration::from_secs(20);

/// A page with controls, its token and the commands that it gave.
struct Served {
    dash: Dash,
    token: String,
    commands: Arc<Mutex<Vec<Command>>>,
}

fn serve(control: bool) -> Served {
    let config = Config {
        address: "0".to_owned(),
        token_file: None,
        control,
    };
    let commands = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&commands);
    let dash = Dash::start(&config, move |command| {
        given.lock().unwrap().push(command);
        Ok("done".to_owned())
    });
    let dash = dash.unwrap();
    let token = dash.url().split_once("token=").unwrap().1.to_owned();
    dash.publish(Event::Job(Job {
        name: "train.py".to_owned(),
        ..Job::default()
    }));
    Served {
        dash,
        token,
        commands,
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Status, head and body of the answer to a request with these headers.
fn ask(served: &Served, line: &str, headers: &str, body: &str) -> (u16, String, String) {
    let mut client = connect(served.dash.address());
    let length = body.len();
    let request = format!("{line} HTTP/1.1\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    client.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (
        head[9..12].parse().unwrap(),
        head.to_owned(),
        body.to_owned(),
    )
}

impl Served {
    fn host(&self) -> String {
        format!("Host: {}\r\n", self.dash.address())
    }

    fn get(&self, path: &str, headers: &str) -> (u16, String, String) {
        ask(self, &format!("GET {path}"), &(self.host() + headers), "")
    }

    /// Path and cookie of a session.
    fn session(&self) -> (String, String) {
        let (status, head, body) = self.get(&format!("/?token={}", self.token), "");
        assert_eq!(status, 200);
        let cookie = head.split_once("Set-Cookie: ").unwrap().1;
        let cookie = cookie.split_once(';').unwrap().0;
        let path = body
            .split_once("url=")
            .unwrap()
            .1
            .split_once('"')
            .unwrap()
            .0;
        assert!(!body.contains(&self.token) && !cookie.contains(&self.token));
        (path.to_owned(), format!("Cookie: {cookie}\r\n"))
    }

    /// The beginning of the stream of a session, up to this text.
    fn stream(&self, until: &str) -> (TcpStream, String) {
        let (path, cookie) = self.session();
        let mut client = connect(self.dash.address());
        let request = format!("GET {path}events HTTP/1.1\r\n{}{cookie}\r\n", self.host());
        client.write_all(request.as_bytes()).unwrap();
        let received = read_until(&mut client, until);
        (client, received)
    }
}

fn read_until(client: &mut TcpStream, text: &str) -> String {
    let mut received = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let began = Instant::now();
    loop {
        let shown = String::from_utf8_lossy(&received).into_owned();
        assert!(began.elapsed() < PATIENCE, "no {text:?} in {shown:.300}");
        if shown.contains(text) {
            return shown;
        }
        let count = client.read(&mut buffer).unwrap();
        assert!(count > 0, "the end instead of {text:?}: {shown:.300}");
        received.extend_from_slice(&buffer[..count]);
    }
}

fn step(number: u64) -> Event {
    Event::Step(Step {
        step: number,
        steps: 1,
        value: 12.5,
        settings: Settings::default(),
        window: Window::None,
        exposed_ms: None,
        negotiation_ms: None,
        messages: None,
        bytes: None,
        fill: None,
    })
}

#[test]
fn a_page_needs_the_token_and_then_its_cookie() {
    let served = serve(false);
    for (path, headers) in [
        ("/", ""),
        ("/events", ""),
        ("/dash.js", ""),
        ("/?token=", ""),
        (
            "/?token=0000000000000000000000000000000000000000000000000000000000000000",
            "",
        ),
        ("/events", "Authorization: Bearer wrong\r\n"),
        ("/events", "Cookie: ronde_dash=\r\n"),
        ("/events", "Cookie: ronde_dash=0000000000000000\r\n"),
    ] {
        let (status, head, _) = served.get(path, headers);
        assert_eq!(status, 401, "{path} {headers}");
        assert!(!head.contains("Set-Cookie"), "{path} {headers}");
    }
    let (path, cookie) = served.session();
    let (status, head, page) = served.get(&path, &cookie);
    assert_eq!(status, 200);
    assert!(page.contains("<title>ronde dash</title>"));
    assert!(head.contains("script-src 'self';") && head.contains("frame-ancestors 'none'"));
    // The token in a header does, too, and gives no session.
    let bearer = format!("Authorization: Bearer {}\r\n", served.token);
    let (status, head, _) = served.get("/alive", &bearer);
    assert!(status == 200 && !head.contains("Set-Cookie"));
    let (status, _, page) = served.get("/", "Accept: text/html\r\n");
    assert!(status == 401 && page.contains("name=\"token\""));
}

#[test]
fn other_hosts_and_sites_are_refused_even_with_the_cookie() {
    let served = serve(true);
    let (path, cookie) = served.session();
    for headers in [
        "",
        "Host: evil.example.org\r\n",
        "Host: 127.0.0.1.nip.io\r\n",
        "Host: 127.0.0.1\r\nOrigin: http://evil.example.org\r\n",
        "Host: 127.0.0.1\r\nOrigin: null\r\n",
        "Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:2\r\n",
        "Host: 127.0.0.1:1\r\nOrigin: https://127.0.0.1:1\r\n",
    ] {
        let headers = headers.to_owned() + &cookie;
        let (status, ..) = ask(&served, &format!("GET {path}"), &headers, "");
        assert_eq!(status, 403, "{headers}");
    }
    let headers = format!("Host: localhost:1\r\nOrigin: http://localhost:1\r\n{cookie}");
    assert_eq!(ask(&served, &format!("GET {path}"), &headers, "").0, 200);
}

#[test]
fn controls_need_their_token_and_are_logged() {
    let served = serve(true);
    let (mut stream, received) = served.stream("train.py");
    let control = received.split_once("\"control\":\"").unwrap().1;
    let control = control.split_once('"').unwrap().0;
    let (path, cookie) = served.session();
    let post = |headers: &str, body: &str| {
        let headers = served.host() + headers;
        ask(&served, &format!("POST {path}control"), &headers, body)
    };
    let stop = r#"{"command":"stop_tuning"}"#;
    assert_eq!(post(&cookie, stop).0, 403);
    assert_eq!(
        post(&format!("{cookie}X-Ronde-Control: 0\r\n"), stop).0,
        403
    );
    assert_eq!(
        post(&format!("X-Ronde-Control: {control}\r\n"), stop).0,
        401
    );
    let allowed = format!("{cookie}X-Ronde-Control: {control}\r\n");
    assert_eq!(post(&allowed, "{}").0, 400);
    let foreign = format!("{allowed}Origin: http://evil.example.org\r\n");
    assert_eq!(post(&foreign, stop).0, 403);
    assert!(served.commands.lock().unwrap().is_empty());
    assert_eq!(served.get(&format!("{path}control"), &allowed).0, 405);
    let (status, _, text) = post(&allowed, stop);
    assert_eq!((status, text.as_str()), (200, "done\n"));
    assert_eq!(*served.commands.lock().unwrap(), [Command::StopTuning]);
    read_until(&mut stream, "\"text\":\"stop tuning: done\"");
}

#[test]
fn without_controls_a_page_cannot_give_commands() {
    let served = serve(false);
    let (_stream, received) = served.stream("train.py");
    assert!(received.contains("\"control\":null"));
    let bearer = format!(
        "{}Authorization: Bearer {}\r\n",
        served.host(),
        served.token
    );
    let body = r#"{"command":"stop_tuning"}"#;
    assert_eq!(ask(&served, "POST /control", &bearer, body).0, 403);
    assert!(served.commands.lock().unwrap().is_empty());
}

#[test]
fn a_page_gets_all_of_the_history_and_then_the_steps_until_the_end() {
    let served = serve(false);
    for number in 0..30 {
        served.dash.publish(step(number));
    }
    let (mut stream, received) = served.stream("\"job\":");
    assert!(received.contains("[29,1,12.5,"), "{received}");
    served.dash.publish(step(30));
    read_until(&mut stream, "[30,1,12.5,");
    served.dash.publish(step(31));
    drop(served); // the last events are sent
    read_until(&mut stream, "[31,1,12.5,");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
}

#[test]
fn hostile_clients_do_not_keep_others_out() {
    let served = serve(true);
    let (mut stream, _) = served.stream("train.py");
    let address = served.dash.address();
    // Connections that send nothing, half a request, or a request of great length.
    let mut hostile: Vec<TcpStream> = Vec::new();
    for number in 0..400 {
        let mut client = connect(address);
        let _ = match number % 4 {
            0 => client.write_all(b"GET / HTTP/1.1\r\nHost: "),
            1 => client.write_all(b"POST /control HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"),
            2 => client.write_all(&[b'x'; 4096]),
            _ => Ok(()),
        };
        hostile.push(client);
    }
    let (path, cookie) = served.session();
    assert_eq!(served.get(&path, &cookie).0, 200);
    served.dash.publish(step(7));
    read_until(&mut stream, "[7,1,12.5,");
    drop(hostile);
    for (line, headers, expected) in [
        ("GET /", "a: b\r\n".repeat(1000), 400),
        (
            "POST /control",
            format!("x: {}\r\n", "y".repeat(20_000)),
            413,
        ),
        ("GET /", "\u{1}: b\r\n".to_owned(), 400),
        ("DELETE /", format!("{}{cookie}", served.host()), 405),
        (
            "GET /../../etc/passwd",
            format!("{}{cookie}", served.host()),
            404,
        ),
    ] {
        let mut client = connect(address);
        let _ = client.write_all(format!("{line} HTTP/1.1\r\n{headers}\r\n").as_bytes());
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{line}: {answer:.80}"
        );
    }
}

#[test]
fn a_page_that_cannot_be_served_says_why() {
    let served = serve(false);
    let start = |address: String, token_file| {
        let config = Config {
            address,
            token_file,
            control: false,
        };
        Dash::start(&config, |_| Ok(String::new())).unwrap_err()
    };
    let taken = start(served.dash.address().to_string(), None).to_string();
    assert!(
        taken.contains("in use") && taken.contains("choose another port"),
        "{taken}"
    );
    assert!(matches!(
        start("port".to_owned(), None),
        DashError::Address(_)
    ));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let open = start("0".to_owned(), Some(path.clone())).to_string();
    assert!(
        open.contains("mode 0640") && open.contains("chmod 600"),
        "{open}"
    );
    let missing = start("0".to_owned(), Some(folder.path().join("none"))).to_string();
    assert!(missing.contains("cannot be read"), "{missing}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let config = Config {
        address: "0.0.0.0:0".to_owned(),
        token_file: Some(path),
        control: false,
    };
    let dash = Dash::start(&config, |_| Ok(String::new())).unwrap();
    assert!(!dash.url().contains("token") && !dash.url().contains("0.0.0.0"));
    assert!(
        dash.announcement()
            .contains("\nwarning: other machines can reach")
    );
}
