//! Addresses and sockets: host names, network interfaces, and the options of a connection.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::NetError;

/// Time after which a connection fails whose other side does not acknowledge what was sent, or has
/// no room for it.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which the operating system asks an idle other side whether it lives, and how often.
/// An answer that is missing for [`USER_TIMEOUT`] ends the connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Most connections that wait to be accepted: the kernel's own limit is lower on most systems.
const BACKLOG: i32 = 4096;

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

/// Where the connections of a network interface lead.
#[derive(Clone, Copy, Debug)]
pub enum Destination {
    /// To ranks of this host alone.
    ThisHost,
    /// To ranks of other hosts.
    OtherHosts,
    /// To this server, on this host or another one.
    Server(SocketAddr),
}

/// Address of the network interface `name` of this host for connections to `to`: of the same
/// IP version as the server, or of IPv4 where the interface has one.
///
/// # Errors
/// [`NetError::Interface`], with the interfaces that have addresses; [`NetError::Loopback`] for an
/// interface that does not lead to other hosts, if they lead to one.
pub fn interface_address(name: &str, to: Destination) -> Result<IpAddr, NetError> {
    interface_in(&interfaces()?, name, to)
}

/// Whether a network interface of this host has the address `ip`.
pub fn is_own_address(ip: IpAddr) -> bool {
    interfaces().is_ok_and(|all| all.values().flatten().any(|own| *own == ip))
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

fn interface_in(interfaces: &Interfaces, name: &str, to: Destination) -> Result<IpAddr, NetError> {
    let server = match to {
        Destination::ThisHost | Destination::OtherHosts => None,
        Destination::Server(server) => Some(server.ip()),
    };
    let is_like = |ip: &IpAddr| server.is_none_or(|server| ip.is_ipv4() == server.is_ipv4());
    let of_interface = interfaces.get(name).into_iter().flatten().copied();
    let found = of_interface.filter(is_like).min_by_key(IpAddr::is_ipv6);
    let address = found.ok_or_else(|| NetError::Interface {
        name: name.to_owned(),
        address: match server {
            None => "an address",
            Some(IpAddr::V4(_)) => "an IPv4 address",
            Some(IpAddr::V6(_)) => "an IPv6 address",
        },
        found: list(interfaces, |_| true),
    })?;
    let is_here =
        |ip: IpAddr| ip.is_loopback() || interfaces.values().flatten().any(|it| *it == ip);
    let leaves_host = match to {
        Destination::ThisHost => false,
        Destination::OtherHosts => true,
        Destination::Server(server) => !is_here(server.ip()),
    };
    match address.is_loopback() && leaves_host {
        true => Err(NetError::Loopback {
            name: name.to_owned(),
            address,
            found: list(interfaces, |ip| !ip.is_loopback()),
        }),
        false => Ok(address),
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

/// Where a rank that finds rank 0 at `server` reaches the rank that is known at `address`. A rank
/// that has found rank 0 at a loopback address is on rank 0's host.
pub(crate) fn seen_from(server: SocketAddr, address: SocketAddr) -> SocketAddr {
    match address.ip().is_loopback() && !server.ip().is_loopback() {
        true => SocketAddr::new(server.ip(), address.port()),
        false => address,
    }
}

/// Listens on `address`; the unspecified one of IPv6 stands for both versions, whatever the
/// system's default (`net.ipv6.bindv6only`).
pub(crate) fn listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = bound(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from_std(std::net::TcpListener::from(socket)))
}

/// A socket that is bound to `address`, which other sockets may be bound to as well; see [`listener`].
pub(crate) fn bound(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let socket = socket(address)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// A nonblocking socket for connections from or to addresses like `address`.
fn socket(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Begins to connect to `to`, from the address `from` if one is given.
pub(crate) fn connect(to: SocketAddr, from: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let socket = socket(to)?;
    // On rank 0's host the port of this side can be that of rank 0, which can then still listen.
    sockopt::set_socket_reuseaddr(&socket, true)?;
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
    fn ranks_of_rank_0s_host_are_reached_as_rank_0_is() {
        let of = |server: &str, address: &str| {
            seen_from(server.parse().unwrap(), address.parse().unwrap()).to_string()
        };
        assert_eq!(of("192.0.2.1:77", "127.0.0.1:4000"), "192.0.2.1:4000");
        assert_eq!(of("192.0.2.1:77", "[::1]:4000"), "192.0.2.1:4000");
        assert_eq!(of("192.0.2.1:77", "198.51.100.7:4000"), "198.51.100.7:4000");
        assert_eq!(of("127.0.1.1:77", "127.0.0.1:4000"), "127.0.0.1:4000");
    }

    #[test]
    fn a_listener_on_all_interfaces_accepts_both_versions() {
        let Ok(listener) = listener("[::]:0".parse().unwrap()) else {
            return; // a host without IPv6
        };
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            std::net::TcpStream::connect((host, port)).expect(host);
        }
    }

    #[test]
    fn the_port_of_a_connection_can_be_listened_at() {
        let any = "127.0.0.1:0".parse().unwrap();
        let listening = listener(any).unwrap();
        let stream = connect(listening.local_addr().unwrap(), None).unwrap();
        listener(stream.local_addr().unwrap()).unwrap();
    }

    fn interfaces_of(list: &[(&str, &[&str])]) -> Interfaces {
        let parsed = list.iter().map(|(name, ips)| {
            let ips = ips.iter().map(|ip| ip.parse().expect("an address"));
            (String::from(*name), ips.collect())
        });
        parsed.collect()
    }

    #[test]
    fn an_interface_of_this_host_has_an_address() {
        let here = Destination::Server("127.0.0.1:1".parse().unwrap());
        for to in [Destination::ThisHost, here] {
            let address = interface_address("lo", to);
            assert_eq!(address, Ok(IpAddr::from([127, 0, 0, 1])), "{to:?}");
        }
        let error = interface_address("eth99", here).unwrap_err().to_string();
        let text = "no network interface eth99 with an IPv4 address; it has ";
        assert!(error.contains(text), "{error}");
        assert!(error.contains("lo (127.0.0.1)"), "{error}");
    }

    #[test]
    fn the_address_is_of_the_servers_version_or_of_ipv4() {
        let interfaces =
            interfaces_of(&[("lo", &["127.0.0.1"]), ("eth0", &["fd00::1", "10.0.0.1"])]);
        let of = |name, to| interface_in(&interfaces, name, to);
        let v6 = Destination::Server("[fd00::2]:1".parse().unwrap());
        assert_eq!(
            of("eth0", Destination::OtherHosts),
            Ok([10, 0, 0, 1].into())
        );
        assert_eq!(of("eth0", v6), Ok("fd00::1".parse().unwrap()));
        assert_eq!(
            of("lo", v6).unwrap_err().to_string(),
            "this host has no network interface lo with an IPv6 address; it has eth0 (fd00::1), lo \
             (127.0.0.1)"
        );
    }

    #[test]
    fn a_loopback_interface_is_refused_for_other_hosts() {
        let interfaces = interfaces_of(&[("lo", &["127.0.0.1"]), ("eth0", &["10.0.0.1"])]);
        let server = |address: &str| Destination::Server(address.parse().unwrap());
        let of = |to| interface_in(&interfaces, "lo", to);
        for to in [Destination::OtherHosts, server("192.0.2.1:1")] {
            let error = of(to).unwrap_err().to_string();
            let start = "lo is a loopback interface (127.0.0.1), ";
            assert!(error.starts_with(start), "{error}");
            assert!(
                error.contains("eth0 (10.0.0.1)") && !error.contains("lo (127"),
                "{error}"
            );
        }
        for to in [
            Destination::ThisHost,
            server("127.0.0.1:1"),
            server("10.0.0.1:1"),
        ] {
            assert!(of(to).is_ok(), "{to:?}");
        }
    }
}
