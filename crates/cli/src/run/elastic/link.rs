//! Connections of the job's processes on one host: a Unix socket in a folder that only this user
//! can enter.

use super::super::LaunchError;
use super::super::lines::Lines;
use super::super::ssh::agent::secret_folder;
use ronde_elastic::wire::{Reply, Request};
use ronde_elastic::{MemberId, Ready};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most connections; processes of the job have one each.
const CONNECTIONS_MAX: usize = 4096;

/// Longest path of a socket: the kernel's structure has 108 bytes, with a NUL.
const PATH_BYTES_MAX: usize = 107;

/// Time without a message after which a process does not answer. It sends one each second.
pub(super) const SILENCE: Duration = Duration::from_secs(6);

/// Socket, and the connections that were made to it.
pub(super) struct Links {
    listener: UnixListener,
    /// Removed at the end.
    folder: tempfile::TempDir,
    links: Vec<Link>,
}

/// Connection of one process.
struct Link {
    stream: UnixStream,
    lines: Lines,
    /// Process that it belongs to, once it has said so.
    member: Option<MemberId>,
    heard: Instant,
    /// Its silence was reported.
    is_silent: bool,
}

impl Links {
    /// Creates the socket.
    pub(super) fn new() -> Result<Self, LaunchError> {
        let system = |source| LaunchError::System {
            action: "create a socket in a temporary folder (TMPDIR)",
            source,
        };
        let folder = secret_folder().map_err(system)?;
        let path = folder.path().join("job");
        let bound = UnixListener::bind(&path).map_err(|error| match error.kind() {
            // The only invalid path is one that is too long (unix(7)).
            ErrorKind::InvalidInput => {
                let bytes = path.as_os_str().len();
                std::io::Error::other(format!(
                    "its path, {}, has {bytes} bytes, and a socket's can have {PATH_BYTES_MAX}; \
                     set TMPDIR to a folder with a shorter path",
                    path.display()
                ))
            }
            _ => error,
        });
        let listener = bound.map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let links = Vec::new();
        Ok(Self {
            listener,
            folder,
            links,
        })
    }

    /// Folder of the socket, which only this user can enter.
    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("job")
    }

    /// Descriptors to poll for messages.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let streams = self.links.iter().map(|link| link.stream.as_fd());
        [self.listener.as_fd()].into_iter().chain(streams)
    }

    /// Accepts connections of processes that run, and returns the reasons for which some ask for
    /// their places.
    pub(super) fn read(
        &mut self,
        now: Instant,
        runs: impl Fn(MemberId) -> bool,
    ) -> Vec<(MemberId, Ready)> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.links.len() < CONNECTIONS_MAX && stream.set_nonblocking(true).is_ok() {
                let lines = Lines::default();
                self.links.push(Link {
                    stream,
                    lines,
                    member: None,
                    heard: now,
                    is_silent: false,
                });
            }
        }
        let mut asked = Vec::new();
        let taken: Vec<MemberId> = self.links.iter().filter_map(|link| link.member).collect();
        let may_join = |member: MemberId| runs(member) && !taken.contains(&member);
        self.links
            .retain_mut(|link| link.read(now, &may_join, &mut asked));
        asked
    }

    /// Sends a message; a process that has no connection, or does not read, does not get it.
    pub(super) fn send(&mut self, member: MemberId, reply: &Reply) {
        let line = format!("{reply}\n");
        if let Some(link) = self
            .links
            .iter_mut()
            .find(|link| link.member == Some(member))
        {
            // An error means that it has ended or is stopped, which is noticed in another way.
            let _ = link.stream.write_all(line.as_bytes());
        }
    }

    /// Processes from which nothing was heard for too long, each once.
    pub(super) fn silent(&mut self, now: Instant) -> Vec<MemberId> {
        let is_new = |link: &&mut Link| !link.is_silent && now >= link.heard + SILENCE;
        let links = self.links.iter_mut().filter(is_new);
        let members = links.filter_map(|link| {
            link.is_silent = true;
            link.member
        });
        members.collect()
    }

    /// Closes the connection of a process that has ended.
    pub(super) fn close(&mut self, member: MemberId) {
        self.links.retain(|link| link.member != Some(member));
    }
}

impl Link {
    /// Reads what has arrived; returns whether the connection goes on.
    fn read(
        &mut self,
        now: Instant,
        may_join: &dyn Fn(MemberId) -> bool,
        asked: &mut Vec<(MemberId, Ready)>,
    ) -> bool {
        let mut bytes = [0; 4096];
        loop {
            let count = match (&self.stream).read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            self.heard = now;
            let (member, mut is_valid) = (&mut self.member, true);
            self.lines.feed(&bytes[..count], |line| {
                let request = String::from_utf8_lossy(line).parse();
                match (request, *member) {
                    (Ok(Request::Hello(number)), None) if may_join(MemberId(number)) => {
                        *member = Some(MemberId(number));
                    }
                    (Ok(Request::Alive), Some(_)) => {}
                    (Ok(Request::Ready(why)), Some(member)) => asked.push((member, why)),
                    _ => is_valid = false,
                }
            });
            if !is_valid {
                return false; // another program, or another version
            }
        }
    }
}
