//! Kernels of TensorFlow, registered through its C interface at run time.
//!
//! Python registers them once ([`register_tensorflow`]) and generates the functions of the ops.
//! The kernels are in this extension module, so that there is one runtime in a process. There are
//! five ops:
//!
//! - `RondeCollective` runs a collective operation and blocks its thread, and so does
//!   `RondeExchange`, whose results may have other types than its inputs. In a `tf.function`,
//!   TensorFlow runs stateful ops in program order, which is the same on all ranks; so no thread
//!   blocks another one.
//! - `RondeSubmit` submits tensors without blocking and returns a token; `RondeWait` waits for
//!   tokens. Each gradient is submitted when it is there, and the step waits once.
//! - `RondeQuery` returns a rank or a size when the graph runs.
//!
//! TensorFlow's kernels with a callback are not used: its C interface passes the address of a
//! callback that no longer exists when the kernel has returned.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

mod interrupt;
mod kernels;
mod library;
mod ops;
mod types;

use kernels::Pending;

/// Registers the ops and kernels with the TensorFlow that this process has loaded, once.
#[pyfunction]
pub(crate) fn register_tensorflow(py: Python<'_>) -> PyResult<()> {
    static IS_REGISTERED: Mutex<bool> = Mutex::new(false);
    let mut is_registered = IS_REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_registered {
        let registered = library::load().and_then(|_| ops::register());
        registered.map_err(PyImportError::new_err)?;
        interrupt::watch(py)?;
        *is_registered = true;
    }
    Ok(())
}

/// Exception of a signal handler that has ended a wait.
static EXCEPTION: Mutex<Option<PyErr>> = Mutex::new(None);

fn keep_exception(exception: PyErr) {
    let mut kept = EXCEPTION.lock().unwrap_or_else(PoisonError::into_inner);
    *kept = Some(exception);
}

/// Raises the exception of the signal handler that has ended the last wait, such as
/// KeyboardInterrupt.
#[pyfunction]
pub(crate) fn raise_interrupt() -> PyResult<()> {
    let mut kept = EXCEPTION.lock().unwrap_or_else(PoisonError::into_inner);
    kept.take().map_or(Ok(()), Err)
}

/// Operations that were submitted and not waited for, by token.
struct Flights {
    /// Tokens so far.
    count: i64,
    by_token: BTreeMap<i64, Pending>,
}

static FLIGHTS: Mutex<Flights> = Mutex::new(Flights {
    count: 0,
    by_token: BTreeMap::new(),
});

/// Number of entries from which completed ones are dropped: a step that fails between submission
/// and wait leaves some behind.
const FLIGHTS_MAX: usize = 16_384;

fn flights<R>(use_them: impl FnOnce(&mut Flights) -> R) -> R {
    use_them(&mut FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps an operation and its tensors until they are taken; returns the token.
fn keep(pending: Pending) -> i64 {
    let (token, dropped) = flights(|flights| {
        let mut dropped = Vec::new();
        if flights.by_token.len() >= FLIGHTS_MAX {
            let done = flights.by_token.iter().filter(|(_, old)| old.is_done());
            let done: Vec<_> = done
                .take(FLIGHTS_MAX / 2)
                .map(|(token, _)| *token)
                .collect();
            dropped.extend(
                done.iter()
                    .filter_map(|token| flights.by_token.remove(token)),
            );
        }
        flights.count += 1;
        flights.by_token.insert(flights.count, pending);
        (flights.count, dropped)
    });
    drop(dropped); // frees tensors: not under the lock
    token
}

fn take(token: i64) -> Option<Pending> {
    flights(|flights| flights.by_token.remove(&token))
}

/// Drops all completed operations that were never waited for: all of them, unless a thread of the
/// last context has not ended, which may still write to the tensors of the others.
pub(crate) fn forget_all() {
    let forgotten: BTreeMap<_, _> = flights(|flights| {
        let all = std::mem::take(&mut flights.by_token).into_iter();
        let (done, in_flight) = all.partition(|(_, pending)| pending.is_done());
        flights.by_token = in_flight;
        done
    });
    drop(forgotten); // frees tensors: not under the lock
}
