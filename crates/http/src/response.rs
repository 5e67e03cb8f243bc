//! Response: status, headers and body; answer of a service.

use std::borrow::Cow;
use std::sync::Arc;

/// Answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// A response with its end.
    Whole(Response),
    /// A response without an end: the body begins with `first`, and messages follow.
    Stream {
        /// Status and headers; its body is not sent.
        head: Response,
        /// First message.
        first: Arc<[u8]>,
    },
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Whole(response)
    }
}

/// A response to a client.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Cow<'static, [u8]>,
}

impl Response {
    /// A response with a text of this type.
    pub fn text(content_type: &str, body: impl Into<Cow<'static, str>>) -> Self {
        let body = match body.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Self::bytes(content_type, body)
    }

    /// A response with these bytes, of this type.
    pub fn bytes(content_type: &str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self {
            status: 200,
            headers: vec![("Content-Type", content_type.to_owned())],
            body: body.into(),
        }
    }

    /// A response with an error, 400 to 599, and one sentence that says what is wrong.
    pub fn error(status: u16, sentence: &str) -> Self {
        Self::text("text/plain; charset=utf-8", format!("{sentence}\n")).with_status(status)
    }

    /// Replaces the status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header. `value` has no control characters.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        debug_assert!(!value.contains(char::is_control), "{value}");
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Returns head and body to send; without the body in answer to a HEAD request.
    pub(crate) fn into_parts(self, head_only: bool) -> (Vec<u8>, Cow<'static, [u8]>) {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        let head = self.head(&length).into_bytes();
        match head_only {
            true => (head, Cow::Borrowed(&[])),
            false => (head, self.body),
        }
    }

    /// Returns the head of a response without an end.
    pub(crate) fn into_stream_head(self) -> Vec<u8> {
        self.head("").into_bytes()
    }

    fn head(&self, length: &str) -> String {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, self.reason());
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += length;
        text += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
        text += "Connection: close\r\n\r\n";
        text
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            500..=599 => "Server Error",
            _ => "Error",
        }
    }
}
