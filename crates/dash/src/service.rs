//! Service: answers the requests of pages and sends them the updates of the history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use ronde_http::{Answer, Request, Response, Service, Streams};

use crate::access::{Access, Client};
use crate::history::History;
use crate::inbox::{Content, Inbox};
use crate::{Command, Event, Log, LogKind, assets, control};

/// Time between two updates while a page is open, and while none is.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Time after which a message is sent although nothing has changed, so that a page notices that the
/// connection is lost.
const BEAT_INTERVAL: Duration = Duration::from_secs(2);

/// Content security policy: limits the addresses from which a page loads and to which it sends, and
/// forbids other pages to show it in a frame. Styles of ECharts' hints are attributes, which only
/// `unsafe-inline` allows; scripts have no such exception.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                      connect-src 'self'; img-src 'self' data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// Function that carries out commands; the text says what was done, or why it was not.
pub(crate) type Handler = Box<dyn FnMut(Command) -> Result<String, String> + Send>;

/// The service of one page.
pub(crate) struct Dashboard {
    pub(crate) access: Access,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) history: History,
    /// `None`: controls are off.
    pub(crate) handler: Option<Handler>,
    /// Version of the page's files.
    pub(crate) version: u64,
    /// Number that differs between two starts of a server.
    pub(crate) start: u64,
    pub(crate) sent: Instant,
}

impl Service for Dashboard {
    fn respond(&mut self, request: &Request) -> Answer {
        let answer = match self.access.check_site(request) {
            Ok(()) => self.route(request),
            Err(why) => Response::error(403, why).into(),
        };
        match answer {
            Answer::Whole(response) => Answer::Whole(protected(response)),
            Answer::Stream { head, first } => Answer::Stream {
                head: protected(head),
                first,
            },
        }
    }

    fn tick(&mut self, streams: &mut Streams<'_>) -> Option<Duration> {
        self.inbox.begin_update();
        self.collect();
        let update = self.history.update();
        if streams.is_empty() {
            self.inbox.end_update(false);
            return Some(IDLE_INTERVAL);
        }
        let is_due = self.sent.elapsed() >= BEAT_INTERVAL;
        if let Some(update) = update.or(is_due.then(|| "{}".to_owned())) {
            streams.send(message(&update).as_bytes());
            self.sent = Instant::now();
        }
        self.inbox.end_update(true);
        Some(UPDATE_INTERVAL)
    }
}

impl Dashboard {
    /// Adds the published events to the history.
    fn collect(&mut self) {
        let Content { events, dropped } = self.inbox.take();
        for event in events {
            self.history.apply(event);
        }
        if dropped > 0 {
            self.log(
                LogKind::Warning,
                format!("{dropped} events were published faster than the page takes them"),
            );
        }
    }

    fn log(&mut self, kind: LogKind, text: String) {
        self.history.apply(Event::Log(Log {
            step: None,
            kind,
            text,
            at_unix_ms: None,
        }));
    }

    fn route(&mut self, request: &Request) -> Answer {
        let path = request.path();
        let name = path.strip_prefix(self.access.path());
        let name = name.or_else(|| path.strip_prefix('/')).unwrap_or(path);
        if let Some(answer) = self.login(request, name) {
            return answer.into();
        }
        match (request.method(), name) {
            ("GET", "events") => self.stream(),
            // Whether there is room for one more page.
            ("HEAD", "events") => Answer::Stream {
                head: stream_head(),
                first: Vec::new().into(),
            },
            ("GET", "alive") => Response::text("text/plain", "alive\n").into(),
            ("POST", "control") => self.control(request).into(),
            (_, "control") => Response::error(405, "a control is a POST")
                .with("Allow", "POST")
                .into(),
            ("GET" | "HEAD", name) => assets::response(name, request)
                .unwrap_or_else(|| Response::error(404, "the page has no such file"))
                .into(),
            _ => Response::error(405, "the page can only be read")
                .with("Allow", "GET, HEAD")
                .into(),
        }
    }

