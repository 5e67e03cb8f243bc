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

/// Address of the network interface `name` of this host: of the same IP version as `like`, or of
/// IPv4 where it has one.
///
/// # Errors
/// [`NetError::Interface`], with the interfaces that have addresses.
pub fn interface_address(name: &str, like: Option<&SocketAddr>) -> Result<IpAddr, NetError> {
    interface_in(&interfaces()?, name, like)
}

/// Like [`interface_address`], for a connection to `server`, which may be on another host.
///
/// # Errors
/// Likewise; [`NetError::Loopback`] if `server` is on another host.
pub fn interface_to(name: &str, server: &SocketAddr) -> Result<IpAddr, NetError> {
    let interfaces = interfaces()?;
    let address = interface_in(&interfaces, name, Some(server))?;
    let is_here =
        server.ip().is_loopback() || interfaces.values().any(|ips| ips.contains(&server.ip()));
    match address.is_loopback() && !is_here {
        true => Err(loopback(&interfaces, name, address)),
        false => Ok(address),
    }
}

/// Like [`interface_address`], for connections between hosts.
///
/// # Errors
/// Likewise; [`NetError::Loopback`].
pub fn interface_between_hosts(name: &str) -> Result<IpAddr, NetError> {
    let interfaces = interfaces()?;
    let address = interface_in(&interfaces, name, None)?;
    match address.is_loopback() {
        true => Err(loopback(&interfaces, name, address)),
        false => Ok(address),
    }
}

type Interfaces = BTreeMap<String, Vec<IpAddr>>;

/// Network interfaces of this host with their addresses.
fn interfaces() -> Result<Interfaces, NetError> {
    let mut addresses = Interfaces::new();
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
    Ok(addresses)
}

fn interface_in(
    interfaces: &Interfaces,
    name: &str,
    like: Option<&SocketAddr>,
) -> Result<IpAddr, NetError> {
    let is_like = |ip: &IpAddr| like.is_none_or(|like| ip.is_ipv4() == like.is_ipv4());
    let found = interfaces.get(name).into_iter().flatten().copied();
    let found = found.filter(is_like).min_by_key(IpAddr::is_ipv6);
    found.ok_or_else(|| NetError::Interface {
        name: name.to_owned(),
        address: match like {
            None => "an address",
            Some(SocketAddr::V4(_)) => "an IPv4 address",
            Some(SocketAddr::V6(_)) => "an IPv6 address",
        },
        found: list(interfaces, |_| true),
    })
}

fn loopback(interfaces: &Interfaces, name: &str, address: IpAddr) -> NetError {
    NetError::Loopback {
        name: name.to_owned(),
        address,
        found: list(interfaces, |ip| !ip.is_loopback()),
    }
}

/// Interfaces, each with its first address that `is_shown`.
fn list(interfaces: &Interfaces, is_shown: impl Fn(&IpAddr) -> bool) -> String {
    let shown = interfaces.iter().filter_map(|(name, ips)| {
        let ip = ips.iter().find(|ip| is_shown(ip))?;
        Some(format!("{name} ({ip})"))
    });
    match shown.collect::<Vec<_>>() {
        shown if shown.is_empty() => "none".to_owned(),
        shown => shown.join(", "),
    }
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
        let here = "127.0.0.1:1".parse().unwrap();
        let lo = Ok(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(interface_address("lo", Some(&here)), lo);
        assert_eq!(interface_address("lo", None), lo);
        assert_eq!(interface_to("lo", &here), lo);
        let error = interface_to("eth99", &here).unwrap_err().to_string();
        let text = "no network interface eth99 with an IPv4 address; it has ";
        assert!(error.contains(text), "{error}");
        assert!(error.contains("lo (127.0.0.1)"), "{error}");
    }

    #[test]
    fn a_loopback_interface_is_refused_for_other_hosts() {
        let elsewhere = "192.0.2.1:1".parse().unwrap();
        for error in [
            interface_to("lo", &elsewhere).unwrap_err(),
            interface_between_hosts("lo").unwrap_err(),
        ] {
            let error = error.to_string();
            let start = "lo is a loopback interface (127.0.0.1), ";
            assert!(error.starts_with(start), "{error}");
            assert!(!error.contains("lo (127"), "{error}");
        }
        let interfaces = Interfaces::from([
            ("lo".into(), vec![[127, 0, 0, 1].into()]),
            (
                "eth0".into(),
                vec!["fd00::1".parse().unwrap(), [10, 0, 0, 1].into()],
            ),
        ]);
        let of = |name, like: Option<SocketAddr>| interface_in(&interfaces, name, like.as_ref());
        assert_eq!(of("eth0", None), Ok([10, 0, 0, 1].into()));
        let v6 = Some("[fd00::2]:1".parse().unwrap());
        assert_eq!(of("eth0", v6), Ok("fd00::1".parse().unwrap()));
        assert_eq!(
            of("lo", v6).unwrap_err().to_string(),
            "this host has no network interface lo with an IPv6 address; it has eth0 (fd00::1), lo \
             (127.0.0.1)"
        );
    }
}
