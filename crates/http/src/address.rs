//! Address to listen on, as a user writes it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Reason why a text is no address to listen on.
#[derive(Debug)]
pub enum AddressError {
    /// It is neither `PORT` nor `HOST:PORT`.
    Form,
    /// The host has no address.
    Host(std::io::Error),
}

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Form => f.write_str("it is neither PORT nor HOST:PORT"),
            Self::Host(error) => write!(f, "its host has no address: {error}"),
        }
    }
}

impl std::error::Error for AddressError {}

/// Reads `PORT`, which is a port of 127.0.0.1, or `HOST:PORT`; an IPv6 address is in brackets.
///
/// # Errors
/// Another form, or a host without an address.
pub fn address(text: &str) -> Result<SocketAddr, AddressError> {
    let Some((host, port)) = text.rsplit_once(':') else {
        let port = text.parse().map_err(|_| AddressError::Form)?;
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    };
    let port: u16 = port.parse().map_err(|_| AddressError::Form)?;
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        let host: IpAddr = inner.parse().map_err(|_| AddressError::Form)?;
        return Ok((host, port).into());
    }
    if host.is_empty() || host.contains(':') {
        return Err(AddressError::Form);
    }
    let mut found = (host, port).to_socket_addrs().map_err(AddressError::Host)?;
    found.next().ok_or(AddressError::Form)
}

/// Returns the hint to append to an error of [`Server::start`](crate::Server::start): a way to
/// solve it, or nothing.
pub fn listen_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "; choose another port, or 0 for any free one",
        std::io::ErrorKind::AddrNotAvailable => "; it is no address of this host",
        std::io::ErrorKind::PermissionDenied => "; choose a port from 1024 on",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_host_only() {
        let read = |text| address(text).map(|address| address.to_string()).ok();
        assert_eq!(read("9400").as_deref(), Some("127.0.0.1:9400"));
        assert_eq!(read("0.0.0.0:9400").as_deref(), Some("0.0.0.0:9400"));
        assert_eq!(read("[::1]:9400").as_deref(), Some("[::1]:9400"));
        for text in [
            "",
            ":9400",
            "::1:9400",
            "host",
            "localhost:",
            "1.2.3.4:99999",
            "[x]:1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let unknown = address("no-such-host.invalid:1").unwrap_err().to_string();
        assert!(
            unknown.starts_with("its host has no address: "),
            "{unknown}"
        );
    }
}
