//! Addresses and sockets: host names, network interfaces, and the options of a connection.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use mio::net::TcpStream;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::NetError;

/// Time after which a connection fails whose other side does not acknowledge what was sent, or has
/// no room for it.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which the operating system asks an idle other side whether it lives, and how often.
/// An answer that is missing for [`USER_TIMEOUT`] ends the connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses of the host `name`, a name or an address of either IP version, with `port`; in the
/// order in which the resolver prefers them.
///
/// # Errors
/// [`NetError::Resolve`].
pub fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, NetError> {
    let failed = |reason: String| NetError::Resolve {
        name: name.to_owned(),
        reason,
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let addresses = (bare.unwrap_or(name), port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    if addresses.is_empty() {
        return Err(failed("the resolver returned none".into()));
    }
    Ok(addresses)
}

/// Address of the network interface `name` of this host, of the same IP version as `server` where
/// it has one.
///
/// # Errors
/// [`NetError::Interface`], with the interfaces that have addresses.
pub fn interface_address(name: &str, server: &SocketAddr) -> Result<IpAddr, NetError> {
    let mut addresses: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    let interfaces = nix::ifaddrs::getifaddrs().map_err(|error| NetError::System {
        call: "getifaddrs",
        reason: error.to_string(),
    })?;
    for interface in interfaces {
        let Some(address) = interface.address else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        let v6 = address.as_sockaddr_in6().map(|it| it.ip());
        // Link-local addresses need a scope, which the other ranks' hosts number differently.
        let v6 = v6.filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::V6);
        let of_interface = addresses.entry(interface.interface_name).or_default();
        of_interface.extend(v4.or(v6));
    }
    let of_version = |ips: &Vec<IpAddr>| {
        ips.iter()
            .copied()
            .find(|ip| ip.is_ipv4() == server.is_ipv4())
    };
    let found = addresses.get(name).and_then(of_version);
    found.ok_or_else(|| NetError::Interface {
        name: name.to_owned(),
        found: addresses
            .iter()
            .filter(|(_, ips)| !ips.is_empty())
            .map(|(name, ips)| format!("{name} ({})", ips[0]))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Begins to connect to `to`, from the address `from` if one is given.
pub(crate) fn connect(to: SocketAddr, from: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(from) = from {
        rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(TcpStream::from_std(std::net::TcpStream::from(socket)))
}

/// Sets the options of a connection: small messages leave at once, and a lost other side is
/// detected.
pub(crate) fn configure(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT.as_millis() as u32)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_both_versions_resolve() {
        let first = |name| resolve(name, 7).unwrap()[0];
        assert_eq!(first("127.0.0.1"), "127.0.0.1:7".parse().unwrap());
        assert_eq!(first("::1"), "[::1]:7".parse().unwrap());
        assert_eq!(first("[::1]"), "[::1]:7".parse().unwrap());
        assert!(first("localhost").ip().is_loopback());
        let error = resolve("no-such-host.invalid", 7).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the host name no-such-host.invalid has no address")
        );
    }

    #[test]
    fn an_interface_has_an_address_and_an_unknown_one_is_named_with_the_others() {
        let server = "127.0.0.1:1".parse().unwrap();
        assert_eq!(
            interface_address("lo", &server),
            Ok(IpAddr::from([127, 0, 0, 1]))
        );
        let error = interface_address("eth99", &server).unwrap_err().to_string();
        assert!(error.contains("no network interface eth99"), "{error}");
        assert!(error.contains("lo (127.0.0.1)"), "{error}");
    }
}
