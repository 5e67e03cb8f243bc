//! The signals that a launcher passes on to its ranks, as descriptors to poll.

use super::LaunchError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Catches SIGINT, SIGTERM and SIGHUP as long as it lives.
pub(super) struct Signals {
    caught: [Caught; 3],
}

struct Caught {
    signal: i32,
    wake: UnixStream,
    registration: signal_hook::SigId,
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
        Ok(Signals {
            caught: [caught(SIGINT)?, caught(SIGTERM)?, caught(SIGHUP)?],
        })
    }

    /// Descriptors that poll as readable when a signal has come.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.caught.each_ref().map(|caught| caught.wake.as_fd())
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
    }
}
