//! Response: status, headers and body.

/// A response to a client.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    /// A response with a text of this type.
    pub fn text(content_type: &str, body: String) -> Self {
        Self {
            status: 200,
            headers: vec![("Content-Type", content_type.to_owned())],
            body,
        }
    }

    /// A response with an error, 400 to 599, and one sentence that says what is wrong.
    pub fn error(status: u16, sentence: &str) -> Self {
        Self {
            status,
            ..Self::text("text/plain; charset=utf-8", format!("{sentence}\n"))
        }
    }

    /// Adds a header. `value` has no control characters.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        debug_assert!(!value.contains(char::is_control), "{value}");
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Returns the bytes to send; without the body in answer to a HEAD request.
    pub(crate) fn bytes(&self, head_only: bool) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, self.reason());
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n", self.body.len());
        text += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
        text += "Connection: close\r\n\r\n";
        if !head_only {
            text += &self.body;
        }
        text.into_bytes()
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
