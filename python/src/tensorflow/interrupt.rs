//! Ctrl-C while a `tf.function` waits for other ranks.
//!
//! Python's handler of SIGINT only notes the signal; its main thread raises KeyboardInterrupt when
//! it runs Python code again. During a `tf.function` it waits for TensorFlow, whose threads wait
//! for an operation. So a second handler counts the signals, and such a wait is given up.

#![allow(unsafe_code)] // a signal handler

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use signal_hook::consts::SIGINT;
use signal_hook::low_level;

static RECEIVED: AtomicUsize = AtomicUsize::new(0);

/// Number of SIGINTs so far.
pub(super) fn received() -> usize {
    RECEIVED.load(Ordering::Relaxed)
}

/// Whether Python's main thread raises KeyboardInterrupt for a SIGINT, rather than calling a
/// handler of the program.
pub(super) fn raises(py: Python<'_>) -> PyResult<bool> {
    let signal = py.import("signal")?;
    let handler = signal.call_method1("getsignal", (SIGINT,))?;
    Ok(handler.is(&signal.getattr("default_int_handler")?))
}

/// Begins to count signals. Does nothing if the program has its own handler, or ignores SIGINT.
pub(super) fn watch(py: Python<'_>) -> PyResult<()> {
    if !raises(py)? {
        return Ok(());
    }
    // SAFETY: the handler only increments an atomic number; Python's handler is called before it.
    unsafe {
        low_level::register(SIGINT, || {
            RECEIVED.fetch_add(1, Ordering::Relaxed);
        })
    }?;
    // As before: a signal interrupts system calls, so that Python can raise the exception.
    py.import("signal")?
        .call_method1("siginterrupt", (SIGINT, true))?;
    Ok(())
}
