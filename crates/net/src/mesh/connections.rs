//! The list of connections: how they begin and how they end.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use mio::net::TcpStream;
use mio::{Interest, Token};
use rustix::io::Errno;

use super::{Core, LINKS, LISTENER, Phase};
use crate::address;
use crate::control::Control;
use crate::error::{Loss, NetError};
use crate::link::{End, Link};

/// Most connections at a time that have not proved that they know the secret: beyond, the oldest
/// one is closed.
const UNAUTHENTICATED_MAX: usize = 128;
/// Most refused connections that an error lists.
const NOTES_MAX: usize = 8;

impl Core {
    /// Listens on `address`.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, NetError> {
        let rank = self.config.rank;
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::AddrNotAvailable => NetError::NotOwnAddress { rank, address },
            _ => NetError::Listen {
                rank,
                address,
                reason: error.to_string(),
            },
        };
        let mut listener = address::listener(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        self.poll
            .registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(failed)?;
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Listens no more. A process that was forked has the socket too, so closing it here is not
    /// enough: the port would stay in use.
    pub(super) fn close_listeners(&mut self) {
        for listener in self.listeners.drain(..) {
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        }
    }

    /// Begins to connect to `rank`; how it ends is in `by_rank` or in `attempts`.
    pub(crate) fn begin_connect(&mut self, rank: usize, address: SocketAddr) {
        self.attempts.remove(&rank);
        let outcome = address::connect(address, self.config.interface)
            .and_then(|stream| self.add(Link::connecting(stream, address, rank)));
        if let Err(error) = outcome {
            self.attempts.insert(rank, error.into());
        }
    }

    /// Listens where the other ranks look for rank 0.
    pub(crate) fn listen_as_server(&mut self) -> Result<(), NetError> {
        let server = self.config.server;
        if self.config.on_all_interfaces {
            return self.listen_everywhere(server.port()).map(drop);
        }
        let further = self.config.further.clone();
        let mut failed = None;
        for address in std::iter::once(server).chain(further) {
            match self.listen(address) {
                Ok(_) if self.listeners.len() == 1 => self.config.server = address, // for errors
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%address, %error, "an address of rank 0 is not used");
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if self.listeners.is_empty() => Err(error),
            Some(error) if self.config.server != server => {
                // The other ranks may find another program there.
                self.push_note(error.to_string());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Listens on all network interfaces; returns the address, with the port.
    pub(crate) fn listen_everywhere(&mut self, port: u16) -> Result<SocketAddr, NetError> {
        // The address of IPv6 accepts connections of both versions, where the kernel has IPv6.
        self.listen((Ipv6Addr::UNSPECIFIED, port).into())
            .or_else(|_| self.listen((Ipv4Addr::UNSPECIFIED, port).into()))
    }

    /// Whether a connection to `rank` is being made.
    pub(crate) fn is_connecting(&self, rank: usize) -> bool {
        let mut links = self.links.iter().flatten();
        links.any(|link| link.rank == Some(rank) && !link.is_open())
    }

    fn add(&mut self, mut link: Link) -> std::io::Result<()> {
        let free = self.links.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(LINKS + index);
        self.poll
            .registry()
            .register(&mut link.stream, token, interest)?;
        self.links[index] = Some(link);
        Ok(())
    }

    /// The next connection of any listener.
    fn next_connection(&mut self) -> Option<(TcpStream, SocketAddr)> {
        let mut full = None;
        let found = self.listeners.iter().find_map(|listener| {
            let error = match listener.accept() {
                Ok(connection) => return Some(connection),
                Err(error) => error,
            };
            if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&error) {
                full = Some(error);
            }
            None
        });
        if let Some(error) = full {
            let rank = self.config.rank;
            self.push_note(format!(
                "a connection to rank {rank}, because the limit of open files (ulimit -n) is \
                 reached: {error}"
            ));
        }
        found
    }

    pub(super) fn accept(&mut self) {
        // Also after an error: the listener reports the next connection again.
        while let Some((stream, address)) = self.next_connection() {
            let accepted = address::configure(&stream)
                .map_err(NetError::system("setsockopt"))
                .and_then(|()| Link::accepted(stream, address))
                .and_then(|link| self.add(link).map_err(NetError::system("epoll_ctl")));
            if let Err(error) = accepted {
                tracing::debug!(%address, %error, "a connection cannot be accepted");
            }
            let unauthenticated = |link: &Option<Link>| {
                let link = link.as_ref().filter(|link| link.is_unauthenticated())?;
                link.deadline
            };
            let waiting = self.links.iter().map(unauthenticated);
            if waiting.clone().flatten().count() > UNAUTHENTICATED_MAX {
                let oldest = waiting
                    .enumerate()
                    .filter(|(_, deadline)| deadline.is_some());
                if let Some((index, _)) = oldest.min_by_key(|(_, deadline)| *deadline) {
                    self.links[index] = None;
                }
            }
        }
    }

    /// The open connection to `rank`.
    pub(crate) fn link_to(&mut self, rank: usize) -> Option<&mut Link> {
        let index = *self.by_rank.get(&rank)?;
        self.links[index].as_mut()
    }

    /// Sends a control message to `rank`, if it is connected.
    pub(crate) fn tell(&mut self, rank: usize, message: &Control) {
        if let Some(&index) = self.by_rank.get(&rank) {
            if let Some(link) = &mut self.links[index] {
                link.outbound.push_control(message);
            }
            self.write(index);
        }
    }

    /// Sends a control message to all connected ranks.
    pub(crate) fn tell_all(&mut self, message: &Control) {
        let ranks: Vec<usize> = self.by_rank.keys().copied().collect();
        ranks.into_iter().for_each(|rank| self.tell(rank, message));
    }

    /// Ends the connection at `index`.
    pub(super) fn end(&mut self, index: usize, end: End) {
        let Some(mut link) = self.links.get_mut(index).and_then(Option::take) else {
            return;
        };
        // Also in processes that were forked, so that the other side sees the end.
        let _ = link.stream.shutdown(std::net::Shutdown::Both);
        let address = link.address;
        let open = link
            .rank
            .filter(|rank| self.by_rank.get(rank) == Some(&index));
        let Some(rank) = open else {
            tracing::debug!(%address, %end, "a connection has ended before it was open");
            match link.rank {
                Some(rank) => {
                    self.attempts.insert(rank, end);
                }
                None => self.note(&link, &end),
            }
            return;
        };
        self.by_rank.remove(&rank);
        if link.is_leaving {
            let error = NetError::Left {
                rank,
                host: self.host(rank),
            };
            link.outbound.fail(&error);
            self.inbox.fail(Some(rank), &error);
            self.left.insert(rank);
            return;
        }
        match (self.phase, end) {
            (Phase::Gathering, end) => {
                self.push_note(format!("rank {rank} from {address}: {end}"));
                self.peers.remove(&rank);
            }
            (Phase::Waiting, end) => {
                self.attempts.insert(rank, end);
            }
            (Phase::Started, End::Invalid(problem)) => {
                let error = self.invalid(rank, problem);
                self.give_up(rank, error);
            }
            (Phase::Leaving, _) => {}
            (Phase::Started, End::Closed) => self.lose(rank, Loss::Closed),
            (Phase::Started, end) => {
                let reason = end.to_string();
                self.lose(rank, Loss::Failed { reason });
            }
        }
        if let Some(error) = &self.verdict {
            link.outbound.fail(error);
        }
    }

    /// Keeps the reason why a connection was refused, for the error about missing ranks.
    fn note(&mut self, link: &Link, end: &End) {
        let ip = link.address.ip();
        match end {
            End::WrongSecret => {
                self.push_note(format!("a connection from {ip} with another secret"))
            }
            End::Refused(reason) | End::Later(reason) => self.push_note(reason.clone()),
            _ => {}
        }
    }

    fn push_note(&mut self, note: String) {
        // Any process that reaches the port can cause notes, so their number is limited.
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            tracing::warn!("{note}");
            self.notes.push(note);
        } else {
            tracing::debug!("{note}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;
    use crate::config::Config;
    use crate::secret::Secret;

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn refused_connections_cause_few_warnings() {
        let server = "127.0.0.1:7".parse().unwrap();
        let config = Config::new(0, 2, server, Secret::of_job("a"), "a");
        let (mut core, _waker) = Core::new(&config).unwrap();
        let warnings = Arc::new(AtomicUsize::new(0));
        let subscriber = Warnings(Arc::clone(&warnings));
        tracing::subscriber::with_default(subscriber, || {
            for note in 0..NOTES_MAX + 10 {
                core.push_note(format!("note {note}"));
                core.push_note("the same".to_owned());
            }
        });
        assert_eq!(warnings.load(Ordering::Relaxed), NOTES_MAX);
        assert_eq!(core.notes.len(), NOTES_MAX);
    }
}
