//! Dash: the page of a job, as its owner sees it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ronde_http::{AddressError, Limits, Server, Token, TokenError};

use crate::access::Access;
use crate::history::{History, now_unix_ms};
use crate::inbox::Inbox;
use crate::service::{Dashboard, Handler};
use crate::{Command, Event, assets};

/// Name of the server's thread.
const THREAD: &str = "ronde-dash";

/// Limits of the server. Connections beyond them replace older ones that have sent no request.
const LIMITS: Limits = Limits {
    connections: 64,
    streams: 16,
    request_bytes: 16 << 10,
    stream_bytes: 4 << 20,
    time: Duration::from_secs(10),
};

/// Settings of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address to listen on: `PORT`, which is a port of 127.0.0.1, or `HOST:PORT`. Port 0 is any
    /// free one.
    pub address: String,
    /// File of mode 0600 with the token. `None`: a token is drawn at every start.
    pub token_file: Option<PathBuf>,
    /// Whether the page may give commands.
    pub control: bool,
}

/// Reason why a page cannot be served.
#[derive(Debug)]
pub enum DashError {
    /// The address is invalid.
    Address(AddressError),
    /// The address cannot be listened on.
    Listen(std::io::Error),
    /// The file has no token.
    TokenFile(PathBuf, TokenError),
    /// No token can be drawn.
    Random(std::io::Error),
}

impl std::fmt::Display for DashError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Listen(error) => write!(f, "{error}{}", ronde_http::listen_hint(error)),
            Self::TokenFile(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Random(error) => write!(f, "no token can be drawn: {error}"),
        }
    }
}

impl std::error::Error for DashError {}

impl DashError {
    /// Whether another process listens on the address.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Listen(error) if error.kind() == std::io::ErrorKind::AddrInUse)
    }
}

/// A page that is served until this value is dropped. Then the last events are sent, and open pages
/// keep what they show.
#[derive(Debug)]
pub struct Dash {
    inbox: Arc<Inbox>,
    server: Server,
    url: String,
    has_token_file: bool,
}

impl Dash {
    /// Serves a page. `handler` carries out commands if the page may give them; the text that it
    /// returns says what was done, or why it was not. It is called by the server's thread and must
    /// not wait for the job: it would delay all pages.
    ///
    /// # Errors
    /// An invalid address or one that is in use; a file without a token.
    pub fn start(
        config: &Config,
        handler: impl FnMut(Command) -> Result<String, String> + Send + 'static,
    ) -> Result<Self, DashError> {
        let address = ronde_http::address(&config.address).map_err(DashError::Address)?;
        let token = match &config.token_file {
            Some(path) => {
                Token::read(path).map_err(|error| DashError::TokenFile(path.clone(), error))?
            }
            None => Token::random().map_err(DashError::Random)?,
        };
        let host = config.address.rsplit_once(':').map(|(host, _)| host);
        let query = match config.token_file {
            Some(_) => String::new(),
            None => format!("?token={}", token.reveal()),
        };
        let inbox = Arc::new(Inbox::default());
        let access = Access::new(token, host);
        let machine = access.machine().to_owned();
        let service = Dashboard {
            access,
            inbox: Arc::clone(&inbox),
            history: History::default(),
            handler: config.control.then(|| Box::new(handler) as Handler),
            version: assets::version(),
            start: now_unix_ms(),
            sent: Instant::now(),
        };
        let server =
            Server::start_service(address, LIMITS, THREAD, service).map_err(DashError::Listen)?;
        let port = server.address().port();
        let shown = match address.ip().is_unspecified() {
            true => format!("{machine}:{port}"),
            false => SocketAddr::new(address.ip(), port).to_string(),
        };
        Ok(Self {
            inbox,
            server,
            url: format!("http://{shown}/{query}"),
            has_token_file: config.token_file.is_some(),
        })
    }

    /// Publishes an event. It never blocks: an event that finds no room is dropped, and the page
    /// says how many were.
    pub fn publish(&self, event: Event) {
        self.inbox.push(event);
    }

    /// Returns when open pages have been sent all published events, or after `timeout`; at once if
    /// no page is open. For the end of a process.
    pub fn flush(&self, timeout: Duration) {
        self.inbox.flush(timeout);
    }

    /// Returns the address on which the page is served.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the URL of the page. It contains the token, unless that is in a file, and is
    /// therefore to be shown to the user only, once.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the lines to print when the page is served: its URL, and a warning if other machines
    /// can reach it.
    pub fn announcement(&self) -> String {
        let token = match self.has_token_file {
            true => " (the page asks for the token, which is in the token file)",
            false => "",
        };
        let mut text = format!("watch the job at {}{token}", self.url);
        let address = self.address();
        if !address.ip().is_loopback() {
            text += &format!(
                "\nwarning: other machines can reach {address}, and the connection is not \
                 encrypted: anyone who can observe the traffic can read the token and the page. \
                 `ssh -L` to 127.0.0.1 is safer"
            );
        }
        text
    }
}
