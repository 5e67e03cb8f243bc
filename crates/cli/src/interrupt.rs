//! Signal handling of sweeps and searches: the first signal ends them with a report, a second one
//! ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::flag;

use crate::end_signals;
use crate::error::Error;
use crate::present::interrupt::leave_to_caller;

/// Number of the received signal, shared with the signal handlers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Registers handlers for SIGINT, SIGTERM and SIGHUP, except for those that this process was
    /// started to ignore.
    pub(crate) fn watch() -> Result<Self, Error> {
        let interrupt = Self::default();
        leave_to_caller();
        for signal in end_signals() {
            interrupt
                .register(signal)
                .map_err(Error::system("watch for signals"))?;
        }
        Ok(interrupt)
    }

    fn register(&self, signal: i32) -> io::Result<()> {
        let again = Arc::new(AtomicBool::new(false));
        // Handlers run in this order: at the first signal, `again` is not set yet.
        flag::register_conditional_default(signal, Arc::clone(&again))?;
        flag::register(signal, again)?;
        flag::register_usize(signal, Arc::clone(&self.0), signal as usize)?;
        Ok(())
    }

    /// Number of the received signal, if there was one.
    pub(crate) fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as u8), // a small number
        }
    }
}
