//! Signals that a launcher forwards to its ranks, as descriptors to poll.

use super::LaunchError;
use crate::end_signals;
use rustix::process::Signal;
use signal_hook::SigId;
use signal_hook::consts::SIGCHLD;
use signal_hook::flag;
use signal_hook::low_level::{pipe, signal_name, unregister};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Catches SIGINT, SIGTERM and SIGHUP during its lifetime, unless this process ignores them.
pub(super) struct Signals {
    caught: Vec<Caught>,
    /// Handler of SIGCHLD, whose flag is never read. If SIGCHLD were ignored, which a parent may
    /// have set, the kernel would reap the ranks itself and their exit codes would be lost.
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
        let caught = end_signals().map(caught).collect::<Result<_, _>>()?;
        let child = flag::register(SIGCHLD, Arc::new(AtomicBool::new(false))).map_err(system)?;
        Ok(Signals { caught, child })
    }

    /// Descriptors that poll as readable after a signal.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.caught.iter().map(|caught| caught.wake.as_fd())
    }

    /// Returns the signals since the last call, each as often as it was received.
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

/// Message that a caught signal ends the job.
pub(super) fn passed_on(signal: i32) -> String {
    let name = signal_name(signal).unwrap_or("a signal");
    format!("passing {name} on to all ranks; a second one kills them")
}

/// A caught signal, all of which have a name.
pub(super) fn named(signal: i32) -> Signal {
    Signal::from_named_raw(signal).unwrap_or(Signal::TERM)
}

impl Drop for Signals {
    fn drop(&mut self) {
        for caught in &self.caught {
            unregister(caught.registration);
        }
        unregister(self.child);
    }
}
