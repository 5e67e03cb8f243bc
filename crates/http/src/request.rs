//! Request: its method, path and headers.

/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// A request of a client.
#[derive(Debug)]
pub struct Request {
    method: String,
    path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

/// State of the bytes that a client has sent.
#[derive(Debug)]
pub(crate) enum Read {
    /// More bytes must come.
    Partial,
    /// A whole request.
    Whole(Request),
    /// Not a request, for this reason.
    Invalid(&'static str),
}

impl Request {
    /// Reads the request at the beginning of `bytes`. A body is not read: no request here has one.
    pub(crate) fn read(bytes: &[u8]) -> Read {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Partial) => return Read::Partial,
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Read::Invalid("too many headers"),
            Err(_) => return Read::Invalid("not an HTTP/1.1 request"),
        }
        let mut headers = Vec::with_capacity(parsed.headers.len());
        for header in &*parsed.headers {
            let Ok(value) = std::str::from_utf8(header.value) else {
                return Read::Invalid("a header that is not text");
            };
            headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let target = parsed.path.unwrap_or_default();
        Read::Whole(Self {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: target.split('?').next().unwrap_or_default().to_owned(),
            headers,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match Request::read(text.as_bytes()) {
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
            Request::read(b"GET / HTTP/1.1\r\nHost"),
            Read::Partial
        ));
        assert!(matches!(
            Request::read(b"\x16\x03\x01\x02\x00"),
            Read::Invalid(_)
        ));
        assert!(matches!(
            Request::read(b"GET / HTTP/1.1\r\na: \xff\r\n\r\n"),
            Read::Invalid(_)
        ));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert!(matches!(
            Request::read(many.as_bytes()),
            Read::Invalid("too many headers")
        ));
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
