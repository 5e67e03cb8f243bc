//! Sockets of the rendezvous: credentials of the other end, and messages with descriptors.
//!
//! No call here waits longer than its timeout, whatever the other end does: every system call
//! returns at once, and the waits between them are calls of `poll`.

#![allow(unsafe_code)] // socket options that rustix does not have

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};

use super::SIZE_MAX;
use super::wire::{self, Body, FrameError, TooLong};

/// Most descriptors in one message: the region's file and a pidfd per rank. The kernel's limit is
/// 253.
const DESCRIPTORS_MAX: usize = 1 + SIZE_MAX;
/// Pause before descriptors are sent again that the kernel refused because too many are in flight.
const RESEND_PAUSE: Duration = Duration::from_millis(1);

/// Process at the other end of a connection, at the time when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    /// Process id; 0 if it is in a namespace that this process cannot see.
    pub(super) pid: u32,
    pub(super) uid: u32,
}

/// Reads a fixed-size socket option of the level `SOL_SOCKET`.
///
/// # Safety
/// Any bytes must be a valid `T`.
unsafe fn socket_option<T>(socket: &UnixStream, option: libc::c_int) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the pointer's target.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(code.map_or(Errno::INVAL, Errno::from_raw_os_error));
    }
    // SAFETY: all bytes were zero before, and any bytes are valid by this function's contract.
    Ok(unsafe { value.assume_init() })
}

/// Returns the credentials of the other end. (`rustix` has a call for it, whose `Pid` cannot be 0.)
pub(super) fn credentials(socket: &UnixStream) -> Result<Credentials, Errno> {
    // SAFETY: three integers.
    let found: libc::ucred = unsafe { socket_option(socket, libc::SO_PEERCRED)? };
    Ok(Credentials {
        pid: u32::try_from(found.pid).unwrap_or(0),
        uid: found.uid,
    })
}

/// Opens a pidfd of the process at the other end, if the kernel provides one: from the connection
/// itself (Linux 6.5), or else by process id, which is not reused while the connection is open.
pub(super) fn open_pidfd(socket: &UnixStream) -> Option<OwnedFd> {
    // SAFETY: an integer.
    let direct: Result<libc::c_int, Errno> = unsafe { socket_option(socket, libc::SO_PEERPIDFD) };
    if let Ok(fd) = direct {
        // SAFETY: the kernel has just created this descriptor for this process.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let pid = credentials(socket).ok()?.pid;
    let pidfd = rustix::process::pidfd_open(
        Pid::from_raw(i32::try_from(pid).ok()?)?,
        PidfdFlags::empty(),
    )
    .ok()?;
    is_open(socket).then_some(pidfd)
}

/// Whether the other end still holds its side of the connection.
fn is_open(socket: &UnixStream) -> bool {
    let mut byte = [0; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(socket, &mut byte, flags), Ok((0, _)))
}

/// Connects to the abstract name `name` if a process listens there.
///
/// # Errors
/// [`Errno::CONNREFUSED`] if no process listens, [`Errno::AGAIN`] if too many connections wait
/// there to be accepted.
pub(super) fn connect(name: &str) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reason why no message was received.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The other end has closed the connection.
    Gone,
    /// The received bytes are not a message of this build.
    Frame(FrameError, usize),
    /// A system call failed, or could not deliver the descriptors.
    System(Errno),
}

/// Connection of the rendezvous. It keeps bytes after a message: they are the beginning of the next
/// one.
pub(super) struct Connection {
    stream: UnixStream,
    unread: Vec<u8>,
    /// `None` on the side that receives no descriptors; the kernel closes any that arrive.
    descriptors: Option<Vec<OwnedFd>>,
}

impl Connection {
    /// Makes the accepting side, which receives no descriptors.
    pub(super) fn accepted(stream: UnixStream) -> Self {
        Self {
            stream,
            unread: Vec::new(),
            descriptors: None,
        }
    }

