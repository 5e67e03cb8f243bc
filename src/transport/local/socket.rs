//! The sockets of the rendezvous: who is at the other end, and messages that carry descriptors.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Pid, PidfdFlags};

use super::SIZE_MAX;
use super::wire::{self, Body, FrameError};

/// Most descriptors in one message: the region's file and a pidfd per rank. The kernel's limit is 253.
const DESCRIPTORS_MAX: usize = 1 + SIZE_MAX;
/// Pause before descriptors are sent again that the kernel would not take: too many are on their way.
const RESEND_PAUSE: Duration = Duration::from_millis(1);

/// The process at the other end of a connection, as of the time it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    /// 0 if it is in a namespace that this process cannot see.
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
    // SAFETY: the kernel writes at most `length` bytes, which is the size of what the pointer leads to.
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

/// Who is at the other end. (`rustix` has a call for it, whose `Pid` cannot be 0.)
pub(super) fn credentials(socket: &UnixStream) -> Result<Credentials, Errno> {
    // SAFETY: three integers.
    let found: libc::ucred = unsafe { socket_option(socket, libc::SO_PEERCRED)? };
    Ok(Credentials {
        pid: u32::try_from(found.pid).unwrap_or(0),
        uid: found.uid,
    })
}

/// A pidfd of the process at the other end, if the kernel gives one: asked of the connection itself (Linux 6.5),
/// else by its id, which is still the same process's while the connection is alive.
pub(super) fn open_pidfd(socket: &UnixStream) -> Option<OwnedFd> {
    // SAFETY: an integer.
    let direct: Result<libc::c_int, Errno> = unsafe { socket_option(socket, libc::SO_PEERPIDFD) };
    if let Ok(fd) = direct {
        // SAFETY: the kernel has just made this descriptor for us.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let pid = credentials(socket).ok()?.pid;
    let pidfd =
        rustix::process::pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    is_open(socket).then_some(pidfd)
}

/// Whether the other end still holds its side of the connection.
fn is_open(socket: &UnixStream) -> bool {
    let mut byte = [0; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(socket, &mut byte, flags), Ok((0, _)))
}

/// Sends a message with descriptors, none or more, before `deadline`.
pub(super) fn send(
    socket: &UnixStream,
    body: Body,
    descriptors: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(), Errno> {
    let frame = wire::encode(body);
    let mut sent = 0;
    while sent < frame.len() {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // They travel with the first byte.
        if sent == 0 && !descriptors.is_empty() {
            let pushed = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(pushed, "more descriptors than ranks");
        }
        let flags = SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(socket, &[IoSlice::new(&frame[sent..])], &mut ancillary, flags) {
            Ok(bytes) => sent += bytes,
            Err(Errno::INTR) => {}
            // Descriptors on their way are counted against RLIMIT_NOFILE until they are received (`unix(7)`).
            Err(Errno::TOOMANYREFS | Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(RESEND_PAUSE)
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Why no message came.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The other end has closed the connection.
    Gone,
    /// The deadline has passed.
    Late,
    /// Bytes came that are no message of this build.
    Frame(FrameError, usize),
    /// The system refused, or could not deliver the descriptors.
    System(Errno),
}

/// Waits for the next message, and the descriptors with it, until `deadline`.
pub(super) fn receive(socket: &UnixStream, deadline: Instant) -> Result<(Body, Vec<OwnedFd>), ReceiveError> {
    let mut bytes = Vec::new();
    let mut descriptors = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ReceiveError::Late);
        }
        wait_readable(socket, left)?;
        let mut chunk = [0; 4096];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received =
            match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut chunk)], &mut ancillary, flags) {
                Ok(received) => received,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(Errno::CONNRESET) => return Err(ReceiveError::Gone),
                Err(error) => return Err(ReceiveError::System(error)),
            };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                descriptors.extend(fds);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            // The kernel installs what fits under the limit on open files and drops the rest.
            return Err(ReceiveError::System(Errno::MFILE));
        }
        if received.bytes == 0 {
            return Err(ReceiveError::Gone);
        }
        bytes.extend_from_slice(&chunk[..received.bytes]);
        match wire::decode(&bytes) {
            Ok(Some(body)) => return Ok((body, descriptors)),
            Ok(None) => {}
            Err(error) => return Err(ReceiveError::Frame(error, bytes.len())),
        }
    }
}

fn wait_readable(socket: impl AsFd, timeout: Duration) -> Result<(), ReceiveError> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    match poll(&mut fds, Some(&timespec(timeout))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(ReceiveError::System(error)),
    }
}

/// A duration in the kernel's form, capped far beyond any timeout.
pub(super) fn timespec(duration: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).min(1 << 40),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