    /// Begins a session if the request has the token, and refuses it if it has neither token nor
    /// session. `None`: it has one of them.
    fn login(&self, request: &Request, name: &str) -> Option<Response> {
        let form = std::str::from_utf8(request.body()).unwrap_or_default();
        let given = match (request.method(), name) {
            ("GET", "") => request.query("token"),
            ("POST", "login") => form.trim().strip_prefix("token="),
            _ => None,
        };
        let token = self.access.token();
        // A URL that was written by hand has the token as it is.
        let is_token = |text: &str| token.is(text) || token.is(&decoded(text));
        if given.is_some_and(|given| is_token(given.trim())) {
            return Some(welcome(&self.access));
        }
        if given.is_none() && self.access.client(request) != Client::Unknown {
            return None;
        }
        let wants_page = request.accepts("text/html") > request.accepts("text/plain");
        let refused = match wants_page || name == "login" {
            true => {
                let why = match given {
                    Some(_) => "This is not the token of the job that runs now.",
                    None => "The page needs the token of the job.",
                };
                let page = assets::LOGIN.replace("WHY", why);
                Response::text("text/html; charset=utf-8", page).with_status(401)
            }
            false => Response::error(
                401,
                "the page needs the token: in its URL, or as `Authorization: Bearer TOKEN`",
            ),
        };
        Some(refused.with("WWW-Authenticate", "Bearer"))
    }

    /// Begins a stream of updates with all of the history.
    fn stream(&mut self) -> Answer {
        self.collect();
        self.inbox.page_opened();
        let control = self
            .handler
            .as_ref()
            .map(|_| self.access.control().reveal());
        let hello =
            serde_json::json!({ "page": self.version, "server": self.start, "control": control });
        let first = format!(
            "retry: 1000\n\n{}{}",
            message(&hello.to_string()),
            message(&self.history.all())
        );
        Answer::Stream {
            head: stream_head(),
            first: first.into_bytes().into(),
        }
    }

    fn control(&mut self, request: &Request) -> Response {
        let Some(handler) = &mut self.handler else {
            return Response::error(403, "the controls of this page are off");
        };
        if !self.access.may_control(request) {
            return Response::error(403, "the control has not sent its token");
        }
        let command = match control::command(request.body()) {
            Ok(command) => command,
            Err(why) => return Response::error(400, &why),
        };
        let name = command.to_string();
        let (status, text) = match self.history.has_ended() {
            true => (409, "the job has ended".to_owned()),
            false => match handler(command) {
                Ok(text) => (200, text),
                Err(why) => (409, why),
            },
        };
        tracing::info!("dash: {name}: {text}");
        self.log(LogKind::Control, format!("{name}: {text}"));
        Response::text("text/plain; charset=utf-8", format!("{text}\n")).with_status(status)
    }
}

/// Begins a session and leads to the page. A redirection by status would not have the new cookie if
/// the user followed a link on another site, as in a terminal that is a web page; one by the page
/// itself has it.
fn welcome(access: &Access) -> Response {
    let path = access.path();
    let page = format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><title>ronde dash</title>\
         <link rel=\"icon\" href=\"data:,\"><meta http-equiv=\"refresh\" content=\"0; url={path}\">\
         <a href=\"{path}\">The page of the job</a></html>\n"
    );
    Response::text("text/html; charset=utf-8", page).with("Set-Cookie", &access.cookie())
}

fn stream_head() -> Response {
    Response::text("text/event-stream; charset=utf-8", "")
}

/// Text of a form's field: a browser writes `+` and `%XX` for some characters.
fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

fn message(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn protected(response: Response) -> Response {
    response
        .with("Content-Security-Policy", POLICY)
        .with("Referrer-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin")
        .with("Cross-Origin-Opener-Policy", "same-origin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_encodes_is_decoded() {
        for (sent, text) in [
            ("0123abcd", "0123abcd"),
            ("ab%2Bc%2Fd%3D%3d", "ab+c/d=="),
            ("a+b", "a b"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
            ("%+1", "% 1"),
        ] {
            assert_eq!(decoded(sent), text);
        }
    }
}
