//! Request: its method, path, headers and body.

/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// A request of a client.
#[derive(Debug)]
pub struct Request {
    method: String,
    path: String,
    query: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// State of the bytes that a client has sent.
#[derive(Debug)]
pub(crate) enum Read {
    /// More bytes must come.
    Partial,
    /// A whole request.
    Whole(Request),
    /// A request whose body exceeds the limit.
    TooLong,
    /// Not a request, for this reason.
    Invalid(&'static str),
}

impl Request {
    /// Reads the request at the beginning of `bytes`, of which there are at most `bytes_max`.
    pub(crate) fn read(bytes: &[u8], bytes_max: usize) -> Read {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        let body_at = match parsed.parse(bytes) {
            Ok(httparse::Status::Partial) => return Read::Partial,
            Ok(httparse::Status::Complete(length)) => length,
            Err(httparse::Error::TooManyHeaders) => return Read::Invalid("too many headers"),
            Err(_) => return Read::Invalid("not an HTTP/1.1 request"),
        };
        let mut headers = Vec::with_capacity(parsed.headers.len());
        for header in &*parsed.headers {
            let Ok(value) = std::str::from_utf8(header.value) else {
                return Read::Invalid("a header that is not text");
            };
            headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let body = match body_length(&headers) {
            Ok(length) if length > bytes_max - body_at.min(bytes_max) => return Read::TooLong,
            Ok(length) => bytes.get(body_at..body_at + length),
            Err(why) => return Read::Invalid(why),
        };
        let Some(body) = body else {
            return Read::Partial;
        };
        let target = parsed.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Read::Whole(Self {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: body.to_vec(),
        })
    }

    /// Returns the method, in capitals.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value of a parameter of the query, as it was sent.
    pub fn query(&self, name: &str) -> Option<&str> {
        let mut parameters = self.query.split('&').filter_map(|one| one.split_once('='));
        parameters.find_map(|(found, value)| (found == name).then_some(value))
    }

    /// Returns the value of the first cookie of this name.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let headers = self.headers.iter().filter(|(header, _)| header == "cookie");
        let mut cookies = headers
            .flat_map(|(_, value)| value.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        cookies.find_map(|(found, value)| (found == name).then_some(value))
    }

    /// Returns the body; empty if there is none.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the first header of this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(header, _)| header == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Returns how much the client wants a content type, from 0 to 1, by its header `Accept`
    /// (RFC 9110, section 12.5.1). Without the header it wants all types.
    pub fn accepts(&self, content_type: &str) -> f64 {
        let Some(accept) = self.header("accept") else {
            return 1.0;
        };
        let (major, _) = content_type.split_once('/').unwrap_or((content_type, ""));
        let mut best = (0, 0.0); // how specific, and the weight
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let specific = match parts.next().and_then(|name| name.split_once('/')) {
                Some(("*", "*")) => 1,
                Some((of, "*")) if of.eq_ignore_ascii_case(major) => 2,
                Some((of, minor)) => {
                    let is_named = format!("{of}/{minor}").eq_ignore_ascii_case(content_type);
                    if is_named { 3 } else { continue }
                }
                None => continue,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            let weight = weight.map_or(Ok(1.0), str::parse).unwrap_or(0.0_f64);
            if specific > best.0 || (specific == best.0 && weight > best.1) {
                best = (specific, weight.clamp(0.0, 1.0));
            }
        }
        best.1
    }
}

/// Length of the body by the headers. A body of unknown length is refused.
fn body_length(headers: &[(String, String)]) -> Result<usize, &'static str> {
    let values = |name| headers.iter().filter(move |(header, _)| header == name);
    if values("transfer-encoding").next().is_some() {
        return Err("the body needs a Content-Length");
    }
    let mut lengths = values("content-length").map(|(_, value)| value);
    let Some(length) = lengths.next() else {
        return Ok(0);
    };
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    if lengths.next().is_some() || !is_number {
        return Err("an invalid Content-Length");
    }
    Ok(length.parse().unwrap_or(usize::MAX)) // more digits than a length can have
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match Request::read(text.as_bytes(), 4096) {
            Read::Whole(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_has_a_method_a_path_and_headers_of_any_case() {
        let read = request("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept:  text/plain \r\n\r\n");
        assert_eq!((read.method(), read.path()), ("GET", "/metrics"));
        assert_eq!(read.header("accept"), Some("text/plain"));
        assert_eq!(read.header("authorization"), None);
        assert!(matches!(
            Request::read(b"GET / HTTP/1.1\r\nHost", 4096),
            Read::Partial
        ));
        assert!(matches!(
            Request::read(b"\x16\x03\x01\x02\x00", 4096),
            Read::Invalid(_)
        ));
        assert!(matches!(
            Request::read(b"GET / HTTP/1.1\r\na: \xff\r\n\r\n", 4096),
            Read::Invalid(_)
        ));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert!(matches!(
            Request::read(many.as_bytes(), 4096),
            Read::Invalid("too many headers")
        ));
    }

    #[test]
    fn a_request_has_parameters_cookies_and_a_body() {
        let read = request(
            "POST /set?a=1&token=x%20y HTTP/1.1\r\nCookie: a=b; c=d\r\nCookie: e=f\r\n\
             Content-Length: 3\r\n\r\nabcd",
        );
        assert_eq!((read.path(), read.query("token")), ("/set", Some("x%20y")));
        assert_eq!(read.query("b"), None);
        let cookies = ["a", "c", "e", "d"].map(|name| read.cookie(name));
        assert_eq!(cookies, [Some("b"), Some("d"), Some("f"), None]);
        assert_eq!(read.body(), b"abc");
    }

    #[test]
    fn a_body_is_waited_for_only_if_it_is_allowed() {
        let read = |headers: &str, body: &str| {
            let text = format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n{body}");
            match Request::read(text.as_bytes(), 100) {
                Read::Partial => "partial",
                Read::Whole(_) => "whole",
                Read::TooLong => "too long",
                Read::Invalid(why) => why,
            }
        };
        assert_eq!(read("Content-Length: 2", "a"), "partial");
        assert_eq!(read("Content-Length: 2", "ab"), "whole");
        assert_eq!(read("a: b", "ab"), "whole");
        for length in ["100", "99999999999999999999999999", "18446744073709551615"] {
            assert_eq!(read(&format!("Content-Length: {length}"), ""), "too long");
        }
        for length in ["-1", "+2", "", "2, 2", "2\r\nContent-Length: 2"] {
            let headers = format!("Content-Length: {length}");
            assert_eq!(read(&headers, ""), "an invalid Content-Length", "{length}");
        }
        assert_eq!(
            read("Transfer-Encoding: chunked", "0\r\n\r\n"),
            "the body needs a Content-Length"
        );
    }

    #[test]
    fn the_most_specific_range_of_accept_decides() {
        let of = |accept: &str, content_type: &str| {
            request(&format!("GET / HTTP/1.1\r\nAccept: {accept}\r\n\r\n")).accepts(content_type)
        };
        // What Prometheus 2 sends.
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(of(prometheus, "application/openmetrics-text"), 1.0);
        assert_eq!(of(prometheus, "text/plain"), 0.5);
        assert_eq!(of(prometheus, "image/png"), 0.1);
        assert_eq!(of("text/*;q=0.3, */*", "text/plain"), 0.3);
        assert_eq!(of("text/plain;q=many", "text/plain"), 0.0);
        assert_eq!(request("GET / HTTP/1.1\r\n\r\n").accepts("text/plain"), 1.0);
    }
}
