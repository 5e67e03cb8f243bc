//! Rank 0's side of the rendezvous: binds the job's socket name, runs the server until every rank
//! is connected, and distributes the shared memory and the pidfds.

use crate::rendezvous::RendezvousConfig;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::client;
use super::error::RendezvousError;
use super::layout::Layout;
use super::peers::{Lifeline, Peer};
use super::rendezvous::{
    Connected, INTRODUCTION_TIMEOUT, address, check_holder, create_region, deadline, name, system,
};
use super::server::Server;
use super::socket::{self, Connection};
use super::wire::{Body, Welcome};

/// Pause before another attempt to bind the name, if another process holds it and has ended or does
/// not listen.
const NAME_PAUSE: Duration = Duration::from_millis(10);

/// Opens a pidfd of the process at the other end, if possible.
pub(super) type OpenPidfd = fn(&UnixStream) -> Option<OwnedFd>;

/// Runs the rendezvous as rank 0.
///
/// # Errors
/// Any [`RendezvousError`]; every connected rank receives it.
pub(super) fn serve(
    config: &RendezvousConfig,
    layout: &Layout,
    open_pidfd: OpenPidfd,
) -> Result<Connected, RendezvousError> {
    let deadline = deadline(config.start_timeout);
    let listener = listen(config, layout, deadline)?;
    let mut server = Server::new(config, layout, deadline);
    let outcome = server
        .fill(&listener)
        .and_then(|()| server.conclude(open_pidfd));
    if let Err(error) = &outcome {
        server.refuse_all(error);
        if Instant::now() < server.deadline {
            server.refuse_latecomers(&listener, error);
        }
    }
    outcome
}

/// Binds the job's socket name. If another process of this user holds it, that process may be a
/// second rank 0: both then return an error. Any other holder is an error, at the latest when its
/// time to answer has passed.
fn listen(
    config: &RendezvousConfig,
    layout: &Layout,
    deadline: Instant,
) -> Result<UnixListener, RendezvousError> {
    let address = address(config)?;
    let failed = |error: std::io::Error| {
        let code = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        system(
            config,
            "listen for the other ranks",
            Errno::from_raw_os_error(code),
        )
    };
    let answer_by = deadline.min(Instant::now() + INTRODUCTION_TIMEOUT);
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => {
                listener.set_nonblocking(true).map_err(failed)?;
                return Ok(listener);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(failed(error)),
        }
        let mut holder = None;
        if let Ok(stream) = socket::connect(&name(config)) {
            holder = Some(check_holder(config, &stream)?);
            let mut connection = Connection::connected(stream);
            client::introduce(config, layout, &connection, deadline, answer_by)?;
            match client::hear(config, &mut connection, answer_by) {
                // The holder has closed its socket: it was another rendezvous, and the name is free
                // again.
                Err(RendezvousError::Vanished { .. }) => {}
                Err(error) => return Err(error),
                // A rank 0 never admits another one.
                Ok(_) => return Err(client::name_held(config, holder)),
            }
        }
        if Instant::now() >= answer_by {
            return Err(client::name_held(config, holder));
        }
        std::thread::sleep(NAME_PAUSE);
    }
}

