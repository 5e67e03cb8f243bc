//! Reservation of a port for a listener of another process.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net;

use crate::address;

/// Port that stays reserved during the lifetime of this value. The socket is bound and does not
/// listen: rank 0 can listen on the port (both sockets set SO_REUSEADDR), and the operating system
/// does not give it to another program that wants any port.
pub struct Reservation {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl Reservation {
    /// Reserves `port` on all addresses of this host, or a free port if it is 0.
    ///
    /// # Errors
    /// Another program listens on the port, or this process may not use it.
    pub fn new(port: u16) -> io::Result<Self> {
        let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        match Self::bind(both) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                // A host without IPv6.
                Self::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
            }
            reserved => reserved,
        }
    }

    /// Reserves the port of `address`, or a free port if it is 0, on this address.
    ///
    /// # Errors
    /// As [`new`](Self::new); or this host does not have the address.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = address::bound(address)?;
        let bound = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok(Self {
            address: bound,
            _socket: socket,
        })
    }

    /// The reserved address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The reserved port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_is_for_rank_0_and_a_used_one_is_refused() {
        let reserved = Reservation::new(0).unwrap();
        let port = reserved.port();
        let again = Reservation::new(0).unwrap();
        assert_ne!(again.port(), port);
        // As rank 0 does, on one address or on all of them.
        for address in ["127.0.0.1", "0.0.0.0"] {
            let listener = TcpListener::bind((address, port)).unwrap();
            let error = Reservation::new(port).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            drop(listener);
        }
        drop(reserved);
        assert_eq!(Reservation::new(port).unwrap().port(), port);
    }
}
