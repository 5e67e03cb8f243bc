//! Address at which rank 0 listens for the other ranks: chosen on its host, before any rank starts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::INTERFACE;
use ronde_net::{Destination, NetError};

/// Address of this host's network interface `name`, which the user has named, IPv4 if it has one;
/// `is_alone`: the job has no other hosts.
///
/// # Errors
/// No such interface, or one without an address, or that does not lead to other hosts; the error
/// names those that there are.
pub(in super::super) fn of_interface(name: &str, is_alone: bool) -> Result<IpAddr, InterfaceError> {
    let to = match is_alone {
        true => Destination::ThisHost,
        false => Destination::OtherHosts,
    };
    ronde_net::interface_address(name, to).map_err(InterfaceError)
}

/// Network interface that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0} (--network-interface, or {INTERFACE})")]
pub(crate) struct InterfaceError(NetError);

/// Address by which `ssh` has reached this host, from the value of `SSH_CONNECTION`: addresses and
/// ports of client and server. Other hosts cannot use a loopback address or one with a scope.
pub(in super::super) fn of_connection(value: &str) -> Option<IpAddr> {
    let address: IpAddr = value.split(' ').nth(2)?.parse().ok()?;
    let is_useless = address.is_loopback() || address.is_unspecified() || is_link_local(address);
    (!is_useless).then_some(address)
}

/// Whether an address needs a scope, which each host has under another name.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Address of this machine from which it reaches `host`, by the routing table; no packet is sent.
/// It is none with a scope.
pub(in super::super) fn towards(host: &str) -> Option<IpAddr> {
    const PORT: u16 = 9; // any
    let addresses = ronde_net::resolve(host, PORT).ok()?;
    addresses.into_iter().find_map(|address| {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(address).ok()?;
        let own = socket.local_addr().ok()?.ip();
        (!is_link_local(own)).then_some(own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_other_hosts_can_use() {
        let of = |value| of_connection(value).map(|address| address.to_string());
        assert_eq!(of("10.0.0.9 4000 10.0.0.1 22").unwrap(), "10.0.0.1");
        assert_eq!(of("fd00::9 4000 fd00::1 22").unwrap(), "fd00::1");
        for useless in [
            "",
            "10.0.0.9 4000",
            "127.0.0.1 4000 127.0.0.1 22",
            "::1 4000 ::1 22",
            "fe80::9%eth0 4000 fe80::1%eth0 22",
            "a b c d",
        ] {
            assert_eq!(of(useless), None, "{useless}");
        }
        assert_eq!(of_interface("lo", true).unwrap().to_string(), "127.0.0.1");
        let error = of_interface("lo", false).unwrap_err().to_string();
        let parts = ["lo is a loopback interface", "or HOROVOD_GLOO_IFACE)"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        let error = of_interface("eth99", true).unwrap_err().to_string();
        assert!(error.contains("eth99") && error.contains("lo ("), "{error}");
        assert!(towards("127.0.0.1").unwrap().is_loopback());
        assert_eq!(towards("no-such-host.invalid"), None);
    }

    #[test]
    fn a_link_local_address_is_not_one_for_other_hosts() {
        let list = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        for line in list.lines().filter(|line| line.starts_with("fe80")) {
            let interface = line.split_whitespace().last().unwrap();
            assert_eq!(towards(&format!("fe80::1%{interface}")), None);
        }
    }
}
