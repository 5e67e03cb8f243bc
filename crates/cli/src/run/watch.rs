//! Descriptor that polls as readable after a child process has ended: a pidfd, or a pipe that a
//! thread closes where there are no pidfds.
//!
//! Linux has pidfds since 5.3; older kernels (RHEL 8: 4.18) and seccomp profiles of that time refuse
//! the call.

use super::LaunchError;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

/// Action in errors.
const ACTION: &str = "watch a process";

/// Stack of the waiting thread: it makes one system call, and may run a signal handler.
const STACK_BYTES: usize = 128 << 10;

/// Watch over a child that has not been reaped.
#[derive(Debug)]
pub(super) struct Watch {
    descriptor: OwnedFd,
    /// Without a pidfd: the thread that waits for the end.
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches a child, which may have ended already.
    pub(super) fn open(pid: Pid) -> Result<Watch, LaunchError> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Watch {
                descriptor,
                thread: None,
            }),
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Self::by_thread(pid),
            Err(error) => Err(LaunchError::system(ACTION)(error)),
        }
    }

    /// Watches a child by a thread, on any kernel.
    pub(super) fn by_thread(pid: Pid) -> Result<Watch, LaunchError> {
        let failed = |source| LaunchError::System {
            action: ACTION,
            source,
        };
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let wait = move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            // An error means that no child has this number any more. Whoever polls the pipe then
            // asks for the exit status, and gets the same error.
            let _ =
                rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options));
            drop(writer);
        };
        let thread = std::thread::Builder::new()
            .name(format!("ronde-{}", pid.as_raw_nonzero())) // the kernel keeps 15 characters
            .stack_size(STACK_BYTES)
            .spawn(wait)
            .map_err(failed)?;
        Ok(Watch {
            descriptor: reader.into(),
            thread: Some(thread),
        })
    }

    /// Descriptor that polls as readable after the child has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Waits until the child, which must have ended or been killed, can be reaped. A thread that
    /// still waits for its number could wait for the next child of that number.
    pub(super) fn close(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}