impl Server<'_> {
    /// Called when all clients are connected: creates the region, sends it to them, and sends `Go`
    /// when each has mapped it.
    fn conclude(&mut self, open_pidfd: OpenPidfd) -> Result<Connected, RendezvousError> {
        let (region, file) = create_region(self.config, self.layout)?;
        let (welcome, pidfds) = self.identify(open_pidfd);
        let descriptors: Vec<_> = std::iter::once(file.as_fd())
            .chain(pidfds.iter().map(|pidfd| pidfd.as_fd()))
            .collect();
        for (rank, client) in self.clients() {
            client
                .connection
                .send(Body::Welcome(welcome.clone()), &descriptors, self.deadline)
                .map_err(|error| {
                    client.failed(
                        self.config,
                        rank,
                        "send the job's memory and descriptors to a rank",
                        error,
                    )
                })?;
        }
        self.wait_until_ready()?;
        // From here on the rendezvous cannot fail: some ranks have received `Go`.
        for (rank, client) in self.clients() {
            match client.connection.send(Body::Go, &[], self.deadline) {
                Ok(()) => {}
                // It has died meanwhile. All ranks have its pidfd, or learn of its death from this
                // one, and will report it.
                Err(Errno::PIPE | Errno::CONNRESET) => {}
                Err(error) => tracing::error!(
                    rank,
                    pid = client.pid,
                    %error,
                    "cannot send Go to a rank; it will end with an error, and so will the others"
                ),
            }
        }
        let peers = self.lifelines(&welcome, &pidfds);
        Ok(Connected { region, peers })
    }

    /// Returns the process ids and pidfds of all ranks. Ranks of one process share a pidfd.
    fn identify(&self, open_pidfd: OpenPidfd) -> (Welcome, Vec<Arc<OwnedFd>>) {
        let mut welcome = Welcome {
            pids: vec![std::process::id()],
            pidfds: Vec::new(),
        };
        let mut pidfds: Vec<Arc<OwnedFd>> = Vec::new();
        // Rank 0 has no connection to itself; one end of a socket pair has the same credentials.
        let own = UnixStream::pair()
            .ok()
            .and_then(|(end, _other)| open_pidfd(&end));
        welcome.pidfds.push(own.map(|pidfd| {
            pidfds.push(Arc::new(pidfd));
            0
        }));
        for (_, client) in self.clients() {
            let known = welcome
                .pids
                .iter()
                .position(|&pid| pid == client.pid && pid != 0);
            let pidfd = match known {
                Some(same) => welcome.pidfds[same],
                None => open_pidfd(client.connection.stream()).map(|pidfd| {
                    pidfds.push(Arc::new(pidfd));
                    pidfds.len() - 1
                }),
            };
            welcome.pids.push(client.pid);
            welcome.pidfds.push(pidfd);
        }
        report_missing(&IS_REPORTED, &welcome.pidfds);
        (welcome, pidfds)
    }

    /// Returns the lifeline of each rank on rank 0.
    fn lifelines(&mut self, welcome: &Welcome, pidfds: &[Arc<OwnedFd>]) -> Vec<Peer> {
        let own_pidfd = welcome.pidfds[0];
        let clients = self.take_clients().into_iter();
        let ends: Vec<Arc<OwnedFd>> = clients
            .map(|client| Arc::new(client.connection.into_stream().into()))
            .collect();
        let own = Peer {
            pid: welcome.pids[0],
            lifeline: match own_pidfd {
                Some(_) => Lifeline::Own,
                None => Lifeline::Held {
                    _ends: ends.clone(),
                },
            },
        };
        let mut peers = vec![own];
        for (rank, end) in (1..).zip(ends) {
            let lifeline = match welcome.pidfds[rank] {
                None => Lifeline::Socket(end),
                Some(_) if welcome.pidfds[rank] == own_pidfd => Lifeline::Own,
                Some(index) => Lifeline::Pidfd(Arc::clone(&pidfds[index])),
            };
            peers.push(Peer {
                pid: welcome.pids[rank],
                lifeline,
            });
        }
        peers
    }
}

/// Whether this process has reported ranks without a pidfd.
static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Reports ranks without a pidfd: by a warning the first time, then for debugging only, because
/// further rendezvous of the process (process sets, another start) find the same.
fn report_missing<T>(is_reported: &AtomicBool, pidfds: &[Option<T>]) {
    const TEXT: &str = "no pidfd for ranks (another pid namespace, a kernel before Linux 5.3, or too many open files); \
                        their connections are watched instead";
    let ranks = pidfds.iter().filter(|pidfd| pidfd.is_none()).count();
    let size = pidfds.len();
    if ranks == 0 {
        return;
    }
    match is_reported.swap(true, Ordering::Relaxed) {
        false => tracing::warn!(ranks, size, "{TEXT}"),
        true => tracing::debug!(ranks, size, "{TEXT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_without_a_pidfd_are_one_warning_in_a_process() {
        let written = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Arc::new(written.reopen().unwrap()))
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .finish();
        let is_reported = AtomicBool::new(false);
        tracing::subscriber::with_default(subscriber, || {
            report_missing(&is_reported, &[Some(0), Some(1)]);
            report_missing(&is_reported, &[Some(0), None, None]);
            report_missing(&is_reported, &[None::<usize>; 64]);
        });
        let text = std::fs::read_to_string(written.path()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let [first, second] = lines[..] else {
            panic!("{text}")
        };
        assert!(
            first.contains(" WARN ") && first.ends_with("ranks=2 size=3"),
            "{text}"
        );
        assert!(
            second.contains(" DEBUG ") && second.ends_with("ranks=64 size=64"),
            "{text}"
        );
    }
}