    /// Makes the connecting side.
    pub(super) fn connected(stream: UnixStream) -> Self {
        Self {
            descriptors: Some(Vec::new()),
            ..Self::accepted(stream)
        }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns the stream; messages can no longer be sent.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Number of received bytes that are not a complete message.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.len()
    }

    /// Takes the descriptors received so far; called for the one message that has some.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Sends a message with any number of descriptors, before `deadline`.
    ///
    /// # Errors
    /// [`Errno::TIMEDOUT`] if the other end has not made room for it by then.
    pub(super) fn send(
        &self,
        body: Body,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), Errno> {
        let frame = wire::encode(body).map_err(|TooLong| Errno::MSGSIZE)?;
        let mut sent = 0;
        while sent < frame.len() {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            // The descriptors are sent with the first byte.
            if sent == 0 && !descriptors.is_empty() {
                let pushed = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
                assert!(pushed, "more descriptors than ranks");
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let rest = [IoSlice::new(&frame[sent..])];
            let error = match rustix::net::sendmsg(&self.stream, &rest, &mut ancillary, flags) {
                Ok(bytes) => {
                    sent += bytes;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(error) => error,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match error {
                Errno::AGAIN if left.is_zero() => return Err(Errno::TIMEDOUT),
                Errno::AGAIN => self.wait(PollFlags::OUT, left)?,
                // Descriptors in flight count against RLIMIT_NOFILE until they are received
                // (`unix(7)`).
                Errno::TOOMANYREFS if !left.is_zero() => std::thread::sleep(RESEND_PAUSE.min(left)),
                error => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next message, if all of it has been received.
    pub(super) fn try_receive(&mut self) -> Result<Option<Body>, ReceiveError> {
        loop {
            match wire::decode(&self.unread) {
                Ok(Some((body, bytes))) => {
                    self.unread.drain(..bytes);
                    return Ok(Some(body));
                }
                Ok(None) => {}
                Err(error) => return Err(ReceiveError::Frame(error, self.unread.len())),
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Reads the available bytes; returns whether there were any.
    fn read(&mut self) -> Result<bool, ReceiveError> {
        let mut chunk = [0; 4096];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let room = if self.descriptors.is_some() {
            space.len()
        } else {
            0
        };
        let mut ancillary = RecvAncillaryBuffer::new(&mut space[..room]);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut slices = [IoSliceMut::new(&mut chunk)];
        let received = loop {
            match rustix::net::recvmsg(&self.stream, &mut slices, &mut ancillary, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::CONNRESET) => return Err(ReceiveError::Gone),
                Err(error) => return Err(ReceiveError::System(error)),
            }
        };
        if let Some(descriptors) = &mut self.descriptors {
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    descriptors.extend(fds);
                }
            }
            // Only one message has descriptors: rank 0 never sends more, and more must not fill
            // this process's table.
            descriptors.truncate(DESCRIPTORS_MAX);
            if received.flags.contains(ReturnFlags::CTRUNC) {
                // The kernel installs as many as the limit on open files allows and drops the rest.
                return Err(ReceiveError::System(Errno::MFILE));
            }
        }
        if received.bytes == 0 {
            return Err(ReceiveError::Gone);
        }
        self.unread.extend_from_slice(&chunk[..received.bytes]);
        Ok(true)
    }

    /// Waits until data may be available, at most for `timeout`.
    pub(super) fn wait_readable(&self, timeout: Duration) -> Result<(), Errno> {
        self.wait(PollFlags::IN, timeout)
    }

    fn wait(&self, events: PollFlags, timeout: Duration) -> Result<(), Errno> {
        let mut fds = [PollFd::new(&self.stream, events)];
        match poll(&mut fds, Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Converts a duration to the kernel's form, limited to a value far beyond any timeout.
pub(super) fn timespec(duration: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec {
        tv_sec: i64::try_from(duration.as_secs())
            .unwrap_or(i64::MAX)
            .min(1 << 40),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
