//! Access to the page: token, session cookie, `Host` and `Origin`.
//!
//! The token is the secret of the page. The first request has it in its URL; the answer sets a
//! cookie and leads to a URL without it. Cookie, path and the controls' token are computed from the
//! token, so a job that starts again with the same token file accepts the pages that are open.
//!
//! Browsers send cookies to all ports of a host, so another user's server on this machine would
//! receive the cookie of this page. Therefore the cookie is for a path that cannot be guessed.
//!
//! A web page whose name an attacker resolves to this machine (DNS rebinding) sends its own name as
//! `Host`: only addresses, `localhost` and this machine's name are accepted. A request of another
//! site that could change something has a foreign `Origin`.

use std::net::IpAddr;

use ronde_http::{Request, Token};

/// Name of the session cookie.
const COOKIE: &str = "ronde_dash";

/// Header with the token of the controls.
pub(crate) const CONTROL_HEADER: &str = "x-ronde-control";

/// Secrets of a page.
#[derive(Debug)]
pub(crate) struct Access {
    token: Token,
    session: Token,
    control: Token,
    path: String,
    /// Names by which this server may be called, in lower case; the first is the machine's.
    names: Vec<String>,
}

/// Identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// It has the cookie of a session.
    Session,
    /// It has sent the token as `Authorization: Bearer`.
    Bearer,
    /// It has neither.
    Unknown,
}

impl Access {
    /// `host`: the host of the address that the user has given, if it is a name.
    pub(crate) fn new(token: Token, host: Option<&str>) -> Self {
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy().to_lowercase();
        let given = host.map(str::to_lowercase);
        Self {
            session: token.derived("session"),
            control: token.derived("control"),
            path: format!("/{}/", &token.derived("path").reveal()[..32]),
            names: [machine, "localhost".to_owned()]
                .into_iter()
                .chain(given)
                .collect(),
            token,
        }
    }

    /// Name of this machine.
    pub(crate) fn machine(&self) -> &str {
        &self.names[0]
    }

    /// The token of the URL.
    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// The token that a control must have in its header.
    pub(crate) fn control(&self) -> &Token {
        &self.control
    }

    /// Path of the page, with a slash at both ends.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Value of `Set-Cookie` that begins a session.
    pub(crate) fn cookie(&self) -> String {
        let (session, path) = (self.session.reveal(), &self.path);
        format!("{COOKIE}={session}; Path={path}; HttpOnly; SameSite=Strict")
    }

    /// Refuses requests for other hosts and from other sites, with the reason.
    pub(crate) fn check_site(&self, request: &Request) -> Result<(), &'static str> {
        let host = request.header("host").unwrap_or_default();
        if !self.is_own_name(host) {
            return Err(
                "the Host is not this server: use its address, localhost or this machine's name",
            );
        }
        let is_own_origin = |origin: &str| {
            let rest = origin.strip_prefix("http://");
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        };
        if request
            .header("origin")
            .is_some_and(|origin| !is_own_origin(origin))
        {
            return Err("the request comes from another site");
        }
        Ok(())
    }

    /// Whether `host`, with or without a port, is an address or one of this server's names.
    fn is_own_name(&self, host: &str) -> bool {
        let host = host.to_lowercase();
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port),
            _ => (host.as_str(), ""),
        };
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        address.parse::<IpAddr>().is_ok() || self.names.iter().any(|own| own == name)
    }

    /// Identifies the client.
    pub(crate) fn client(&self, request: &Request) -> Client {
        let has_cookie = request
            .cookie(COOKIE)
            .is_some_and(|value| self.session.is(value));
        if has_cookie {
            Client::Session
        } else if self.token.is_in(request) {
            Client::Bearer
        } else {
            Client::Unknown
        }
    }

    /// Whether a request that changes something may do so: it has the controls' token in its
    /// header, which a page can read only if it has this origin, or it is a program with the token.
    pub(crate) fn may_control(&self, request: &Request) -> bool {
        match self.client(request) {
            Client::Bearer => true,
            Client::Session => request
                .header(CONTROL_HEADER)
                .is_some_and(|given| self.control.is(given)),
            Client::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new(Token::random().unwrap(), Some("Dash.example.org"))
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        let access = access();
        for host in [
            "127.0.0.1:8080",
            "localhost:9000",
            "LOCALHOST",
            "[::1]:80",
            "10.0.0.3",
            "dash.example.org:1",
        ] {
            assert!(access.is_own_name(host), "{host}");
        }
        for host in [
            "",
            "evil.example.org",
            "evil.example.org:8080",
            "localhost.evil.org",
            "127.0.0.1.nip.io:80",
            "localhost:80:80",
            "localhost:80@evil.org",
            "[::1",
            "127.1",
        ] {
            assert!(!access.is_own_name(host), "{host}");
        }
    }

    #[test]
    fn secrets_differ_and_the_path_shows_none_of_them() {
        let access = access();
        let secrets = [&access.token, &access.session, &access.control].map(Token::reveal);
        let path = &access.path[1..33];
        assert!(secrets.iter().all(|secret| !secret.contains(path)));
        assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2]);
        let cookie = access.cookie();
        assert!(cookie.ends_with("/; HttpOnly; SameSite=Strict") && !cookie.contains(secrets[0]));
    }
}
