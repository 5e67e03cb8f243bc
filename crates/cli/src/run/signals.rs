//! The signals that a launcher passes on to its ranks, as descriptors to poll.

use super::LaunchError;
use crate::ignored_signals;
use signal_hook::SigId;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{pipe, unregister};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Catches SIGINT, SIGTERM and SIGHUP as long as it lives, except those that this process was started to ignore: `nohup`
/// means that a job outlives the terminal.
pub(super) struct Signals {
    caught: Vec<Caught>,
    /// SIGCHLD has a handler, though nobody asks it: if it were ignored, as a parent may have left it, the kernel would
    /// reap the ranks itself and their exit codes were lost.
    child: SigId,
}

struct Caught {
    signal: i32,
    wake: UnixStream,
    registration: SigId,
}

impl Signals {
    pub(super) fn register() -> Result<Signals, LaunchError> {
        let system = |source| LaunchError::System {
            action: "watch for signals",
            source,
        };
        let caught = |signal| {
            let (wake, sender) = UnixStream::pair().map_err(system)?;
            wake.set_nonblocking(true).map_err(system)?;
            let registration = pipe::register(signal, sender).map_err(system)?;
            Ok(Caught {
                signal,
                wake,
                registration,
            })
        };
        let ignored = ignored_signals();
        let wanted = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let caught = wanted.map(caught).collect::<Result<_, _>>()?;
        let child = flag::register(SIGCHLD, Arc::new(AtomicBool::new(false))).map_err(system)?;
        Ok(Signals { caught, child })
    }

    /// Descriptors that poll as readable when a signal has come.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.caught.iter().map(|caught| caught.wake.as_fd())
    }

    /// The signals that came since the last call, each as often as it came.
    pub(super) fn take(&self) -> Vec<i32> {
        let mut signals = Vec::new();
        for caught in &self.caught {
            let mut bytes = [0; 16];
            if let Ok(count) = (&caught.wake).read(&mut bytes) {
                signals.extend(std::iter::repeat_n(caught.signal, count));
            }
        }
        signals
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for caught in &self.caught {
            unregister(caught.registration);
        }
        unregister(self.child);
    }
}
